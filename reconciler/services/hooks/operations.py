"""The operations of a hook, carried out in their order.

One that fails does not stop those after it, as in the original. What rests on a read is written
with a guard, and decided again where the object has changed meanwhile.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from reconciler.api.meta import Kind, Object
from reconciler.engine.patch.diff import equal
from reconciler.engine.reading import kind_of
from reconciler.errors import (
    AlreadyExists,
    Conflict,
    EvaluationError,
    Invalid,
    NoKindMatch,
    NotFound,
    RetrofitError,
)
from reconciler.hooks.operations import Operation, OperationType
from reconciler.hooks.programs import check_program
from reconciler.hooks.values import result_of, to_input
from reconciler.services.ports.jq import Jq
from reconciler.services.ports.objects import Kinds, Operations, Propagation, Reader, Writer

_TRIES: Final = 5
_PROPAGATION: Final = {
    OperationType.DELETE: Propagation.FOREGROUND,
    OperationType.DELETE_IN_BACKGROUND: Propagation.BACKGROUND,
    OperationType.DELETE_NON_CASCADING: Propagation.ORPHAN,
}
_NAMES: Final = ("name", "namespace")
# What the API server says of an object, whatever a hook took over from one that it read.
_SERVERS_OWN: Final = (
    *_NAMES,
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "selfLink",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationResult:
    """How an operation ended; without an error it is done, or there was nothing to do."""

    operation: Operation
    error: RetrofitError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationRunner:
    """Carries operations out."""

    kinds: Kinds
    reader: Reader
    writer: Writer
    operations: Operations
    jq: Jq

    async def run(self, operations: Sequence[Operation]) -> list[OperationResult]:
        """Carry operations out, each after the one before it has ended."""
        return [await self._result(operation) for operation in operations]

    async def _result(self, operation: Operation) -> OperationResult:
        try:
            await self._run(operation)
        except NotFound as error:
            if operation.ignore_missing or operation.type in _PROPAGATION:
                return OperationResult(operation=operation)
            return OperationResult(operation=operation, error=error)
        except RetrofitError as error:
            return OperationResult(operation=operation, error=error)
        return OperationResult(operation=operation)

    async def _run(self, operation: Operation) -> None:
        match operation.type:
            case OperationType.CREATE:
                await self._create(operation.object())
            case OperationType.CREATE_IF_NOT_EXISTS:
                await self._create_if_absent(operation.object())
            case OperationType.CREATE_OR_UPDATE:
                await self._create_or_update(operation.object())
            case OperationType.JQ_PATCH:
                await self._jq_patch(operation)
            case OperationType.MERGE_PATCH:
                kind = await self._target(operation)
                at = operation.namespace, operation.name
                await self.operations.merge_patch(kind, *at, operation.patch())
            case OperationType.JSON_PATCH:
                kind = await self._target(operation)
                at = operation.namespace, operation.name
                await self.operations.json_patch(kind, *at, operation.patch())
            case _:
                kind = await self._target(replace(operation, subresource=""))
                propagation = _PROPAGATION[operation.type]
                at = operation.namespace, operation.name
                await self.operations.delete(kind, *at, propagation)

    async def _create(self, obj: Object) -> None:
        kind = await self._kind_of(obj)
        meta = {
            name: value
            for name, value in (obj.get("metadata") or {}).items()
            if name not in _SERVERS_OWN or name in _NAMES
        }
        await self.operations.create(kind, {**obj, "metadata": meta})

    async def _create_if_absent(self, obj: Object) -> None:
        try:
            await self._create(obj)
        except AlreadyExists:
            return

    async def _create_or_update(self, obj: Object) -> None:
        try:
            await self._create(obj)
        except AlreadyExists:
            kind = await self._kind_of(obj)
            await self._change(kind, *_place(obj), _replacing(obj))

    async def _jq_patch(self, operation: Operation) -> None:
        location = f"{operation.location}.jqFilter"
        check_program(operation.payload, location=location)

        async def filtered(before: Object) -> Object:
            (found,) = await self.jq.evaluate(operation.payload, [before])
            if isinstance(found, EvaluationError):
                raise found
            after = result_of(found)
            if not isinstance(after, dict) or not after.get("kind"):
                what = "an object without kind" if isinstance(after, dict) else kind_of(after)
                raise EvaluationError(f"{location}: gives {what}, not the changed object")
            exact: Object = _exact(before, after)
            return exact

        kind = await self._target(operation)
        await self._change(kind, operation.namespace, operation.name, filtered)

    async def _change(
        self, kind: Kind, namespace: str, name: str, decide: Callable[[Object], Awaitable[Object]]
    ) -> None:
        """Read, decide and write, again where the object changed in between."""
        for left in reversed(range(_TRIES)):
            before = await self.reader.get(replace(kind, subresource=""), namespace, name)
            after = await decide(before)
            if equal(before, after):
                return
            try:
                await self.writer.change(kind, before, after)
            except Conflict:
                if not left:
                    raise
            else:
                return

    async def _target(self, operation: Operation) -> Kind:
        kind = await self._kind(operation.api_version, operation.kind, operation.location)
        if kind.namespaced and not operation.namespace:
            raise Invalid(f"{operation.location}.namespace: {kind.kind} needs one")
        return replace(kind, subresource=operation.subresource)

    async def _kind_of(self, obj: Object) -> Kind:
        kind = await self._kind(str(obj.get("apiVersion", "")), str(obj.get("kind", "")), "object")
        if kind.namespaced and not _place(obj)[0]:
            raise Invalid(f"object.metadata.namespace: {kind.kind} needs one")
        return kind

    async def _kind(self, api_version: str, name: str, location: str) -> Kind:
        kind = await self.kinds.named(api_version, name)
        if kind is None:
            where = f" in {api_version}" if api_version else ""
            raise NoKindMatch(f"{location}.kind: the cluster serves no {name!r}{where}")
        return kind


def _place(obj: Object) -> tuple[str, str]:
    meta = obj.get("metadata")
    if not isinstance(meta, Mapping):
        return "", ""
    return str(meta.get("namespace") or ""), str(meta.get("name") or "")


def _replacing(wanted: Object) -> Callable[[Object], Awaitable[Object]]:
    """Return what makes of a stored object the wanted one, as a PUT of it would."""

    async def replaced(before: Object) -> Object:
        old = before.get("metadata") or {}
        kept = {name: old[name] for name in _SERVERS_OWN if name in old}
        rest = {
            name: value
            for name, value in (wanted.get("metadata") or {}).items()
            if name not in _SERVERS_OWN
        }
        status = {"status": before["status"]} if "status" in before else {}
        return {**status, **wanted, "metadata": {**rest, **kept}}

    return replaced


def _exact(before: Any, after: Any) -> Any:
    """Return a result with the numbers of the object where the program left them as they were.

    It saw them as float64, which large ones are not.
    """
    if isinstance(before, dict) and isinstance(after, dict):
        return {
            key: _exact(before[key], value) if key in before else value
            for key, value in after.items()
        }
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return [_exact(old, new) for old, new in zip(before, after, strict=True)]
    numbers = isinstance(before, int | float) and isinstance(after, int | float)
    return before if numbers and equal(to_input(before), after) else after
