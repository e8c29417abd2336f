"""The operations of a test on objects of a cluster."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.conformance.chainsaw import documents
from tests.conformance.chainsaw.assertions import Mismatch, compare
from tests.conformance.chainsaw.cluster import ApiError, Cluster, Object, Ref, ref_of
from tests.conformance.chainsaw.expressions import ExpressionError, expand, expression_of
from tests.conformance.chainsaw.model import Operation, Timeouts

INTERVAL = 0.05
_POD = {"Pod"}
_POD_TEMPLATE = {"DaemonSet", "Deployment", "Job", "ReplicaSet", "StatefulSet"}
_SHOWN = 20


class Failure(Exception):
    """An operation did not end as the test requires."""


async def poll(attempt: Callable[[], Awaitable[str | None]], within: float) -> None:
    """Repeat an attempt until it returns no complaint.

    Raises:
        Failure: The time is over. The message contains the last complaint.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    while (complaint := await attempt()) is not None:
        if loop.time() >= deadline:
            raise Failure(f"not within {within:g} s: {complaint}" if within else complaint)
        await asyncio.sleep(INTERVAL)


@dataclass(slots=True, kw_only=True)
class Objects:
    """Runs operations on objects and records which objects they create.

    Attributes:
        namespace: The namespace of namespaced objects that name none.
        grace: The `terminationGracePeriodSeconds` that is set on every object with pods.
        template: Whether values in parentheses are expressions in the documents to write.
        bindings: The names that expressions may use. They change with the steps.
        created: The references of created objects, in order of creation.
    """

    cluster: Cluster
    folder: Path
    timeouts: Timeouts
    namespace: str
    grace: int
    template: bool
    bindings: Mapping[str, Any]
    created: list[Ref] = field(default_factory=list)

    async def write(self, operation: Operation) -> None:
        """Run apply, create, update or patch on every document.

        Raises:
            Failure: A write did not end as expected.
        """
        within = self.timeouts.apply if operation.timeout is None else operation.timeout
        # A create is tried once: an object that exists already does not go away.
        within = 0.0 if operation.action == "create" else within
        template = operation.arguments.get("template", self.template)
        for document in self._documents(operation):
            body = expand_or_fail(document, self.bindings) if template else document
            await self._write(operation, _with_grace(body, self.grace), within)

    async def check(self, operation: Operation) -> None:
        """Run assert or error on every document.

        Raises:
            Failure: The objects are not as described.
        """
        for document in self._documents(operation):
            named = ref_of(expand_or_fail(_identity(document), self.bindings))

            async def attempt(document: Object = document, named: Ref = named) -> str | None:
                return await self._look(operation.action, document, named)

            fallback = (
                self.timeouts.error if operation.action == "error" else self.timeouts.assert_
            )
            await poll(attempt, fallback if operation.timeout is None else operation.timeout)

    async def delete(self, operation: Operation) -> None:
        """Delete the objects that the reference names and wait until they are gone.

        Raises:
            Failure: The deletion did not end as expected, or an object still exists.
        """
        within = self.timeouts.delete if operation.timeout is None else operation.timeout
        named = ref_of(expand_or_fail(operation.arguments["ref"], self.bindings))
        expect = operation.arguments.get("expect", [])
        try:
            ref = await self.cluster.qualify(named, self.namespace)
            for found in await self.cluster.candidates(ref):
                await self.remove(ref_of(found), within)
        except ApiError as error:
            complaint = judge(expect, str(error), {}, self.bindings)
        else:
            complaint = judge(expect, None, {}, self.bindings)
        if complaint is not None:
            raise Failure(complaint)

    async def remove(self, ref: Ref, within: float) -> None:
        """Delete one object and wait until it is gone.

        Raises:
            ApiError: The deletion was refused.
            Failure: The object still exists when the time is over.
        """
        await self.cluster.delete(ref)

        async def attempt() -> str | None:
            left = await self.cluster.get(ref)
            if left is None:
                return None
            return f"{ref} is still there, finalizers {left['metadata'].get('finalizers', [])}"

        await poll(attempt, within)

    def _documents(self, operation: Operation) -> Iterator[Object]:
        if "resource" in operation.arguments:
            yield operation.arguments["resource"]
            return
        name = expand_or_fail(operation.arguments["file"], self.bindings)
        try:
            yield from documents.read(self.folder / name)
        except OSError as error:
            raise Failure(f"{name}: {error.strerror}") from error

    async def _write(self, operation: Operation, document: Object, within: float) -> None:
        expect = operation.arguments.get("expect", [])

        async def attempt() -> str | None:
            try:
                ref = await self.cluster.qualify(ref_of(document), self.namespace)
                await self._send(operation.action, ref, document)
            except ApiError as error:
                return judge(expect, str(error), document, self.bindings)
            return judge(expect, None, document, self.bindings)

        await poll(attempt, within)

    async def _send(self, action: str, ref: Ref, document: Object) -> None:
        live = await self.cluster.get(ref)
        body = {**document, "metadata": {**document.get("metadata", {})}}
        if ref.namespace:
            body["metadata"]["namespace"] = ref.namespace
        if live is None:
            if action not in {"apply", "create"}:
                raise ApiError(404, f"{ref} does not exist")
            await self.cluster.create(ref, body)
            self.created.append(ref)
        elif action == "create":
            raise ApiError(409, f"{ref} exists already")
        elif action == "update":
            body["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"]
            await self.cluster.replace(ref, body)
        else:
            await self.cluster.merge(ref, body)

    async def _look(self, action: str, document: Object, named: Ref) -> str | None:
        try:
            ref = await self.cluster.qualify(named, self.namespace)
            found = await self.cluster.candidates(ref)
        except ApiError as error:
            return f"{named}: {error}" if action == "assert" or error.status != 404 else None
        mismatches = [compare(document, candidate, self.bindings) for candidate in found]
        if action == "error":
            matching = [
                ref_of(candidate)
                for candidate, differences in zip(found, mismatches, strict=True)
                if not differences
            ]
            return f"{matching[0]} is as it must not be" if matching else None
        if not found:
            return f"there is no {ref}"
        if not all(mismatches):
            return None
        return "\n".join(
            f"{ref_of(candidate)} differs:\n{_show(differences)}"
            for candidate, differences in zip(found, mismatches, strict=True)
        )


def judge(
    expect: Sequence[Mapping[str, Any]], error: str | None, value: Any, bindings: Mapping[str, Any]
) -> str | None:
    """Return what is wrong with the end of an operation, or None if it ended as expected.

    Args:
        expect: Entries with a `check` that sees ``$error``, and maybe a `match` on the value.
            The first that applies decides. If none applies, any error is wrong.
        error: The error of the API server, or None for success.
        value: The document that was written.
        bindings: Further names for expressions.
    """
    for entry in expect:
        if "match" in entry and compare(entry["match"], value, bindings):
            continue
        differences = compare(entry["check"], value, {**bindings, "error": error})
        if not differences:
            return None
        return f"ended with {error or 'success'}, but:\n{_show(differences)}"
    return error


def _show(differences: list[Mismatch]) -> str:
    lines = [f"  {difference}" for difference in differences[:_SHOWN]]
    more = len(differences) - _SHOWN
    return "\n".join([*lines, f"  and {more} more"] if more > 0 else lines)


def _identity(document: Object) -> Object:
    meta = document.get("metadata") or {}
    parts = {key: meta[key] for key in ("name", "namespace", "labels") if key in meta}
    return {
        "apiVersion": document["apiVersion"],
        "kind": document["kind"],
        "metadata": {
            # An expression on the object itself cannot narrow the selection beforehand.
            key: value
            for key, value in parts.items()
            if not isinstance(value, dict) or not any(map(expression_of, value))
        },
    }


def expand_or_fail(document: Any, bindings: Mapping[str, Any]) -> Any:
    """Return the document with its expressions replaced.

    Raises:
        Failure: An expression cannot be evaluated.
    """
    try:
        return expand(document, bindings)
    except ExpressionError as error:
        raise Failure(str(error)) from error


def bind(entries: tuple[tuple[str, Any], ...], bindings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the bindings extended by those of a step, each of which may use the earlier ones.

    Raises:
        Failure: A binding cannot be evaluated.
    """
    result = dict(bindings)
    for name, value in entries:
        result[name] = expand_or_fail(value, result)
    return result


def _with_grace(document: Object, seconds: int) -> Object:
    kind, spec = document.get("kind"), document.get("spec")
    if not isinstance(spec, dict):
        return document
    if kind in _POD:
        return {**document, "spec": {**spec, "terminationGracePeriodSeconds": seconds}}
    if kind == "CronJob":
        job = _with_grace({"kind": "Job", **spec.get("jobTemplate", {})}, seconds)
        job.pop("kind")
        return {**document, "spec": {**spec, "jobTemplate": job}}
    if kind in _POD_TEMPLATE and isinstance(spec.get("template"), dict):
        pod = _with_grace({"kind": "Pod", **spec["template"]}, seconds)
        pod.pop("kind")
        return {**document, "spec": {**spec, "template": pod}}
    return document
