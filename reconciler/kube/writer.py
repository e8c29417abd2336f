"""The `Writer` port: the smallest guarded write, and PUT where patch is not granted."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from reconciler.api.account import ServiceAccount
from reconciler.api.meta import FIELD_MANAGER, Kind, Object, resource_version
from reconciler.clock import Clock
from reconciler.engine.patch.diff import json_diff, merge_diff
from reconciler.errors import Conflict, Forbidden, Invalid
from reconciler.kube.client import Client
from reconciler.kube.decoding import JSON_PATCH, MERGE_PATCH
from reconciler.kube.delegation import PerAccount
from reconciler.kube.dynamic import ApiResource

# Strict: an unknown field is refused (`Invalid`) instead of dropped, which would look like a
# rule that never converges.
_STRICT = {"field_validation": "Strict"}

_PUT_FOR = 300.0


class KubeWriter:
    """Writes changes of objects of any kind; unknown fields are refused as `Invalid`.

    With ``dry_run`` the API server does everything except storing, so it refuses the same writes.
    """

    def __init__(self, client: Client, clock: Clock, *, dry_run: bool = False) -> None:
        self._client = client
        self._clock = clock
        self._options = {**_STRICT, "dry_run": "All"} if dry_run else _STRICT
        self._put_until: dict[tuple[str, str], float] = {}
        self._others = PerAccount(
            lambda user: KubeWriter(client.speaking_for(user), clock, dry_run=dry_run)
        )

    def acting_as(self, account: ServiceAccount | None) -> "KubeWriter":
        """Return a writer that acts as an account; for None, this one."""
        return self if account is None else self._others.of(account)

    async def change(
        self, kind: Kind, before: Object, after: Object, *, manager: str = FIELD_MANAGER
    ) -> Object:
        """Write the smallest change from ``before`` to ``after``; return the stored object.

        Without a difference, nothing is sent and ``before`` is returned.
        """
        version = resource_version(before)
        if not version:
            raise Invalid(f"{kind.kind}: an object without resourceVersion cannot be guarded")
        patch, content_type = _patch_of(before, after, version)
        if not patch:
            return before
        meta = before.get("metadata") or {}
        target = _Target(
            self._client.resource(kind),
            {"name": str(meta.get("name", "")), "namespace": str(meta.get("namespace", ""))},
            {**self._options, "field_manager": manager},
        )
        place = (kind.resource, target.at["namespace"])
        if self._put_until.get(place, 0.0) > self._clock.monotonic():
            try:
                return await self._put(target, after, version)
            except Forbidden:
                # Another write may have noticed it at the same time.
                self._put_until.pop(place, None)
        try:
            return await self._patch(target, patch, content_type, version)
        except Forbidden as refused:
            try:
                answer = await self._put(target, after, version)
            except Forbidden:
                raise refused from None
        now = self._clock.monotonic()
        current = {key: until for key, until in self._put_until.items() if until > now}
        self._put_until = {**current, place: now + _PUT_FOR}
        return answer

    async def _patch(
        self, target: "_Target", patch: Any, content_type: str, version: str
    ) -> Object:
        options = {**target.options, "content_type": content_type}
        try:
            return await target.resource.patch(patch, **target.at, **options)
        except Invalid:
            # A patch that does not fit the stored object is refused before its guard is checked,
            # so the content is at fault only if the object is unchanged.
            if content_type == JSON_PATCH:
                stored = await target.resource.get(**target.at)
                if resource_version(stored) != version:
                    raise Conflict("the object has been modified") from None
            raise

    async def _put(self, target: "_Target", after: Object, version: str) -> Object:
        meta = {**(after.get("metadata") or {}), "resourceVersion": version}
        return await target.resource.replace(
            {**after, "metadata": meta}, **target.at, **target.options
        )


class _Target(NamedTuple):
    resource: ApiResource
    at: dict[str, str]
    options: dict[str, str]


def _patch_of(before: Object, after: Object, version: str) -> tuple[Any, str]:
    """Return the guarded patch and its type; the patch is None if nothing differs."""
    merge = merge_diff(before, after)
    if merge is not None:
        return (guarded(merge, version) if merge else None), MERGE_PATCH
    guard = {"op": "replace", "path": "/metadata/resourceVersion", "value": version}
    return [guard, *json_diff(before, after)], JSON_PATCH


async def write_status(
    client: Client, kind: Kind, obj: Object, status: Mapping[str, Any]
) -> Object:
    """Merge into the status of exactly this version of an object; return the stored object.

    Raises:
        Conflict: The object has changed since; decide again on the new version.
    """
    meta = obj["metadata"]
    patch = guarded({"status": dict(status)}, resource_version(obj))
    statuses = client.resource(replace(kind, subresource="status"))
    return await statuses.merge(patch, meta["name"], meta.get("namespace", ""))


def guarded(merge: dict[str, Any], version: str) -> dict[str, Any]:
    """Return a merge patch that is refused (409) unless this version is the stored one."""
    return {**merge, "metadata": {**(merge.get("metadata") or {}), "resourceVersion": version}}
