"""Operations on objects that a hook answers, as documents of YAML or JSON.

All documents are validated before the first is carried out. An object or patch given as text, or a
jq program, is only parsed when its operation is carried out, which then fails alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from reconciler.api.meta import Object
from reconciler.engine.reading import kind_of
from reconciler.errors import ErrorList, Invalid, InvalidPolicy, read_each
from reconciler.hooks.bindings import SECRETS
from reconciler.hooks.programs import check_program
from reconciler.hooks.values import json_values
from reconciler.languages import goyaml
from reconciler.languages.jmespath import braces
from reconciler.languages.jmespath.yamltext import decode_documents

_MAX_DEPTH: Final = 200
_STATUS: Final = "status"
_METADATA: Final = "metadata"
# Boolean fields accept the words of YAML 1.1 as well.
_WORDS: Final = {
    **dict.fromkeys(("y", "Y", "yes", "on"), True),
    **dict.fromkeys(("n", "N", "no", "off"), False),
}


class OperationType(StrEnum):
    """The type of an operation."""

    CREATE = "Create"
    CREATE_OR_UPDATE = "CreateOrUpdate"
    CREATE_IF_NOT_EXISTS = "CreateIfNotExists"
    DELETE = "Delete"
    DELETE_IN_BACKGROUND = "DeleteInBackground"
    DELETE_NON_CASCADING = "DeleteNonCascading"
    JQ_PATCH = "JQPatch"
    MERGE_PATCH = "MergePatch"
    JSON_PATCH = "JSONPatch"


OBJECTS: Final = frozenset(
    {OperationType.CREATE, OperationType.CREATE_OR_UPDATE, OperationType.CREATE_IF_NOT_EXISTS}
)
"""The types whose payload is a whole object."""
_PAYLOADS: Final = {
    OperationType.JQ_PATCH: "jqFilter",
    OperationType.MERGE_PATCH: "mergePatch",
    OperationType.JSON_PATCH: "jsonPatch",
}
_TEXTS: Final = ("apiVersion", "kind", "namespace", "name", "subresource")
_FLAGS: Final = ("ignoreMissingObject", "ignoreHookError")
_FIELDS: Final = frozenset({"operation", "object", *_TEXTS, *_FLAGS, *_PAYLOADS.values()})


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation on an object.

    Attributes:
        api_version: Empty for the preferred version of the kind.
        kind: A kind, a plural or a short name, in any case.
        namespace: Empty for a cluster-scoped object.
        subresource: For a patch; without slashes.
        payload: The object, patch or program; a text if its author wrote one.
        ignore_missing: A missing object is not a failure.
        ignore_hook_error: A patch of the status is carried out even if the hook failed.
        after_secrets: The run that answered it may have read a Secret.
    """

    type: OperationType
    location: str
    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    payload: Any = None
    ignore_missing: bool = False
    ignore_hook_error: bool = False
    after_secrets: bool = False

    @property
    def is_confidential(self) -> bool:
        """Return whether it may hold data of a Secret; an object given as text always may."""
        if self.after_secrets:
            return True
        kind = self.kind
        if isinstance(self.payload, Mapping):
            kind = kind or str(self.payload.get("kind", ""))
        elif self.type in OBJECTS:
            return True
        return kind.lower() in SECRETS

    def object(self) -> Object:
        """Return the object to create.

        Raises:
            Invalid: It is given as text that is not an object.
        """
        found = self._decoded("object")
        if not isinstance(found, dict):
            raise Invalid(f"{self.location}.object: expected an object, got {kind_of(found)}")
        return found

    def patch(self) -> Any:
        """Return the merge patch or JSON patch.

        Raises:
            Invalid: It is given as text that is not such a patch.
        """
        name = _PAYLOADS[self.type]
        found = self._decoded(name)
        expected = list if self.type is OperationType.JSON_PATCH else dict
        if not isinstance(found, expected):
            wanted = "a list" if expected is list else "an object"
            raise Invalid(f"{self.location}.{name}: expected {wanted}, got {kind_of(found)}")
        return found

    def _decoded(self, name: str) -> Any:
        if not isinstance(self.payload, str):
            return self.payload
        try:
            return goyaml.parse(self.payload)
        except goyaml.YAMLError as error:
            raise Invalid(f"{self.location}.{name}: {error}") from error


def decode_operations(text: str) -> list[Any]:
    """Return the raw documents of a text; none if it is empty.

    Raises:
        InvalidPolicy: It is neither YAML nor JSON.
    """
    try:
        return _documents(text)
    except ValueError as error:
        raise InvalidPolicy("operations", str(error)) from error


def read_operations(documents: Sequence[Any]) -> tuple[Operation, ...]:
    """Parse all operations.

    Raises:
        InvalidPolicy: Some are invalid, so none may be carried out; lists all locations.
    """
    return read_each(_operation, documents, "operations")


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenTarget:
    """The target of an operation with variables, each part as its author wrote it.

    Attributes:
        api_version: None, as are the other parts, if the object is given as text.
    """

    api_version: Any = None
    kind: Any = None
    namespace: Any = None
    name: Any = None


def written_target(raw: Mapping[str, Any]) -> WrittenTarget:
    """Return the target of an operation as written, with empty texts for omitted parts."""
    holder: Any = raw
    place: Any = raw
    if raw.get("operation") in OBJECTS:
        holder = raw.get("object") or {}
        if not isinstance(holder, Mapping):
            return WrittenTarget()
        place = holder.get("metadata") or {}
    if not isinstance(place, Mapping):
        place = {}
    return WrittenTarget(
        api_version=holder.get("apiVersion") or "",
        kind=holder.get("kind") or "",
        namespace=place.get("namespace") or "",
        name=place.get("name") or "",
    )


def is_plain(value: Any) -> bool:
    """Return whether a part of an operation is a text without variables."""
    return isinstance(value, str) and not braces.contains(value)


def patched_metadata(
    operation: OperationType, patch: Any, fields: frozenset[str]
) -> frozenset[str]:
    """Return which of some metadata fields a merge patch or JSON patch writes.

    Paths with variables are not resolved: only a run determines them.
    """
    if operation is OperationType.MERGE_PATCH and isinstance(patch, Mapping):
        meta = patch.get("metadata", {})
        return fields & meta.keys() if isinstance(meta, Mapping) else fields
    if operation is not OperationType.JSON_PATCH or not isinstance(patch, list):
        return frozenset()
    steps = (_stepped(step, fields) for step in patch if isinstance(step, Mapping))
    return frozenset[str]().union(*steps)


def _stepped(step: Mapping[str, Any], fields: frozenset[str]) -> frozenset[str]:
    written = [step.get("path")] if step.get("op") != "test" else []
    if step.get("op") == "move":
        written.append(step.get("from"))
    found: frozenset[str] = frozenset()
    for pointer in written:
        # The API server ignores the text before the first slash.
        names = pointer.split("/")[1:] if isinstance(pointer, str) else []
        if names[:1] in ([], [_METADATA]):
            found |= fields & frozenset(names[1:2]) if names[1:] else fields
    return found


def check_template(raw: Mapping[str, Any], location: str) -> None:
    """Refuse an operation that no run can carry out, whatever the values of its variables.

    Raises:
        InvalidPolicy: It has errors; lists all locations.
    """
    with ErrorList() as errors:
        for name in sorted(raw.keys() - _FIELDS):
            reason = f"unknown field, expected one of {', '.join(sorted(_FIELDS))}"
            errors.add(InvalidPolicy(f"{location}.{name}", reason))
        settled = {
            name: value
            for name, value in raw.items()
            if name not in _FLAGS or not isinstance(value, str) or is_plain(value)
        }
        operation = errors.attempt(_operation, settled, location)
        payload = None if operation is None else operation.payload
        if operation is not None and (not isinstance(payload, str) or is_plain(payload)):
            errors.attempt(_check_payload, operation)


def _check_payload(operation: Operation) -> None:
    """Check the literal parts of an object, patch or program."""
    if operation.type is OperationType.JQ_PATCH:
        check_program(operation.payload, location=f"{operation.location}.jqFilter")
        return
    if operation.payload is None:
        return
    try:
        written = operation.object() if operation.type in OBJECTS else operation.patch()
    except Invalid as error:
        place, _, reason = str(error).partition(": ")
        raise InvalidPolicy(place, reason) from error
    if operation.type in OBJECTS:
        with ErrorList() as errors:
            for name in ("apiVersion", "kind"):
                if not written.get(name):
                    place = f"{operation.location}.object.{name}"
                    errors.add(InvalidPolicy(place, "is required"))


def after_failure(operations: Sequence[Operation]) -> tuple[Operation, ...]:
    """Return the operations to carry out after a failed run: patches of a status, if marked."""
    return tuple(
        operation
        for operation in operations
        if operation.ignore_hook_error
        and operation.subresource == _STATUS
        and operation.type in _PAYLOADS
    )


def _documents(text: str) -> list[Any]:
    """Return the documents of consecutive JSON texts, or of YAML.

    JSON with a number as a name is parsed as YAML, as in the original, which makes it a text.
    """
    try:
        found = list(json_values(text, _FIELDS))
    except (ValueError, RecursionError):
        found = [None]
    if all(isinstance(value, Mapping) and _has_texts(value) for value in found):
        return found
    return decode_documents(text, depth=_MAX_DEPTH, texts=(*_TEXTS, "operation", "jqFilter"))


def _has_texts(document: Mapping[str, Any]) -> bool:
    return all(isinstance(document.get(name), str | None) for name in (*_TEXTS, "jqFilter"))


def _operation(raw: Any, location: str) -> Operation:
    if not isinstance(raw, Mapping):
        reason = f"expected an object, got {kind_of(raw)}"
        if raw is None:
            reason = "is empty: remove the --- before it, or write an operation"
        raise InvalidPolicy(location, reason)
    if raw.get("operation") not in list(OperationType):
        known = ", ".join(OperationType)
        reason = f"{raw.get('operation')!r:.80} is not known, use one of {known}"
        raise InvalidPolicy(f"{location}.operation", reason)
    kind = OperationType(raw["operation"])
    with ErrorList() as errors:
        texts = {
            name: errors.attempt(_text, raw.get(name), f"{location}.{name}") or ""
            for name in _TEXTS
        }
        flags = {
            name: errors.attempt(_flag, raw.get(name), f"{location}.{name}") or False
            for name in _FLAGS
        }
        if kind not in OBJECTS:
            for name in ("kind", "name"):
                if not texts[name]:
                    errors.add(InvalidPolicy(f"{location}.{name}", "is required"))
        payload = errors.attempt(_payload, kind, raw, location)
    return Operation(
        type=kind,
        location=location,
        api_version=texts["apiVersion"],
        kind=texts["kind"],
        namespace=texts["namespace"],
        name=texts["name"],
        subresource=texts["subresource"].strip("/"),
        payload=payload,
        ignore_missing=flags["ignoreMissingObject"],
        ignore_hook_error=flags["ignoreHookError"],
    )


def _text(raw: Any, location: str) -> str:
    if raw is None:
        return ""
    # A program may number objects and use the number as the name.
    if isinstance(raw, int) and not isinstance(raw, bool):
        return str(raw)
    if not isinstance(raw, str):
        raise InvalidPolicy(location, f"expected a string, got {kind_of(raw)}")
    return raw


def _flag(raw: Any, location: str) -> bool:
    flag = _WORDS.get(raw) if isinstance(raw, str) else raw
    if raw is not None and not isinstance(flag, bool):
        raise InvalidPolicy(location, f"expected true or false, got {kind_of(raw)}")
    return bool(flag)


def _payload(kind: OperationType, raw: Mapping[str, Any], location: str) -> Any:
    name = "object" if kind in OBJECTS else _PAYLOADS.get(kind, "")
    if not name:
        return None
    value, place = raw.get(name), f"{location}.{name}"
    if not value:
        raise InvalidPolicy(place, "is required and must not be empty")
    if isinstance(value, str):
        return value
    if kind is OperationType.JSON_PATCH:
        _check_list(value, place)
    elif kind is OperationType.JQ_PATCH or not isinstance(value, Mapping):
        wanted = "a string" if kind is OperationType.JQ_PATCH else "an object or a string"
        raise InvalidPolicy(place, f"expected {wanted}, got {kind_of(value)}")
    return value


def _check_list(value: Any, location: str) -> None:
    """Check the first step only, as the original does; the API server checks the others."""
    if not isinstance(value, list):
        raise InvalidPolicy(location, f"expected a list or a string, got {kind_of(value)}")
    first = value[0]
    if isinstance(first, str) and not is_plain(first):
        return
    if not isinstance(first, Mapping):
        raise InvalidPolicy(f"{location}[0]", f"expected an object, got {kind_of(first)}")
    for name in ("op", "path"):
        if not isinstance(first.get(name), str) or not first[name]:
            raise InvalidPolicy(f"{location}[0].{name}", "is required")
    if "value" not in first:
        raise InvalidPolicy(f"{location}[0].value", 'is required for every op: write value: ""')
