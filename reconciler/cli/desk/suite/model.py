"""The model and the parser of test files.

Fields of Kyverno's test files that mutate rules do not use, such as payloads, files for CEL and
checks of responses, are accepted: a row that needs them is not run, and reports why.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from reconciler.cli.desk.documents import Document, parse_documents
from reconciler.cli.desk.fields import read_fields, read_text
from reconciler.cli.desk.file_objects import Key
from reconciler.cli.desk.files import named, read
from reconciler.cli.desk.suite.hookmodel import HookTest, is_hook_test, read_hook_test
from reconciler.engine import reading
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
# Fields of rows for policies or rules that are not supported.
_FOREIGN_ROW_FIELDS = (
    "isValidatingPolicy",
    "isValidatingAdmissionPolicy",
    "isMutatingPolicy",
    "isMutatingAdmissionPolicy",
    "isImageValidatingPolicy",
    "isGeneratingPolicy",
    "isDeletingPolicy",
    "generatedResource",
    "generatedResources",
    "cloneSourceResource",
)
_SPEC_FIELDS = ("group", "version", "kind", "namespace", "name", "subresource")
_FIELDS = (
    *_HEAD,
    *_FILES,
    "name",
    "variables",
    "values",
    "userinfo",
    "apiCallResponses",
    "globalContextEntries",
    "results",
    "checks",
    # For policies in CEL.
    "context",
    "jsonPayload",
    "jsonPayloads",
    "httpPayloads",
    "envoyPayloads",
)
# The alternative sources of the data of a GlobalContextEntry.
_SOURCES = ("data", "resources", "resourceFiles")
_CHECKS = "checks of what rules answer are not evaluated; write results with patchedResources"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectName:
    """The name of the object of a row; an empty kind or namespace matches any."""

    name: str
    namespace: str = ""
    kind: str = ""

    def means(self, key: Key) -> bool:
        """Return whether the name refers to an object."""
        _, kind, namespace, name = key
        return self.name == name and self.namespace in ("", namespace) and self.kind in ("", kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """One entry of ``results``.

    Attributes:
        location: The place in the test file.
        policy: The name of the policy, without its namespace.
        objects: The names of the objects; empty for all.
        patched: Files with objects in their expected state.
        demands_all: Whether an object that is missing from these files is a failure.
        unsupported: The reason for which the entry cannot be run; empty where it can.
    """

    location: str
    policy: str
    rule: str
    objects: tuple[ObjectName, ...] = ()
    operation: str = ""
    result: str
    patched: tuple[str, ...] = ()
    demands_all: bool = False
    unsupported: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalEntry:
    """The data of a GlobalContextEntry.

    Attributes:
        location: The place in the test file.
        data: The data, unless it comes from files.
        files: Files with objects that are the data; None where ``data`` is given.
        field_path: A JMESPath that selects a part of the data, or empty.
        projections: JMESPath expressions of the projections, by name.
    """

    location: str
    name: str
    data: Any
    files: tuple[str, ...] | None
    field_path: str
    projections: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TestFile:
    """One document of a test file.

    Attributes:
        path: The test file; names in it are relative to its folder.
        values: Inline values, which take precedence over the file of ``variables``.
        calls: Responses of API and service calls, as written.
    """

    __test__ = False

    path: Path
    name: str
    files: Mapping[str, tuple[str, ...]]
    variables: str
    values: Any
    user: str
    calls: tuple[Any, ...]
    entries: tuple[GlobalEntry, ...]
    expected: tuple[Expected, ...]


def find(names: Iterable[str], file_names: Sequence[str]) -> list[Path]:
    """Return the test files below folders; a named file counts as a test file.

    Raises:
        InvalidSetting: A name is empty, or a folder does not exist.
    """
    found: list[Path] = []
    for name in names:
        path = named(name)
        if not path.exists():
            raise InvalidSetting(f"{path}: there is no such folder")
        if not path.is_dir():
            found.append(path)
            continue
        found += sorted(file for name in file_names for file in path.rglob(name))
    return list(dict.fromkeys(found))


def read_tests(path: Path) -> list[TestFile | HookTest]:
    """Return the tests of a file.

    Raises:
        InvalidSetting: The file cannot be read, or a field is unknown or has the wrong type.
    """
    try:
        found = [_test(item, path) for item in parse_documents(read(path), str(path))]
    except InvalidPolicy as error:
        raise InvalidSetting(str(error)) from error
    if not found:
        raise InvalidSetting(f"{path}: no test found")
    return found


def _test(document: Document, path: Path) -> TestFile | HookTest:
    place = document.place
    if is_hook_test(document.value):
        return read_hook_test(document.value, place, path)
    _check_head(document.value, place)
    fields = read_fields(document.value, place, allowed=_FIELDS)
    return TestFile(
        path=path,
        name=_name(fields, place),
        files={name: reading.strings(fields.get(name), f"{place}: {name}") for name in _FILES},
        variables=read_text(fields, "variables", place),
        values=fields.get("values"),
        user=read_text(fields, "userinfo", place),
        calls=tuple(
            reading.sequence(fields.get("apiCallResponses"), f"{place}: apiCallResponses")
        ),
        entries=reading.each(
            _entry, fields.get("globalContextEntries"), f"{place}: globalContextEntries"
        ),
        expected=(
            *reading.each(_expected, fields.get("results"), f"{place}: results"),
            *reading.each(_unsupported, fields.get("checks"), f"{place}: checks"),
        ),
    )


def _check_head(raw: Any, place: str) -> None:
    # Before the fields: all of another kind are unknown.
    head = {name.lower(): value for name, value in reading.object_at(raw, place).items()}
    api_version, kind = head.get("apiversion"), head.get("kind")
    if kind != "Test" or "kyverno.io/" not in str(api_version):
        raise InvalidSetting(
            f"{place}: expected apiVersion cli.kyverno.io/v1alpha1 and kind Test,"
            f" found {api_version or 'none'} and {kind or 'none'}"
        )


def _name(fields: Mapping[str, Any], place: str) -> str:
    meta = reading.object_at(fields.get("metadata"), f"{place}: metadata")
    return read_text(meta, "name", f"{place}: metadata") or read_text(fields, "name", place)


def _entry(raw: Any, place: str) -> GlobalEntry:
    fields = read_fields(raw, place, allowed=("name", *_SOURCES, "fieldPath", "projections"))
    given = [source for source in _SOURCES if fields.get(source) is not None]
    if len(given) != 1:
        found = f"found {' and '.join(given)}" if given else "found none"
        raise InvalidSetting(f"{place}: expected one of {', '.join(_SOURCES)}, {found}")
    (source,) = given
    if source != "data":
        reading.sequence(fields[source], f"{place}.{source}")
    files = f"{place}.resourceFiles"
    return GlobalEntry(
        location=place,
        name=reading.string(fields.get("name"), f"{place}.name"),
        data=fields[source],
        files=reading.strings(fields[source], files) if source == "resourceFiles" else None,
        field_path=read_text(fields, "fieldPath", place),
        projections=_projections(fields.get("projections"), f"{place}.projections"),
    )


def _projections(raw: Any, place: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for index, item in enumerate(reading.sequence(raw, place)):
        where = f"{place}[{index}]"
        fields = read_fields(item, where, allowed=("name", "path"))
        name = reading.string(fields.get("name"), f"{where}.name")
        if name in found:
            raise InvalidSetting(f"{where}.name: there are two projections {name}")
        found[name] = read_text(fields, "path", where)
        if not found[name]:
            raise InvalidSetting(f"{where}.path: expected a JMESPath expression")
    return found


def _expected(raw: Any, place: str) -> Expected:
    fields = read_fields(raw, place, allowed=(*_ROW_FIELDS, *_FOREIGN_ROW_FIELDS))
    result = fields.get("result")
    if result not in RESULTS:
        raise InvalidSetting(f"{place}.result: expected one of {', '.join(RESULTS)}")
    operation = read_text(fields, "operation", place)
    if operation not in ("", "CREATE", "UPDATE", "DELETE"):
        raise InvalidSetting(f"{place}.operation: expected CREATE, UPDATE or DELETE")
    policy = reading.string(fields.get("policy"), f"{place}.policy")
    return Expected(
        location=place,
        policy=policy.rpartition("/")[2],
        rule=read_text(fields, "rule", place),
        objects=_objects(fields, place),
        operation=operation,
        result=str(result),
        patched=_files(fields, "patchedResources", place),
        demands_all=_flag(fields, "failOnMissingResources", place),
    )


def _unsupported(_check: Any, place: str) -> Expected:
    name = place.rpartition(" ")[2]
    return Expected(location=place, policy=name, rule="", result="", unsupported=_CHECKS)


def _objects(fields: Mapping[str, Any], place: str) -> tuple[ObjectName, ...]:
    names = reading.strings(fields.get("resources"), f"{place}.resources")
    specs = reading.each(_spec, fields.get("resourceSpecs"), f"{place}.resourceSpecs")
    return (*map(_split, names), *specs)


def _spec(raw: Any, place: str) -> ObjectName:
    fields = read_fields(raw, place, allowed=_SPEC_FIELDS)
    parts = {name: read_text(fields, name, place) for name in _SPEC_FIELDS}
    return ObjectName(name=parts["name"], namespace=parts["namespace"], kind=parts["kind"])


def _flag(fields: Mapping[str, Any], name: str, place: str) -> bool:
    value = fields.get(name)
    if not isinstance(value, bool | None):
        raise InvalidSetting(f"{place}.{name}: expected true or false")
    return bool(value)


def _split(text: str) -> ObjectName:
    namespace, _, name = text.rpartition("/")
    return ObjectName(name=name, namespace=namespace)


def _files(fields: Mapping[str, Any], name: str, place: str) -> tuple[str, ...]:
    value = fields.get(name)
    if not isinstance(value, str | list | None):
        raise InvalidSetting(f"{place}.{name}: expected a file or a list of files")
    listed = [value] if isinstance(value, str) else value
    return tuple(filter(None, reading.strings(listed, f"{place}.{name}")))
