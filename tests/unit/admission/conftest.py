"""Builders of policies and admission requests."""

import copy
from dataclasses import dataclass
from types import SimpleNamespace

import orjson
import pytest

from admission.checks import ValidationDeps
from reconciler.api.account import ServiceAccount
from reconciler.clock import Deadline, SystemClock
from reconciler.errors import Invalid
from reconciler.memory.cluster import MemoryCluster
from reconciler.memory.kinds import MemoryKinds
from reconciler.memory.requests import MemoryRequests
from reconciler.services.catalog.policy_store import PolicyStore
from reconciler.services.catalog.settings import parse_filters
from tests.unit.rights import Account

UIDS = iter(range(1, 1_000_000))


def make_policy(name="set-team", namespace="", uid="policy-uid", spec=None, **rule):
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


def make_object(kind="ConfigMap", name="dict", namespace="a", api_version="v1", **rest):
    meta = {"name": name, "uid": f"uid-of-{name}", **rest.pop("metadata", {})}
    if namespace:
        meta["namespace"] = namespace
    return {"apiVersion": api_version, "kind": kind, "metadata": meta, **rest}


def make_review(operation="CREATE", obj=None, old=None, **fields):
    """Return the body of an AdmissionReview as the API server sends it."""
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


def make_update(before, **changes):
    """Return an object before and after a change, as an update carries them."""
    old = copy.deepcopy(before)
    old["metadata"].setdefault("resourceVersion", "7")
    return old, {**copy.deepcopy(old), **changes}


def make_index(*policies):
    index = PolicyStore()
    for item in policies:
        compiled = index.apply(item)
        assert not isinstance(compiled, Exception), compiled
    return index


@dataclass(frozen=True, slots=True)
class Compiler:
    """The `MatchConditions` port: everything compiles but what a test names."""

    refused: str = ""
    broken: Exception | None = None

    async def check(self, conditions):
        if self.broken is not None:
            raise self.broken
        for index, item in enumerate(conditions):
            if item["expression"] == self.refused:
                text = f"matchConditions[{index}].expression: Invalid value: does not compile"
                raise Invalid(text, status=422)


def make_means(
    account=None,
    kinds=None,
    forget=None,
    compiler=None,
    filters="",
    patience=0.0,
    requests=None,
    verifier=None,
):
    """Return what the checks of policies ask, about an account that by default may everything."""
    served = kinds or MemoryKinds()

    async def scope():
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
        filters=lambda: parse_filters(resources=filters),
        patience=patience,
        verifier=verifier,
    )


def make_deadline(seconds=5.0):
    return Deadline(SystemClock(), seconds)


@pytest.fixture
def make():
    return SimpleNamespace(
        policy=make_policy,
        thing=make_object,
        review=make_review,
        update=make_update,
        index=make_index,
        means=make_means,
        deadline=make_deadline,
    )
