"""Carries out the operations of a hook, in their order.

A failing operation does not stop those after it, as in the original, except while the API server
is unavailable: see `running`. A write that depends on a read is guarded by the resourceVersion,
and computed again if the object has changed meanwhile.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any, Final

from reconciler.api.meta import Kind, Object
from reconciler.api.updaterequest import Outcome
from reconciler.engine.patch.diff import equal
from reconciler.engine.reading import kind_of
from reconciler.errors import (
    AlreadyExists,
    Conflict,
    Denied,
    EvaluationError,
    Forbidden,
    Invalid,
    NoKindMatch,
    NotFound,
    RetrofitError,
)
from reconciler.hooks.operations import OBJECTS, Operation, OperationType, patched_metadata
from reconciler.hooks.programs import check_program
from reconciler.hooks.values import result_of, to_input
from reconciler.services.catalog.protection import Protection
from reconciler.services.ports.jq import Jq
from reconciler.services.ports.objects import Kinds, Operations, Propagation, Reader, Writer

_TRIES: Final = 5
_PROPAGATION: Final = {
    OperationType.DELETE: Propagation.FOREGROUND,
    OperationType.DELETE_IN_BACKGROUND: Propagation.BACKGROUND,
    OperationType.DELETE_NON_CASCADING: Propagation.ORPHAN,
}
_OUTCOMES: Final = (
    (Conflict, Outcome.CONFLICT),
    (Forbidden, Outcome.FORBIDDEN),
    (Invalid, Outcome.INVALID),
    (Denied, Outcome.DENIED),
)
_NAMES: Final = ("name", "namespace")
# Metadata that the API server sets; a hook may have copied it from an object that it read.
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
    """How an operation ended; without an error it is done or was not needed."""

    operation: Operation
    outcome: Outcome
    error: RetrofitError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationRunner:
    """Carries out operations.

    Attributes:
        protection: Objects that are not changed whatever rights are granted; None if the granted
            rights alone decide.
        confined_to: The namespace that no operation leaves, and the default of those that name
            none; empty for no limit.
    """

    kinds: Kinds
    reader: Reader
    writer: Writer
    operations: Operations
    jq: Jq
    protection: Protection | None = None
    confined_to: str = ""

    async def run(self, operations: Sequence[Operation]) -> list[OperationResult]:
        """Carry out operations, one after the other."""
        return [await self.carry_out(operation) for operation in operations]

    async def carry_out(self, operation: Operation, *, uncertain: bool = False) -> OperationResult:
        """Carry out one operation.

        Args:
            uncertain: It may have been done before, so that an existing object is taken for the
                one that it was to create.
        """
        try:
            outcome = await self._run(self._placed(operation))
        except NotFound as error:
            if operation.ignore_missing or operation.type in _PROPAGATION:
                return OperationResult(operation=operation, outcome=Outcome.UNCHANGED)
            return OperationResult(operation=operation, outcome=Outcome.NOT_FOUND, error=error)
        except AlreadyExists as error:
            if uncertain:
                return OperationResult(operation=operation, outcome=Outcome.CREATED)
            return OperationResult(operation=operation, outcome=Outcome.CONFLICT, error=error)
        except RetrofitError as error:
            return OperationResult(operation=operation, outcome=_outcome(error), error=error)
        return OperationResult(operation=operation, outcome=outcome)

    def _placed(self, operation: Operation) -> Operation:
        """Return an operation with the namespace that it is confined to, if it names none."""
        if not self.confined_to or operation.namespace or operation.type in OBJECTS:
            return operation
        return replace(operation, namespace=self.confined_to)

    async def _run(self, operation: Operation) -> Outcome:
        match operation.type:
            case OperationType.CREATE:
                return await self._create(self._located(operation.object()))
            case OperationType.CREATE_IF_NOT_EXISTS:
                return await self._create_if_absent(self._located(operation.object()))
            case OperationType.CREATE_OR_UPDATE:
                return await self._create_or_update(self._located(operation.object()))
            case OperationType.JQ_PATCH:
                return await self._jq_patch(operation)
            case OperationType.MERGE_PATCH | OperationType.JSON_PATCH:
                merges = operation.type is OperationType.MERGE_PATCH
                send = self.operations.merge_patch if merges else self.operations.json_patch
                kind = await self._target(operation)
                await send(kind, operation.namespace, operation.name, self._patch(operation))
                return Outcome.PATCHED
            case _:
                kind = await self._target(replace(operation, subresource=""))
                await self.operations.delete(
                    kind, operation.namespace, operation.name, _PROPAGATION[operation.type]
                )
                return Outcome.DELETED

    def _patch(self, operation: Operation) -> Any:
        """Return the patch, after a check that it writes no guarded metadata."""
        patch = operation.patch()
        fields = patched_metadata(operation.type, patch, self._guarded)
        self._check_fields(fields, operation.location)
        return patch

    @property
    def _guarded(self) -> frozenset[str]:
        return frozenset() if self.protection is None else self.protection.guarded

    def _check_fields(self, fields: Iterable[str], location: str) -> None:
        if self.protection is not None and (first := min(fields, default="")):
            raise Invalid(f"{location}: {self.protection.of_field(first)}")

    async def _create(self, obj: Object) -> Outcome:
        kind = await self._kind_of(obj)
        meta = {
            name: value
            for name, value in (obj.get("metadata") or {}).items()
            if name not in _SERVERS_OWN or name in _NAMES
        }
        await self.operations.create(kind, {**obj, "metadata": meta})
        return Outcome.CREATED

    async def _create_if_absent(self, obj: Object) -> Outcome:
        try:
            return await self._create(obj)
        except AlreadyExists:
            return Outcome.UNCHANGED

    async def _create_or_update(self, obj: Object) -> Outcome:
        try:
            return await self._create(obj)
        except AlreadyExists:
            kind = await self._kind_of(obj)
            return await self._change(kind, *_place(obj), _replacing(obj, self._guarded))

    def _located(self, obj: Object) -> Object:
        """Return an object with the namespace that it is confined to, if it names none."""
        meta = obj.get("metadata")
        if not self.confined_to or not isinstance(meta, Mapping) or meta.get("namespace"):
            return obj
        return {**obj, "metadata": {**meta, "namespace": self.confined_to}}

    async def _jq_patch(self, operation: Operation) -> Outcome:
        location = f"{operation.location}.jqFilter"
        check_program(operation.payload, location=location)

        async def filtered(before: Object) -> Object:
            (found,) = await self.jq.evaluate(operation.payload, [before])
            if isinstance(found, EvaluationError):
                raise found
            after = result_of(found)
            if not isinstance(after, dict) or not after.get("kind"):
                what = "an object without kind" if isinstance(after, dict) else kind_of(after)
                raise EvaluationError(f"{location}: returns {what} instead of the changed object")
            exact: Object = _exact(before, after)
            return exact

        kind = await self._target(operation)
        return await self._change(kind, operation.namespace, operation.name, filtered)

    async def _change(
        self, kind: Kind, namespace: str, name: str, decide: Callable[[Object], Awaitable[Object]]
    ) -> Outcome:
        """Read, compute and write, with retries if the object changes in between."""
        for left in reversed(range(_TRIES)):
            before = await self.reader.get(replace(kind, subresource=""), namespace, name)
            after = await decide(before)
            if equal(before, after):
                return Outcome.UNCHANGED
            self._check_fields(_changed_metadata(before, after, self._guarded), "object")
            try:
                await self.writer.change(kind, before, after)
            except Conflict:
                if not left:
                    raise
            else:
                return Outcome.PATCHED
        return Outcome.UNCHANGED

    async def _target(self, operation: Operation) -> Kind:
        kind = await self._kind(operation.api_version, operation.kind, operation.location)
        if kind.namespaced and not operation.namespace:
            raise Invalid(f"{operation.location}.namespace: is required for {kind.kind}")
        self._check(kind, operation.namespace, f"{operation.location}.namespace")
        return replace(kind, subresource=operation.subresource)

    async def _kind_of(self, obj: Object) -> Kind:
        kind = await self._kind(str(obj.get("apiVersion", "")), str(obj.get("kind", "")), "object")
        if kind.namespaced and not _place(obj)[0]:
            raise Invalid(f"object.metadata.namespace: is required for {kind.kind}")
        self._check(kind, _place(obj)[0], "object.metadata.namespace")
        return kind

    def _check(self, kind: Kind, namespace: str, location: str) -> None:
        """Refuse a target that is out of bounds for this hook, whatever rights it has."""
        if self.confined_to and (not kind.namespaced or namespace != self.confined_to):
            what = f"namespace {namespace}" if kind.namespaced else f"cluster-scoped {kind.kind}"
            stays = (
                f"a Hook cannot act outside its namespace {self.confined_to}: use a ClusterHook"
            )
            # The requested namespace may be computed from data of a Secret.
            raise Invalid(f"{location}: {what}: {stays}").bare(f"{location}: {stays}")
        if self.protection is not None and (reason := self.protection.of_target(kind, namespace)):
            raise Invalid(f"{location}: {reason}")

    async def _kind(self, api_version: str, name: str, location: str) -> Kind:
        kind = await self.kinds.named(api_version, name)
        if kind is None:
            where = f" in {api_version}" if api_version else ""
            raise NoKindMatch(f"{location}.kind: the cluster serves no {name!r}{where}")
        return kind


def _outcome(error: RetrofitError) -> Outcome:
    return next((found for kind, found in _OUTCOMES if isinstance(error, kind)), Outcome.FAILED)


def _place(obj: Object) -> tuple[str, str]:
    meta = obj.get("metadata")
    if not isinstance(meta, Mapping):
        return "", ""
    return str(meta.get("namespace") or ""), str(meta.get("name") or "")


def _replacing(wanted: Object, guarded: AbstractSet[str]) -> Callable[[Object], Awaitable[Object]]:
    """Return a function that turns a stored object into the wanted one, as a PUT would.

    Args:
        guarded: Fields of the metadata that are kept if the wanted object lacks them.
    """

    async def replaced(before: Object) -> Object:
        old, new = before.get("metadata") or {}, wanted.get("metadata") or {}
        kept = {name: old[name] for name in _SERVERS_OWN if name in old}
        stays = {name: old[name] for name in guarded if name in old}
        rest = {name: value for name, value in new.items() if name not in _SERVERS_OWN}
        status = {"status": before["status"]} if "status" in before else {}
        return {**status, **wanted, "metadata": {**stays, **rest, **kept}}

    return replaced


def _changed_metadata(before: Object, after: Object, fields: frozenset[str]) -> frozenset[str]:
    old, new = before.get("metadata") or {}, after.get("metadata") or {}
    return frozenset(field for field in fields if not equal(old.get(field), new.get(field)))


def _exact(before: Any, after: Any) -> Any:
    """Return a result with the original numbers where the program did not change them.

    The program reads numbers as float64, which loses digits of large ones.
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
