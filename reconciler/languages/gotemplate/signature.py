"""What a function of a template takes and gives, and what calling it may cost."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from reconciler.languages.gotemplate.limits import Run

STRING: Final = "string"
BOOL: Final = "bool"
INT: Final = "int"
INT64: Final = "int64"
FLOAT: Final = "float64"
MAP: Final = "map[string]interface {}"
ANY: Final = "interface {}"
VALUE: Final = "reflect.Value"
"""Any value, also none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function that templates may call.

    Attributes:
        call: Takes the run and the arguments; raises `Failure`.
        parameters: The types of the fixed arguments.
        rest: The type of each further argument, None where there may be none.
        pure: Equal arguments give an equal result.
        mutates: It changes a map that it gets.
        decides: What an argument has to be true as for the further ones not to be evaluated,
            None where all of them always are.
    """

    call: Callable[..., Any]
    parameters: tuple[str, ...] = ()
    rest: str | None = None
    pure: bool = True
    mutates: bool = False
    decides: bool | None = None


class Failure(Exception):
    """A function refuses what it got.

    Attributes:
        quotes: The text is the template's own, or quotes values.
    """

    def __init__(self, reason: str, *, quotes: bool = False) -> None:
        super().__init__(reason)
        self.quotes = quotes


def function(
    call: Callable[..., Any],
    *parameters: str,
    rest: str | None = None,
    pure: bool = True,
    mutates: bool = False,
) -> Function:
    """Describe a function that takes the run as its first argument."""
    return Function(call=call, parameters=parameters, rest=rest, pure=pure, mutates=mutates)


def plain(call: Callable[..., Any], *parameters: str, rest: str | None = None) -> Function:
    """Describe a function that needs nothing of the run; its arguments were counted already."""

    def called(_run: Run, *arguments: Any) -> Any:
        return call(*arguments)

    return Function(call=called, parameters=parameters, rest=rest)


Family = Mapping[str, Function]


def family(functions: dict[str, Function], **aliases: str) -> Family:
    """Give functions by name.

    Args:
        functions: By name.
        aliases: Further names, each with the name that it stands for.
    """
    named = {alias: functions[name] for alias, name in aliases.items()}
    return MappingProxyType(functions | named)
