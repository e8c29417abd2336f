"""Test files, read and checked."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from reconciler.cli.desk.documents import Document, parse_documents
from reconciler.cli.desk.files import read
from reconciler.engine.match import reading
from reconciler.errors import InvalidPolicy, InvalidSetting

RESULTS: Final = ("pass", "fail", "skip", "warn", "error")

_HEAD = ("apiVersion", "kind", "metadata")
_FILES = (
    "policies",
    "resources",
    "targetResources",
    "clusterResources",
    "exceptions",
    "paramResources",
)
_ROW_FIELDS = (
    "policy",
    "rule",
    "resources",
    "resourceSpecs",
    "kind",
    "operation",
    "result",
    "patchedResources",
    "failOnMissingResources",
)
# Flags of policies that are not evaluated here: a row that sets one says so, others never do.
_FLAGS = (
    "isValidatingPolicy",
    "isValidatingAdmissionPolicy",
    "isMutatingPolicy",
    "isMutatingAdmissionPolicy",
    "isImageValidatingPolicy",
    "isGeneratingPolicy",
    "isDeletingPolicy",
    "generatedResource",
    "cloneSourceResource",
)
_SPEC_FIELDS = ("group", "version", "namespace", "name", "subresource")
_FIELDS = (
    *_HEAD,
    *_FILES,
    "variables",
    "values",
    "userinfo",
    "apiCallResponses",
    "globalContextEntries",
    "results",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """One entry of ``results``.

    Attributes:
        location: In the test file.
        policy: Its name, without a namespace.
        objects: Pairs of namespace, which may be empty, and name; empty for all objects.
        patched: The file with objects as they must be, or empty.
        demands_all: An object that is not in that file is a failure.
    """

    location: str
    policy: str
    rule: str
    objects: tuple[tuple[str, str], ...]
    operation: str
    result: str
    patched: str
    demands_all: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TestFile:
    """One document of a test file.

    Attributes:
        path: Of the file; names in it are relative to its folder.
        values: Name of a file, or the values themselves; values win.
    """

    __test__ = False

    path: Path
    name: str
    files: Mapping[str, tuple[str, ...]]
    variables: str
    values: Any
    user: str
    calls: tuple[Any, ...]
    entries: tuple[Any, ...]
    expected: tuple[Expected, ...]


def find(names: Iterable[str], file_name: str) -> list[Path]:
    """Return the test files below folders; a file is taken as it is.

    Raises:
        InvalidSetting: There is no such folder.
    """
    found: list[Path] = []
    for name in names:
        path = Path(name)
        if not path.exists():
            raise InvalidSetting(f"{path}: there is no such folder")
        found += sorted(path.rglob(file_name)) if path.is_dir() else [path]
    return list(dict.fromkeys(found))


def read_tests(path: Path) -> list[TestFile]:
    """Return the tests of a file.

    Raises:
        InvalidSetting: It cannot be read, or a field is unknown or has the wrong type.
    """
    try:
        found = [_test(item, path) for item in parse_documents(read(path), str(path))]
    except InvalidPolicy as error:
        raise InvalidSetting(str(error)) from error
    if not found:
        raise InvalidSetting(f"{path}: no test is in there")
    return found


def _test(document: Document, path: Path) -> TestFile:
    place = document.place
    fields = reading.mapping(document.value, place, allowed=_FIELDS)
    api_version, kind = fields.get("apiVersion"), fields.get("kind")
    if kind != "Test" or "kyverno.io/" not in str(api_version):
        raise InvalidSetting(
            f"{place}: expected apiVersion cli.kyverno.io/v1alpha1 and kind Test,"
            f" found {api_version or 'none'} and {kind or 'none'}"
        )
    meta = fields.get("metadata")
    rows = reading.sequence(fields.get("results"), f"{place}: results")
    return TestFile(
        path=path,
        name=str(meta.get("name", "")) if isinstance(meta, Mapping) else "",
        files={name: reading.strings(fields.get(name), f"{place}: {name}") for name in _FILES},
        variables=_text(fields, "variables", place),
        values=fields.get("values"),
        user=_text(fields, "userinfo", place),
        calls=tuple(
            reading.sequence(fields.get("apiCallResponses"), f"{place}: apiCallResponses")
        ),
        entries=tuple(
            reading.sequence(fields.get("globalContextEntries"), f"{place}: globalContextEntries")
        ),
        expected=tuple(
            _expected(item, f"{place}: results[{index}]") for index, item in enumerate(rows)
        ),
    )


def _expected(raw: Any, place: str) -> Expected:
    fields = reading.mapping(raw, place, allowed=(*_ROW_FIELDS, *_FLAGS))
    result = fields.get("result") or fields.get("status")
    if result not in RESULTS:
        raise InvalidSetting(f"{place}.result: expected one of {', '.join(RESULTS)}")
    operation = _text(fields, "operation", place)
    if operation not in ("", "CREATE", "UPDATE", "DELETE"):
        raise InvalidSetting(f"{place}.operation: expected CREATE, UPDATE or DELETE")
    policy = reading.string(fields.get("policy"), f"{place}.policy")
    return Expected(
        location=place,
        policy=policy.rpartition("/")[2],
        rule=_text(fields, "rule", place),
        objects=_objects(fields, place),
        operation=operation,
        result=str(result),
        patched=_text(fields, "patchedResources", place),
        demands_all=fields.get("failOnMissingResources") is True,
    )


def _objects(fields: Mapping[str, Any], place: str) -> tuple[tuple[str, str], ...]:
    names = reading.strings(fields.get("resources"), f"{place}.resources")
    found = [_split(name) for name in names]
    specs: Sequence[Any] = reading.sequence(fields.get("resourceSpecs"), f"{place}.resourceSpecs")
    for index, item in enumerate(specs):
        where = f"{place}.resourceSpecs[{index}]"
        spec = reading.mapping(item, where, allowed=_SPEC_FIELDS)
        found.append((_text(spec, "namespace", where), _text(spec, "name", where)))
    return tuple(found)


def _split(text: str) -> tuple[str, str]:
    namespace, _, name = text.rpartition("/")
    return namespace, name


def _text(fields: Mapping[str, Any], name: str, place: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str | None):
        raise InvalidSetting(f"{place}.{name}: expected a text")
    return value or ""
