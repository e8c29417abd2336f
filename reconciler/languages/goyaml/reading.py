"""Parses texts, also those that the original accepts and the Python parser does not."""

import re
from collections.abc import Callable
from typing import Any, Final

import yaml
from yaml.events import DocumentEndEvent, StreamEndEvent

from reconciler.engine.allowance import UNLIMITED
from reconciler.languages.goyaml.document import Document, refuse_endless
from reconciler.languages.goyaml.faults import YAMLError

_Parser: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_REREAD: Final = 256 * 1024
"""Total number of characters that are parsed again after the text was rewritten."""
_PACE: Final = 32
"""Parsing a character takes about as long as copying this many."""
_QUOTED: Final = re.compile(r'"([ !#-\[\]-~]*)"')


def parse(content: str | bytes, spend: Callable[[int], None] = UNLIMITED.spend) -> Any:
    """Return the value of the first document, None where there is none; bytes are UTF-8.

    Args:
        spend: Counts the steps for each further time that the text is parsed.

    Raises:
        YAMLError: The text cannot be parsed.
    """
    try:
        text = content if isinstance(content, str) else content.decode()
        # Most values are a quoted text without escapes, which needs no parser.
        if found := _QUOTED.fullmatch(text):
            return found[1]
        return _first_document(text, spend)
    except yaml.MarkedYAMLError as error:
        problem = error.problem or "it cannot be parsed"
        raise YAMLError.at(error.problem_mark, problem) from error
    except yaml.YAMLError as error:
        raise YAMLError.at(None, "control characters are not allowed") from error
    except UnicodeError as error:
        raise YAMLError.at(None, "it is not valid UTF-8, or a character is incomplete") from error


def _first_document(text: str, spend: Callable[[int], None]) -> Any:
    text, left = text.removeprefix("\ufeff"), _REREAD
    while True:
        try:
            return _read(text)
        except yaml.MarkedYAMLError as error:
            left -= len(text)
            accepted = _accepted(text, error) if left >= 0 else None
            if accepted is None:
                raise
            spend(len(accepted) * _PACE)
            text = accepted


def _accepted(text: str, error: yaml.MarkedYAMLError) -> str | None:
    """Return a text rewritten for the parser, None where it is wrong in the original, too."""
    start, end = error.context_mark, error.problem_mark
    if start is None or end is None:
        return None
    first, at = start.index, end.index
    if error.problem == "found unknown escape character" and text.startswith("\\'", at):
        return f"{text[:at]}'{text[at + 2 :]}"
    plain = text[first : at + 1]
    # In brackets a colon may end a text, as in [a:].
    ends = error.problem == "found unexpected ':'" and text[at + 1 : at + 2] in {",", "]", "}"}
    if not ends or "?" in plain:
        return None
    quoted = plain.replace("'", "''")
    return f"{text[:first]}'{quoted}'{text[at + 1 :]}"


def _read(text: str) -> Any:
    parser = _Parser(text)
    document = Document(text if "\\/" in text else "")
    try:
        # The text after the first document is not even parsed, as in the original.
        while not isinstance(event := parser.get_event(), DocumentEndEvent | StreamEndEvent):
            document.take(event)
    finally:
        parser.dispose()
    if not document.root:
        return None
    if document.is_endless:
        refuse_endless(document.root)
    return document.root[0]
