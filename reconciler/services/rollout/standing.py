"""Match conditions that keep a cluster working while no admission server is available.

A webhook for all kinds with failurePolicy Fail would refuse what a cluster needs to run: the
heartbeats of nodes, tokens and access reviews, and an edit that would withdraw the policy.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from reconciler.api.meta import PREFIX, Object
from reconciler.engine.program import Program
from reconciler.installation import BESIDE, REPLACING
from reconciler.services.rollout.webhook_rules import Kinds

_NAME: Final = "kube-retrofit-standing-{}"
_NODES: Final = "system:nodes"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Standing:
    """Requests that are excluded from a webhook with rules for all kinds.

    Attributes:
        name: Part of the condition's name.
        expression: A CEL expression that is true for these requests.
        group: The API group of their kinds; they are not excluded if a rule names such a kind.
        resource: The plural of these kinds; empty for the whole group.
    """

    name: str
    expression: str
    group: str | None = None
    resource: str = ""

    def is_named(self, named: Iterable[tuple[str, str]]) -> bool:
        """Return whether a policy names one of the kinds itself."""
        return any(
            group == self.group and self.resource in {"", plural} for group, plural in named
        )


def _all_of(group: str) -> str:
    return f"request.resource.group == {json.dumps(group)}"


def _of(group: str, plural: str) -> str:
    return f"{_all_of(group)} && request.resource.resource == {json.dumps(plural)}"


_STANDING: Final = (
    _Standing(name="node-users", expression=f'"{_NODES}" in request.userInfo.groups'),
    _Standing(name="nodes", expression=_of("", "nodes"), group="", resource="nodes"),
    _Standing(
        name="node-leases",
        expression=f"{_of('coordination.k8s.io', 'leases')}"
        ' && request.namespace == "kube-node-lease"',
        group="coordination.k8s.io",
        resource="leases",
    ),
    _Standing(
        name="tokens",
        # The field is absent, not empty, in a request without a subresource.
        expression=f"{_of('', 'serviceaccounts')} && has(request.subResource)"
        ' && request.subResource == "token"',
        group="",
        resource="serviceaccounts/token",
    ),
    *(
        _Standing(name=name, expression=_all_of(group), group=group)
        for name, group in (
            ("authentication", "authentication.k8s.io"),
            ("authorization", "authorization.k8s.io"),
            ("certificates", "certificates.k8s.io"),
            ("policies", REPLACING.group),
            ("policies-beside", BESIDE.group),
        )
    ),
)


def exclusions(programs: Iterable[Program], kinds: Kinds, most: int) -> list[Object]:
    """Return at most ``most`` conditions that exclude requests from a webhook for all kinds.

    A kind that one of the rules names explicitly is not excluded.
    """
    selectors = {scope.selector for program in programs for scope in program.match.kinds()}
    if not any(item.kind == "*" for item in selectors):
        return []
    named = {
        (kind.group, f"{kind.plural}/{kind.subresource}" if kind.subresource else kind.plural)
        for item in selectors
        for kind in kinds.get(item, ())
    }
    left = [item for item in _STANDING if not item.is_named(named)]
    return [
        {"name": _NAME.format(item.name), "expression": f"!({item.expression})"}
        for item in left[: max(0, most)]
    ]


_ANNOTATIONS: Final = (
    "(has({0}.metadata.annotations) ? {0}.metadata.annotations : {{}})"
    f'.all(key, !key.startsWith("{PREFIX}") || (has({{1}}.metadata.annotations)'
    " && key in {1}.metadata.annotations"
    " && {0}.metadata.annotations[key] == {1}.metadata.annotations[key]))"
)
_WEBHOOK: Final = "(has({0}.spec.webhookConfiguration) ? {0}.spec.webhookConfiguration : {{}})"
_NEW: Final = _WEBHOOK.format("object")
_OLD: Final = _WEBHOOK.format("oldObject")
_SAME_BUT: Final = (
    "{0}.all(key, key in {2} || (key in {1} && {0}[key] == {1}[key]))"
    " && {1}.all(key, key in {2} || key in {0})"
)
_TO_IGNORE: Final = " && ".join(
    (
        # One of the two fields: a policy with both is invalid.
        (
            "(has(object.spec.failurePolicy) ? [object.spec.failurePolicy] : [])"
            f' + ("failurePolicy" in {_NEW} ? [{_NEW}.failurePolicy] : []) == ["Ignore"]'
        ),
        _SAME_BUT.format(
            "object.spec", "oldObject.spec", '["failurePolicy", "webhookConfiguration"]'
        ),
        _SAME_BUT.format(_NEW, _OLD, '["failurePolicy"]'),
    )
)


def harmless_edits() -> list[Object]:
    """Return the condition that excludes harmless edits from the webhook for policies.

    Harmless are: changes of labels, finalizers, owners and annotations without the project's
    prefix; a spec that only changes to ``failurePolicy: Ignore``, its own or that of its
    webhook configuration; any edit during deletion.
    """
    ours = _ANNOTATIONS.format("object", "oldObject")
    theirs = _ANNOTATIONS.format("oldObject", "object")
    expression = (
        'request.operation != "UPDATE" || !(has(object.metadata.deletionTimestamp)'
        f" || ((object.spec == oldObject.spec || ({_TO_IGNORE})) && {ours} && {theirs}))"
    )
    return [{"name": _NAME.format("edits"), "expression": expression}]
