"""The given responses of calls and data of GlobalContextEntries of a test."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reconciler.cli.desk.fields import read_fields, read_text
from reconciler.cli.desk.file_objects import Answers
from reconciler.cli.desk.files import objects, read_all
from reconciler.cli.desk.suite.model import GlobalEntry, TestFile
from reconciler.errors import EvaluationError, InvalidPolicy, InvalidSetting
from reconciler.languages.jmespath import compile_expression


def answers_of(test: TestFile, folder: Path) -> Answers:
    """Return the answers to the reads of context entries that a test gives.

    Args:
        folder: The folder to which file names are relative.

    Raises:
        InvalidSetting: A field has the wrong form, or a file cannot be read.
    """
    calls: dict[tuple[str, str], Any] = {}
    for index, item in enumerate(test.calls):
        calls |= _call(item, f"{test.path}: apiCallResponses[{index}]")
    entries: dict[str, Any] = {}
    for entry in test.entries:
        entries |= _values(entry, folder)
    return Answers(calls=calls, entries=entries)


def _call(raw: Any, place: str) -> dict[tuple[str, str], Any]:
    try:
        fields = read_fields(raw, place, allowed=("urlPath", "url", "method", "response"))
        response = fields.get("response")
        answer = read_fields(response, f"{place}.response", allowed=("statusCode", "body"))
    except InvalidPolicy as error:
        raise InvalidSetting(str(error)) from error
    where = fields.get("urlPath") or fields.get("url")
    if not isinstance(where, str) or not isinstance(response, Mapping):
        raise InvalidSetting(f"{place}: expected urlPath or url, and response")
    method = read_text(fields, "method", place)
    methods = [method] if method else ["GET", "POST"]
    return dict.fromkeys(((method, where) for method in methods), answer.get("body"))


def _values(entry: GlobalEntry, folder: Path) -> dict[str, Any]:
    """Return the data of an entry, and of each of its projections by ``entry.projection``."""
    data = entry.data
    if entry.files is not None:
        data = [obj for _, obj in objects(read_all(entry.files, base=folder))]
    if entry.field_path:
        data = _searched(data, entry.field_path, f"{entry.location}.fieldPath")
    if not entry.projections:
        return {entry.name: data}
    parts = {
        name: _searched(data, path, f"{entry.location}.projections[{index}].path")
        for index, (name, path) in enumerate(entry.projections.items())
    }
    return {entry.name: parts} | {f"{entry.name}.{name}": part for name, part in parts.items()}


def _searched(data: Any, path: str, place: str) -> Any:
    try:
        return compile_expression(path).search(data)
    except (InvalidPolicy, EvaluationError) as error:
        raise InvalidSetting(f"{place}: {error}") from error
