"""Values of patches and messages of rejections, which are texts or Go templates."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from reconciler.dialects.kubemod.view import View
from reconciler.engine.environment import ENVIRONMENT, NOTHING_KNOWN
from reconciler.errors import EvaluationError, InvalidPolicy
from reconciler.languages import gotemplate, goyaml

_Output = TypeVar("_Output")
_KEY: Final = re.compile(r"\.#([0-9]+)")
_INTEGER: Final = re.compile(r"0|[1-9][0-9]{0,18}")
_HIGHEST: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A value of a patch: the YAML value of a text, or of the text that a template renders.

    Attributes:
        constant: The value, where the text is no template.
    """

    location: str
    template: gotemplate.Template | None = field(default=None, compare=False)
    constant: Any = None

    @property
    def converges(self) -> bool:
        """Return whether the same object always gives the same value."""
        return self.template is None or self.template.converges

    def of(self, view: View, item: Any = None, keys: Sequence[int | str] = ()) -> Any:
        """Return the value for one hit.

        Raises:
            EvaluationError: The template fails, or renders invalid YAML.
        """
        if self.template is None:
            return self.constant
        fields = {
            "Namespace": view.namespace,
            "Target": gotemplate.Pointer(view.full()),
            "SelectedItem": item,
            "SelectKeyParts": list(map(_key_part, keys)),
        }
        data = gotemplate.Record("*core.PatchTemplateContext", fields)
        text = _rendered(self.template.render_bytes, data, view, self.location)
        try:
            return goyaml.parse(text, view.context.allowance.spend)
        except goyaml.YAMLError as error:
            reason = f"{self.location}: the output of the template {error}"
            raise EvaluationError(reason).bare(reason) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """The message of a rejection."""

    location: str
    template: gotemplate.Template = field(compare=False)

    def of(self, view: View) -> str:
        """Return the message for an object.

        Raises:
            EvaluationError: The template fails.
        """
        fields = {"Namespace": view.namespace, "Target": gotemplate.Pointer(view.full())}
        data = gotemplate.Record("core.RejectTemplateContext", fields)
        return _rendered(self.template.render, data, view, self.location)


def read_value(text: str | None, location: str) -> Value:
    """Read the value of a patch, which is null by default.

    Raises:
        InvalidPolicy: The text is no valid template or no valid YAML.
    """
    source = _KEY.sub(r"(index .SelectKeyParts \1)", "null" if text is None else text)
    if "{{" in source:
        return Value(location=location, template=_compiled(source, location))
    try:
        return Value(location=location, constant=goyaml.parse(source))
    except goyaml.YAMLError as error:
        raise InvalidPolicy(location, f"the value {error}") from error


def read_message(text: str, location: str) -> Message:
    """Read the message of a rejection.

    Raises:
        InvalidPolicy: The text is no valid template.
    """
    return Message(location=location, template=_compiled(text, location))


def _compiled(text: str, location: str) -> gotemplate.Template:
    try:
        return gotemplate.compile(text)
    except gotemplate.TemplateSyntaxError as error:
        raise InvalidPolicy(location, f"the template cannot be parsed: {error}") from error


def _rendered(
    render: Callable[..., _Output], data: gotemplate.Record, view: View, location: str
) -> _Output:
    known: Mapping[str, Any] = view.context.data
    environment = known.get(ENVIRONMENT, NOTHING_KNOWN)
    try:
        return render(data, allowance=view.context.allowance, environment=environment)
    except EvaluationError as error:
        bare = f"{location}: {error.without_values}"
        raise EvaluationError(f"{location}: {error}").bare(bare) from error
    except UnicodeError as error:
        reason = f"{location}: the object contains a string that is not valid Unicode"
        raise EvaluationError(reason).bare(reason) from error


def _key_part(key: int | str) -> int | str:
    """Return a captured key for a template; a key of digits is an integer, as in the original."""
    if isinstance(key, int) or (_INTEGER.fullmatch(key) and int(key) <= _HIGHEST):
        return gotemplate.Int(key)
    return key
