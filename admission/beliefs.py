"""Verifies that the old or deleted object of a review is the stored one.

A request records what its rule reads of an object that cannot be read later. Until the review is
answered, that object is still stored. So if callers need no certificate, it is read, and the read
object is recorded: no caller can invent a deleted object or a previous state.

The API server stores an update or a deletion only in place of the version in its review, and calls
the webhook again if another version is stored. So a review with another version than a later read
has no effect and needs no request.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from reconciler.api.meta import Object, resource_version
from reconciler.errors import Forbidden, NotFound, Unavailable
from reconciler.installation import REPLACING
from reconciler.observe.logs import logger
from reconciler.observe.metrics import Metrics
from reconciler.requests.draft import READ_LATER, AdmissionRequest, Draft
from reconciler.services.ports.objects import Kinds, Reader

_MOST_SAID: Final = 100

_log = logger("admission.beliefs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Beliefs:
    """Reads the old objects of reviews.

    Attributes:
        authenticated: Whether callers present a certificate and are trusted.
        account: ServiceAccount of the program, for messages.
    """

    kinds: Kinds
    reader: Reader
    metrics: Metrics
    authenticated: bool = False
    account: str = REPLACING.admission_account
    _said: dict[str, None] = field(default_factory=dict)

    def questions(self, request: AdmissionRequest, drafts: Iterable[Draft]) -> bool:
        """Return whether a draft depends on an old object that has to be verified."""
        if self.authenticated or request.old_object is None:
            return False
        # The object of other subresources is not a stored object.
        return request.subresource in READ_LATER and any(map(rests_on_past, drafts))

    async def stored(self, request: AdmissionRequest) -> AdmissionRequest | None:
        """Return the request with the stored old object, or None if another one is stored.

        If the object may not be read, the request is returned unchanged.

        Raises:
            ClusterError: The object cannot be read for another reason.
        """
        resource = request.resource
        kind = await self.kinds.of_resource(resource.group, resource.version, resource.name)
        if kind is None:
            # The kind may be new and not discovered yet.
            raise Unavailable(f"the cluster does not serve {resource.name} of {resource.group}")
        if (kind.group, kind.kind) != (request.kind.group, request.kind.name):
            self._disbelieve(request, "its kind and resource do not match")
            return None
        if not request.name:
            # The API server sends none, as an old object has one, also in a deleted collection.
            self._disbelieve(request, "it has no name")
            return None
        try:
            live = await self.reader.get(kind, request.namespace, request.name)
        except NotFound:
            self._disbelieve(request, "there is no such object")
            return None
        except Forbidden as error:
            self._say_unread(kind.plural, str(error))
            return request
        if _version(live) != _version(request.old_object):
            self._disbelieve(request, "another version is stored")
            return None
        return replace(request, old_object=live)

    def _disbelieve(self, request: AdmissionRequest, reason: str) -> None:
        self.metrics.reviews_disbelieved.labels(operation=request.operation).inc()
        _log.info("review contains an object that is not stored", uid=request.uid, reason=reason)

    def _say_unread(self, plural: str, reason: str) -> None:
        self.metrics.reviews_unverified.inc()
        if plural in self._said or len(self._said) >= _MOST_SAID:
            return
        self._said[plural] = None
        _log.warning(
            "old and deleted objects cannot be verified: recording what the caller sent",
            resource=plural,
            reason=reason,
            cure=f"ask callers for a certificate, or grant get to {self.account}",
        )


def rests_on_past(draft: Draft) -> bool:
    """Return whether a draft records or depends on a part of an old or deleted object."""
    spec = draft.spec
    if spec.operation == "DELETE":
        return True
    return bool(spec.recorded_secret) or "oldObject" in (spec.recorded or {})


def _version(obj: Object | None) -> tuple[str, str]:
    meta = (obj or {}).get("metadata") or {}
    return str(meta.get("uid", "")), resource_version(obj or {})
