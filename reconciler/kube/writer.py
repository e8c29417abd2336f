"""The `Writer` port: the smallest guarded write, and PUT where patch is not granted."""

from typing import Any

from reconciler.api.account import ServiceAccount
from reconciler.api.meta import FIELD_MANAGER, Kind, Object, resource_version
from reconciler.clock import Clock
from reconciler.engine.patch.diff import json_diff, merge_diff
from reconciler.errors import Conflict, Forbidden, Invalid
from reconciler.kube.client import JSON, JSON_PATCH, MERGE_PATCH, Client, encode
from reconciler.kube.delegation import PerAccount
from reconciler.kube.paths import object_path

# Strict: a misspelled field is refused (`Invalid`) instead of dropped, which would look like a
# rule that never settles.
WRITE_QUERY = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"}

_PUT_FOR = 300.0


class KubeWriter:
    """Writes changes of objects of any kind; unknown fields are refused as `Invalid`.

    With ``dry_run`` the API server does everything but store: what it would refuse, it refuses.
    """

    def __init__(self, client: Client, clock: Clock, *, dry_run: bool = False) -> None:
        self._client = client
        self._clock = clock
        self._query = {**WRITE_QUERY, "dryRun": "All"} if dry_run else WRITE_QUERY
        self._put_until: dict[tuple[str, str], float] = {}
        self._others = PerAccount(
            lambda user: KubeWriter(client.speaking_for(user), clock, dry_run=dry_run)
        )

    def acting_as(self, account: ServiceAccount | None) -> "KubeWriter":
        """Return one that writes in an account's name; None: in that of this one."""
        return self if account is None else self._others.of(account)

    async def change(self, kind: Kind, before: Object, after: Object) -> Object:
        """Write the smallest change that leads from one to the other; return the new object.

        Nothing is sent where nothing differs; ``before`` is returned then.
        """
        version = resource_version(before)
        if not version:
            raise Invalid(f"{kind.kind}: an object without resourceVersion cannot be guarded")
        body, content_type = _patch_of(before, after, version)
        if not body:
            return before
        path = _path_of(kind, before)
        place = (kind.resource, _namespace_of(before))
        if self._put_until.get(place, 0.0) > self._clock.monotonic():
            try:
                return await self._put(path, after, version)
            except Forbidden:
                del self._put_until[place]
        try:
            return await self._patch(path, body, content_type, version)
        except Forbidden as refused:
            answer = await self._put_instead(path, after, version, refused)
        self._put_until[place] = self._clock.monotonic() + _PUT_FOR
        return answer

    async def _patch(self, path: str, body: bytes, content_type: str, version: str) -> Object:
        try:
            return await self._send("PATCH", path, body, content_type)
        except Invalid:
            # A patch that does not fit what is stored now is refused before the guard is looked
            # at, so only an unchanged object makes the content the culprit.
            if content_type == JSON_PATCH:
                stored = await self._client.json("GET", path)
                if resource_version(stored) != version:
                    raise Conflict("the object has been modified", status=409) from None
            raise

    async def _put_instead(
        self, path: str, after: Object, version: str, refused: Forbidden
    ) -> Object:
        try:
            return await self._put(path, after, version)
        except Forbidden:
            raise refused from None

    async def _put(self, path: str, after: Object, version: str) -> Object:
        meta = {**(after.get("metadata") or {}), "resourceVersion": version}
        return await self._send("PUT", path, encode({**after, "metadata": meta}), JSON)

    async def _send(self, method: str, path: str, body: bytes, content_type: str) -> Object:
        answer: Object = await self._client.json(
            method, path, query=self._query, body=body, content_type=content_type
        )
        return answer


def _patch_of(before: Object, after: Object, version: str) -> tuple[bytes, str]:
    """Return the guarded patch and its type; an empty one where nothing differs."""
    merge = merge_diff(before, after)
    if merge is not None:
        return (encode(guarded(merge, version)) if merge else b""), MERGE_PATCH
    guard = {"op": "replace", "path": "/metadata/resourceVersion", "value": version}
    return encode([guard, *json_diff(before, after)]), JSON_PATCH


def guarded(merge: dict[str, Any], version: str) -> dict[str, Any]:
    """Return a merge patch that is refused (409) unless this version is the stored one."""
    return {**merge, "metadata": {**(merge.get("metadata") or {}), "resourceVersion": version}}


def _namespace_of(obj: Object) -> str:
    return str((obj.get("metadata") or {}).get("namespace", ""))


def _path_of(kind: Kind, obj: Object) -> str:
    name = str((obj.get("metadata") or {}).get("name", ""))
    return object_path(kind, _namespace_of(obj), name)
