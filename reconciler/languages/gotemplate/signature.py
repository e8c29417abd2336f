"""The functions that templates may call: parameters, properties and failures."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from reconciler.languages.gotemplate.limits import Run

STRING: Final = "string"
BOOL: Final = "bool"
INT: Final = "int"
INT64: Final = "int64"
DURATION: Final = "time.Duration"
FLOAT: Final = "float64"
MAP: Final = "map[string]interface {}"
ANY: Final = "interface {}"
VALUE: Final = "reflect.Value"
"""Any value, or no value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function that templates may call.

    Attributes:
        call: Takes the run and the arguments; raises `Failure`.
        parameters: The types of the fixed arguments.
        rest: The type of each further argument, None where there may be none.
        pure: Equal arguments give an equal result.
        decides: The truth value of an argument after which no further ones are evaluated; None
            where all of them always are.
    """

    call: Callable[..., Any]
    parameters: tuple[str, ...] = ()
    rest: str | None = None
    pure: bool = True
    decides: bool | None = None


class Failure(Exception):
    """A function refuses its arguments.

    Attributes:
        quotes: The message comes from the template, or quotes values.
    """

    def __init__(self, reason: str, *, quotes: bool = False) -> None:
        super().__init__(reason)
        self.quotes = quotes


def function(
    call: Callable[..., Any],
    *parameters: str,
    rest: str | None = None,
    pure: bool = True,
) -> Function:
    """Describe a function that takes the run as its first argument."""
    return Function(call=call, parameters=parameters, rest=rest, pure=pure)


def plain(call: Callable[..., Any], *parameters: str, rest: str | None = None) -> Function:
    """Describe a function that does not need the run; its arguments are counted already."""

    def called(_run: Run, *arguments: Any) -> Any:
        return call(*arguments)

    return Function(call=called, parameters=parameters, rest=rest)


Family = Mapping[str, Function]


def family(functions: dict[str, Function], **aliases: str) -> Family:
    """Return functions by name, also by further names, each given with the first one."""
    named = {alias: functions[name] for alias, name in aliases.items()}
    return MappingProxyType(functions | named)
