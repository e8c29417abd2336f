"""Answers to the webhook calls for the project's own kinds, with the place of each error."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from admission.aggregates import check_aggregates
from admission.authoring import check_limits, check_policy
from admission.checks import Check, ValidationDeps
from admission.decide import AdmissionResponse
from admission.entries import check_entry
from admission.hooks import check_hook
from reconciler.api.kinds import kinds_of
from reconciler.api.meta import Object
from reconciler.clock import Deadline
from reconciler.dialects.registry import policy_kinds, variant_of
from reconciler.hooks.declared import HOOK_KINDS
from reconciler.installation import INSTALLATIONS
from reconciler.requests.account import named_account
from reconciler.requests.draft import AdmissionRequest, TypeName
from reconciler.services.ports.access import Access

_BAD_REQUEST = 400

_KINDS = tuple(kind for item in INSTALLATIONS.values() for kind in policy_kinds(item))

CHECKS: Mapping[tuple[str, str], Check] = {
    **dict.fromkeys(((kind.group, kind.kind) for kind in _KINDS), check_policy),
    **{(item.group, kinds_of(item).entries.kind): check_entry for item in INSTALLATIONS.values()},
    **dict.fromkeys(((kind.group, kind.kind) for kind in HOOK_KINDS), check_hook),
}
"""By group and kind; the webhook configuration covers these (`rollout.webhook_config`)."""

_AUTHORED = (*_KINDS, *HOOK_KINDS)
ASKED_AUTHORS: Mapping[str, frozenset[str]] = {
    "policies": frozenset(kind.kind for kind in _AUTHORED if kind.namespaced),
    "all": frozenset(kind.kind for kind in _AUTHORED),
    "none": frozenset(),
}
"""The kinds whose authors need the rights that the objects use, by the setting's value."""


@dataclass(frozen=True, slots=True)
class PolicyWebhook:
    """Validates policies, entries and hooks.

    Attributes:
        about: Returns the access of a request's sender, who needs the rights that an object of
            one of the kinds uses.
        asked: Names of these kinds.
    """

    deps: ValidationDeps
    about: Callable[[Mapping[str, Any]], Access] | None = None
    asked: frozenset[str] = frozenset()

    async def review(self, request: AdmissionRequest, deadline: Deadline) -> AdmissionResponse:
        """Return whether an object can be stored, with warnings for its author.

        An object that is being deleted may change freely: no user should have to repair a rule
        to get rid of it. So may one with an unchanged spec: labels, finalizers and status of a
        stored object are never blocked. Annotations that limit the rollout of a policy are
        validated when they change. One that names another account, or selects how the policy is
        compiled, decides what the policy may do, as the spec does.
        """
        obj, old = request.object, request.old_object
        if obj is None or (obj.get("metadata") or {}).get("deletionTimestamp"):
            return AdmissionResponse()
        if old is not None and _asks_the_same(obj, old):
            return check_limits(obj, old)
        deps = replace(self.deps, dry_run=request.dry_run)
        if self.about is not None and self._asks(request.kind, obj):
            name = str(request.user.get("username", ""))
            deps = replace(deps, author=self.about(request.user), author_name=name)
        check = CHECKS.get((request.kind.group, request.kind.name))
        if check is None:
            kinds = ", ".join(dict.fromkeys(kind for _, kind in CHECKS))
            text = f"request.kind.kind is {request.kind.name}, this webhook is for {kinds}"
            return AdmissionResponse(allowed=False, code=_BAD_REQUEST, message=text)
        response = await check(obj, deps, deadline)
        if old is None or not response.allowed or check is not check_policy:
            return response
        return await check_aggregates(obj, old, deps, deadline) or response

    def _asks(self, kind: TypeName, obj: Object) -> bool:
        """Return whether the author's rights are reviewed; always if an account is named."""
        is_policy = CHECKS.get((kind.group, kind.name)) is check_policy
        named = is_policy and named_account(obj) is not None
        return kind.name in self.asked or (named and bool(self.asked))


def _asks_the_same(obj: Object, old: Object) -> bool:
    """Return whether spec, account and variant of a policy are unchanged."""
    return (
        old.get("spec") == obj.get("spec")
        and named_account(old) == named_account(obj)
        and variant_of(old) == variant_of(obj)
    )
