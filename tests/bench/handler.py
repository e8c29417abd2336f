"""Measures the admission handler's time per request and its memory with many policies."""

import gc
import json
import time
import tracemalloc
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from admission.decide import Limits, decide
from reconciler.services.catalog.policy_store import PolicyStore
from reconciler.services.catalog.rule_index import Known
from reconciler.services.catalog.settings.filters import default_filters
from reconciler.serving.review import parse_review
from tests.bench.figures import Spread

_ROUNDS = 2_000
_NAMESPACE = "kyverno"


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """CPU figures of the handler alone, without HTTP and without the CREATE of a request.

    Attributes:
        none: Seconds of a request that no policy matches.
        one: Seconds of a request that one policy matches.
        other: Seconds of a request of a kind that no policy names.
        bytes_per_policy: Bytes by which each policy makes the index grow.
    """

    policies: int
    none: Spread
    one: Spread
    other: Spread
    bytes_per_policy: float


def measure(policies: int) -> Handler:
    """Load ``policies`` policies, which all name one kind, and measure three requests."""
    index, grown = _loaded(policies)
    limits = Limits(
        controller_users=(f"system:serviceaccount:{_NAMESPACE}:kyverno-background-controller",),
        max_recorded=200_000,
        filters=default_filters(_NAMESPACE),
    )
    return Handler(
        policies=policies,
        none=Spread.of(list(_times(index, limits, _review("ConfigMap", "unnamed")))),
        one=Spread.of(list(_times(index, limits, _review("ConfigMap", "settings-7")))),
        other=Spread.of(list(_times(index, limits, _review("Secret", "settings-7")))),
        bytes_per_policy=grown / policies,
    )


def _loaded(policies: int) -> tuple[PolicyStore, int]:
    index = PolicyStore()
    index.apply(_policy(policies))  # memory that all policies share is not measured
    texts = [json.dumps(_policy(number)) for number in range(policies)]
    gc.collect()
    tracemalloc.start()
    for text in texts:
        index.apply(json.loads(text))
    gc.collect()
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return index, grown


def _times(index: PolicyStore, limits: Limits, body: bytes) -> Iterable[float]:
    for _ in range(_ROUNDS):
        begin = time.thread_time()
        request = parse_review(body)
        kind = request.kind.name
        rules = index.rules(
            Known(kind=kind, subresource="", namespace=request.namespace, name=request.name)
        )
        decide(
            request,
            rules,
            parent=None,
            namespace_labels={"team": "payments"},
            limits=limits,
        )
        yield time.thread_time() - begin


def _review(kind: str, name: str) -> bytes:
    metadata = {
        "name": name,
        "namespace": "shop",
        "uid": "1d0a63c6-6f0d-4f6a-9b6c-0f5f9f8f7a11",
        "resourceVersion": "12",
        "labels": {"team": "payments"},
    }
    data = {f"key-{number}": "value" * 8 for number in range(20)}
    what = {"group": "", "version": "v1", "kind": kind}
    resource = {"group": "", "version": "v1", "resource": f"{kind.lower()}s"}
    request = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": what,
        "resource": resource,
        "requestKind": what,
        "requestResource": resource,
        "name": name,
        "namespace": "shop",
        "operation": "UPDATE",
        "userInfo": {"username": "ann", "groups": ["system:authenticated"]},
        "object": {"apiVersion": "v1", "kind": kind, "metadata": metadata, "data": data},
        "oldObject": {"apiVersion": "v1", "kind": kind, "metadata": metadata, "data": {}},
        "dryRun": False,
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return json.dumps(review).encode()


def _policy(number: int) -> dict[str, Any]:
    resources = {"kinds": ["ConfigMap"], "names": [f"settings-{number}"], "operations": ["UPDATE"]}
    target = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "namespace": "{{ request.object.metadata.namespace }}",
        "selector": {"matchLabels": {"uses": f"settings-{number}"}},
    }
    condition = {
        "key": "{{ request.object.data.mode || 'on' }}",
        "operator": "NotEquals",
        "value": "off",
    }
    annotations = {"settings-version": "{{ request.object.metadata.resourceVersion }}"}
    patch = {"spec": {"template": {"metadata": {"annotations": annotations}}}}
    rule = {
        "name": "restart",
        "match": {"any": [{"resources": resources}]},
        "preconditions": {"all": [condition]},
        "mutate": {"targets": [target], "patchStrategicMerge": patch},
    }
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {
            "name": f"restart-{number}",
            "uid": f"00000000-0000-4000-8000-{number:012}",
            "generation": 1,
        },
        "spec": {"rules": [rule]},
    }


def table(figures: Handler) -> Table:
    """Return the table of the handler."""
    shown = Table(
        "admission request", "p50", "p99", title=f"Handler with {figures.policies} policies"
    )
    named = {
        "of a kind that no policy names": figures.other,
        "that no policy matches": figures.none,
        "that one policy matches": figures.one,
    }
    for name, spread in named.items():
        shown.add_row(name, f"{spread.p50 * 1e6:.0f} µs", f"{spread.p99 * 1e6:.0f} µs")
    shown.add_row("memory per policy", f"{figures.bytes_per_policy / 1e3:.0f} kB", "")
    return shown
