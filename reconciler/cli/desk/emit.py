"""Objects as YAML, and the difference between two objects as a unified diff.

The emitter of the YAML library takes milliseconds per object, too slow for ten thousand objects.
"""

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from reconciler.api.meta import ref_of
from reconciler.cli.output.screen import Screen

_PLAIN: Final = re.compile(
    r"[A-Za-z_/](?:[A-Za-z0-9_./+@%=,()$-]|:(?=[^ ])|(?<! ) (?! ))*(?<![ :])|[0-9]+(?:m|[KMGT]i?)"
)
_WORDS: Final = frozenset(["true", "false", "yes", "no", "on", "off", "y", "n", "null"])
_CONTEXT: Final = 3
_COLOURS: Final = {"+": "green", "-": "red", "@": "cyan"}


def render_yaml(value: Any) -> str:
    """Return a value as block style YAML with keys in their order and a final newline."""
    lines: list[str] = []
    _write(value, "", lines)
    return "\n".join(lines) + "\n"


def unified_diff(
    before: Mapping[str, Any], after: Mapping[str, Any], *, names: tuple[str, str]
) -> list[str]:
    """Return the lines of the diff between two objects, without newlines."""
    old, new = render_yaml(before).splitlines(), render_yaml(after).splitlines()
    start = _common(old, new)
    end = _common(old[start:][::-1], new[start:][::-1])
    # Only the differing middle is compared: most lines are equal, and comparing is quadratic.
    first = max(start - _CONTEXT, 0)
    last = max(end - _CONTEXT, 0)
    found = difflib.unified_diff(
        old[first : len(old) - last], new[first : len(new) - last], *names, lineterm="", n=_CONTEXT
    )
    return [_shifted(line, first) if line.startswith("@@") else line for line in found]


def paint(lines: Iterable[str], screen: Screen) -> list[str]:
    """Return the lines of a diff, coloured where the screen supports it."""
    return [
        screen.style(line, bold=True)
        if line.startswith(("---", "+++"))
        else screen.style(line, fg=_COLOURS[line[0]])
        if line[:1] in _COLOURS
        else line
        for line in lines
    ]


def title(obj: Mapping[str, Any]) -> str:
    """Return the name of an object for people: ``Deployment shop/web``."""
    return str(ref_of(obj))


def _common(old: list[str], new: list[str]) -> int:
    pairs = enumerate(zip(old, new, strict=False))
    return next((n for n, (left, right) in pairs if left != right), min(len(old), len(new)))


def _shifted(line: str, by: int) -> str:
    return re.sub(r"([-+])(\d+)", lambda found: f"{found[1]}{int(found[2]) + by}", line)


def _write(value: Any, indent: str, lines: list[str]) -> None:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            _entry(f"{indent}{_text(str(key))}:", item, indent, lines)
    elif isinstance(value, list) and value:
        for item in value:
            _item(item, indent, lines)
    else:
        lines.append(indent + _scalar(value, indent))


def _entry(head: str, item: Any, indent: str, lines: list[str]) -> None:
    if isinstance(item, dict | list) and item:
        lines.append(head)
        # Lists are indented like their key, as kubectl writes them.
        _write(item, indent if isinstance(item, list) else indent + "  ", lines)
    else:
        lines.append(f"{head} {_scalar(item, indent + '  ')}")


def _item(item: Any, indent: str, lines: list[str]) -> None:
    if isinstance(item, dict | list) and item:
        begun = len(lines)
        _write(item, indent + "  ", lines)
        lines[begun] = f"{indent}- {lines[begun][len(indent) + 2 :]}"
    else:
        lines.append(f"{indent}- {_scalar(item, indent + '  ')}")


def _scalar(value: Any, indent: str) -> str:
    if isinstance(value, str):
        return _block(value, indent) if "\n" in value else _text(value)
    return json.dumps(value)


@lru_cache(maxsize=10_000)
def _text(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    return _quoted(text)


def _quoted(text: str) -> str:
    written = json.dumps(text, ensure_ascii=False)
    return written if written.isprintable() else "".join(map(_escaped, written))


def _escaped(sign: str) -> str:
    return sign if sign.isprintable() else f"\\U{ord(sign):08x}"


def _block(text: str, indent: str) -> str:
    body = text.rstrip("\n")
    lines = body.split("\n")
    if not body or not _blockable(text, lines):
        return _quoted(text)
    extra = len(text) - len(body)
    sign = {0: "|-", 1: "|"}.get(extra, "|+")
    padded = [f"{indent}{line}" if line else "" for line in lines] + [""] * (extra - 1)
    return "\n".join([sign, *padded])


def _blockable(text: str, lines: list[str]) -> bool:
    return (
        not lines[0].startswith((" ", "\t"))
        and lines[0] != ""
        and (text.replace("\n", "").replace("\t", "").isprintable())
    )
