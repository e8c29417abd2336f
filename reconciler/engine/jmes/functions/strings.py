"""Functions on strings."""

from collections.abc import Mapping
from types import MappingProxyType

from reconciler.engine.jmes.functions.signature import Function
from reconciler.engine.jmes.limits import Run


def _starts_with(_run: Run, text: str, prefix: str) -> bool:
    return text.startswith(prefix)


def _ends_with(_run: Run, text: str, suffix: str) -> bool:
    return text.endswith(suffix)


def _join(run: Run, glue: str, texts: list[str]) -> str:
    run.spend(len(texts))
    run.check_text(sum(map(len, texts)) + len(glue) * len(texts))
    return glue.join(texts)


_TEXT = ("string",)

FUNCTIONS: Mapping[str, Function] = MappingProxyType(
    {
        "ends_with": Function(call=_ends_with, takes=(_TEXT, _TEXT)),
        "join": Function(call=_join, takes=(_TEXT, ("array[string]",))),
        "starts_with": Function(call=_starts_with, takes=(_TEXT, _TEXT)),
    }
)
