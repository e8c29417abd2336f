"""The effects of the operations of a hook on the objects of files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from reconciler.api.meta import Kind, Object
from reconciler.cli.desk.file_objects import FileObjects
from reconciler.errors import NoKindMatch, NotFound, RetrofitError
from reconciler.hooks.operations import Operation
from reconciler.memory.operations import MemoryOperations
from reconciler.services.catalog.protection import Protection
from reconciler.services.hooks.operations import OperationRunner
from reconciler.services.ports.jq import Jq

SERVERS_OWN: Final = ("uid", "resourceVersion", "generation", "creationTimestamp")
"""Metadata fields that the API server sets; the in-memory cluster sets them as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """The effect of one operation, carried out in memory; None is an object that is not there."""

    operation: Operation
    target: str
    before: Object | None = None
    after: Object | None = None
    error: str = ""


async def effects_of(
    operations: Sequence[Operation],
    file_objects: FileObjects,
    jq: Jq,
    *,
    confined_to: str = "",
    guard: Protection | None = None,
) -> list[Effect]:
    """Carry out operations in order, each on the result of those before it.

    Args:
        file_objects: The existing objects, which are modified.
        confined_to: The only namespace that a declared hook may change; empty for any.
        guard: The objects that a declared hook may not change; None for an executable.
    """
    cluster = file_objects.cluster
    made = MemoryOperations(cluster)
    runner = OperationRunner(
        kinds=cluster,
        reader=cluster,
        writer=cluster,
        operations=made,
        jq=jq,
        confined_to=confined_to,
        protection=guard,
    )
    found: list[Effect] = []
    for operation in operations:
        api_version, name, namespace, called = _address(operation)
        kind = await cluster.named(api_version, name)
        if kind is not None and kind.namespaced:
            namespace = namespace or confined_to
        before = await _read(file_objects, kind, namespace, called)
        (result,) = await runner.run([operation])
        called = called or ("" if result.error else made.generated)
        effect = Effect(
            operation=operation,
            target=f"{kind.kind if kind else name} {namespace}/{called}".replace(" /", " "),
            before=before,
            after=await _read(file_objects, kind, namespace, called),
            error=_said(result.error),
        )
        found.append(effect)
    return found


def _address(operation: Operation) -> tuple[str, str, str, str]:
    """Return the version, kind, namespace and name of the object of an operation."""
    if operation.name:
        return operation.api_version, operation.kind, operation.namespace, operation.name
    try:
        obj: Mapping[str, Any] = operation.object()
    except RetrofitError:
        return "", "", "", ""
    meta = obj.get("metadata")
    meta = meta if isinstance(meta, Mapping) else {}
    named = (obj.get("apiVersion"), obj.get("kind"), meta.get("namespace"), meta.get("name"))
    version, kind, namespace, name = (str(item or "") for item in named)
    return version, kind, namespace, name


async def _read(
    file_objects: FileObjects, kind: Kind | None, namespace: str, name: str
) -> Object | None:
    if kind is None or not name or (kind.namespaced and not namespace):
        return None
    try:
        found = await file_objects.cluster.get(replace(kind, subresource=""), namespace, name)
    except NotFound:
        return None
    meta = {key: value for key, value in found["metadata"].items() if key not in SERVERS_OWN}
    return {**found, "metadata": meta}


def _said(error: RetrofitError | None) -> str:
    match error:
        case None:
            return ""
        case NotFound():
            return f"{error}; name its file with --target-resource if the cluster has it"
        case NoKindMatch():
            cure = "name the file of its CustomResourceDefinition with --target-resource"
            return f"{error}; {cure}"
        case _:
            return str(error)
