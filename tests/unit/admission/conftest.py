"""Builders of policies and admission requests."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import pytest

from admission.checks import ValidationDeps
from reconciler.api.account import ServiceAccount
from reconciler.api.meta import Object
from reconciler.clock import Deadline, SystemClock
from reconciler.dialects.registry import compile_entry
from reconciler.errors import Invalid
from reconciler.installation import REPLACING, Installation
from reconciler.isolation.jq import BriefJq
from reconciler.memory.cluster import MemoryCluster
from reconciler.memory.kinds import MemoryKinds
from reconciler.services.authoring.lint import Scope
from reconciler.services.catalog.policy_store import PolicyStore
from reconciler.services.ports.objects import Kinds
from reconciler.services.ports.requests import Requests
from tests.filters import parse_filters
from tests.stored import MemoryRequests
from tests.unit.rights import Account

UIDS = iter(range(1, 1_000_000))


def make_policy(
    name: str = "set-team",
    namespace: str = "",
    uid: str = "policy-uid",
    spec: Object | None = None,
    **rule: Any,
) -> Object:
    resources = rule.pop("resources", {"kinds": ["ConfigMap"]})
    meta = {"name": name, "uid": uid, "generation": 3}
    if namespace:
        meta["namespace"] = namespace
    target = {"apiVersion": "v1", "kind": "Secret", "name": "s", "namespace": namespace or "a"}
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "Policy" if namespace else "ClusterPolicy",
        "metadata": meta,
        "spec": {
            **(spec or {}),
            "rules": [
                {
                    "name": "copy",
                    "match": {"any": [{"resources": resources}]},
                    "mutate": {
                        "targets": [target],
                        "patchStrategicMerge": rule.pop(
                            "patch", {"metadata": {"labels": {"seen": "yes"}}}
                        ),
                    },
                    **rule,
                }
            ],
        },
    }


def make_mutating(
    name: str = "add-team",
    namespace: str = "",
    resources: Object | None = None,
    spec: Object | None = None,
    rules: Sequence[Object] = (),
    **rule: Any,
) -> Object:
    """Return a mutating policy without targets."""
    one = {
        "name": "add",
        "match": {"any": [{"resources": resources or {"kinds": ["ConfigMap"]}}]},
        "mutate": {"patchStrategicMerge": {"metadata": {"labels": {"team": "a"}}}},
        **rule,
    }
    meta = {"name": name, "uid": f"uid-of-{name}", "generation": 1}
    if namespace:
        meta["namespace"] = namespace
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "Policy" if namespace else "ClusterPolicy",
        "metadata": meta,
        "spec": {**(spec or {}), "rules": [{**one, **item} for item in rules] or [one]},
    }


def make_object(
    kind: str = "ConfigMap",
    name: str = "dict",
    namespace: str = "a",
    api_version: str = "v1",
    **rest: Any,
) -> Object:
    meta = {"name": name, "uid": f"uid-of-{name}", **rest.pop("metadata", {})}
    if namespace:
        meta["namespace"] = namespace
    return {"apiVersion": api_version, "kind": kind, "metadata": meta, **rest}


def make_review(
    operation: str = "CREATE",
    obj: Object | None = None,
    old: Object | None = None,
    **fields: Any,
) -> bytes:
    """Return the JSON body of an AdmissionReview, in the form that the API server sends."""
    shown = obj or old or {}
    group, _, version = shown.get("apiVersion", "v1").rpartition("/")
    kind = {"group": group, "version": version, "kind": shown.get("kind", "ConfigMap")}
    plural = shown.get("kind", "ConfigMap").lower() + "s"
    resource = {"group": group, "version": version, "resource": plural}
    meta = shown.get("metadata") or {}
    request = {
        "uid": f"request-{next(UIDS)}",
        "kind": kind,
        "resource": resource,
        "requestKind": kind,
        "requestResource": resource,
        "name": meta.get("name", ""),
        "namespace": meta.get("namespace", ""),
        "operation": operation,
        "userInfo": {"username": "jane", "groups": ["devs", "system:authenticated"]},
        "object": obj,
        "oldObject": old,
        "dryRun": False,
        "options": {"kind": "CreateOptions"},
        **fields,
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return orjson.dumps(review)


def make_update(before: Object, **changes: Any) -> tuple[Object, Object]:
    """Return the old and the new object of an update."""
    old = copy.deepcopy(before)
    old["metadata"].setdefault("resourceVersion", "7")
    return old, {**copy.deepcopy(old), **changes}


def make_index(*policies: Object) -> PolicyStore:
    index = PolicyStore()
    for item in policies:
        compiled = index.apply(item)
        assert not isinstance(compiled, Exception), compiled
    return index


@dataclass(frozen=True, slots=True)
class Compiler:
    """The `MatchConditions` port: every expression compiles except the one in `refused`."""

    refused: str = ""
    broken: Exception | None = None

    async def check(self, conditions: Sequence[Mapping[str, str]]) -> None:
        if self.broken is not None:
            raise self.broken
        for index, item in enumerate(conditions):
            if item["expression"] == self.refused:
                text = f"matchConditions[{index}].expression: Invalid value: does not compile"
                raise Invalid(text, status=422)


def make_deps(
    account: Account | None = None,
    kinds: Kinds | None = None,
    forget: Callable[[], None] | None = None,
    compiler: Compiler | None = None,
    filters: str = "",
    patience: float = 0.0,
    requests: Requests | None = None,
    verifier: Account | None = None,
    reader: Account | None = None,
    entries: Sequence[Object] = (),
    installation: Installation = REPLACING,
) -> ValidationDeps:
    """Return the dependencies of policy validation; by default every right is granted."""
    served = kinds or MemoryKinds()

    async def scope() -> Scope:
        known = {"ClusterRole": False, "Namespace": False, "Node": False}
        return lambda _api_version, kind: known.get(kind, True)

    return ValidationDeps(
        kinds=served,
        forget=forget or (lambda: None),
        scope=scope,
        access=account or Account(),
        conditions=compiler or Compiler(),
        requests=requests or MemoryRequests(MemoryCluster(), "kyverno"),
        account="kyverno:kyverno-background-controller",
        controller=ServiceAccount(namespace="kyverno", name="kube-retrofit-controller"),
        jq=BriefJq().session,
        filters=lambda: parse_filters(resources=filters),
        patience=patience,
        reader=reader or Account(),
        verifier=verifier,
        installation=installation,
        stored_entries=lambda names: [
            compiled
            for compiled in map(compile_entry, entries)
            if names is None or compiled.name in names
        ],
        read_entries=lambda: frozenset(item["metadata"]["name"] for item in entries),
    )


def make_deadline(seconds: float = 5.0) -> Deadline:
    return Deadline(SystemClock(), seconds)


class Make:
    policy = staticmethod(make_policy)
    mutating = staticmethod(make_mutating)
    thing = staticmethod(make_object)
    review = staticmethod(make_review)
    update = staticmethod(make_update)
    index = staticmethod(make_index)
    deps = staticmethod(make_deps)
    deadline = staticmethod(make_deadline)


@pytest.fixture
def make() -> type[Make]:
    return Make
