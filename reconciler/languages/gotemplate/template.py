"""Templates: compiled once, rendered on data."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from reconciler.engine.allowance import UNLIMITED, Allowance
from reconciler.engine.environment import NOTHING_KNOWN, EvaluationEnvironment
from reconciler.errors import EvaluationError
from reconciler.languages.gotemplate import builtins, direct
from reconciler.languages.gotemplate.evaluator import Body, Rendering
from reconciler.languages.gotemplate.functions import registry
from reconciler.languages.gotemplate.limits import DEFAULT_LIMITS, Limits, Run
from reconciler.languages.gotemplate.parser import parse
from reconciler.languages.gotemplate.signature import Function
from reconciler.languages.gotemplate.values import encode

BUILTIN: Final[Mapping[str, Function]] = builtins.FUNCTIONS
SPRIG: Final[Mapping[str, Function]] = MappingProxyType(
    {**builtins.FUNCTIONS, **registry.FUNCTIONS}
)


@dataclass(frozen=True, slots=True)
class Template:
    """A compiled template.

    Attributes:
        text: The source.
        converges: Each rendering on the same data gives the same text.
    """

    text: str
    converges: bool
    _body: Body
    _parts: tuple[direct.Part, ...] | None
    _defined: Mapping[str, Body]
    _functions: Mapping[str, Function]
    _limits: Limits

    def render(
        self,
        data: Any,
        *,
        allowance: Allowance = UNLIMITED,
        environment: EvaluationEnvironment = NOTHING_KNOWN,
    ) -> str:
        """Render the template as `render_bytes` does; bytes that are not UTF-8 become U+FFFD."""
        text = self._render(data, allowance, environment)
        return text if text.isascii() else encode(text).decode("utf-8", "replace")

    def render_bytes(
        self,
        data: Any,
        *,
        allowance: Allowance = UNLIMITED,
        environment: EvaluationEnvironment = NOTHING_KNOWN,
    ) -> bytes:
        """Render the template; what functions change in the data is undone at the end.

        Args:
            data: The value of ``.``, usually a `Record`. Plain integers in it are floats, as Go
                decodes those of JSON.
            allowance: The steps that the rendering may cost.
            environment: The time, and random numbers, for the functions that need them.

        Raises:
            EvaluationError: The template cannot be rendered on this data. The message may quote
                text of the template; `without_values` never does.
        """
        return encode(self._render(data, allowance, environment))

    def _render(self, data: Any, allowance: Allowance, environment: EvaluationEnvironment) -> str:
        if self._parts is not None:
            text = direct.render(self._parts, data, self._limits, allowance)
            if text is not None:
                return text
        run = Run(self._limits, allowance, environment)
        try:
            rendering = Rendering(self.text, self._functions, self._defined, run)
            return rendering.render(self._body, data)
        except RecursionError as error:
            reason = "the template and its data are nested too deeply"
            raise EvaluationError(reason).bare(reason) from error
        finally:
            run.settle()


def compile(  # noqa: A001 - as that of the standard library's re
    text: str,
    *,
    functions: Mapping[str, Function] = SPRIG,
    limits: Limits = DEFAULT_LIMITS,
) -> Template:
    """Compile a template.

    Args:
        functions: The functions that it may call: `SPRIG`, or `BUILTIN`, those of text/template.
        limits: On its size, and on the cost of each rendering.

    Raises:
        TemplateSyntaxError: The text is no valid template, or calls an unknown function.
    """
    parsed = parse(text, known=functions, unknown=registry.why_unknown, limits=limits)
    called = [functions[name] for name in parsed.called]
    return Template(
        text=text,
        converges=all(function.pure for function in called),
        _body=parsed.body,
        _parts=direct.parts_of(parsed.body),
        _defined=parsed.defined,
        _functions=functions,
        _limits=limits,
    )
