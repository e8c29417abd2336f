"""PolicyReports of ``wgpolicyk8s.io/v1alpha2``: one per namespace, one result per rule and target.

Results for cluster-scoped objects are in one ClusterPolicyReport; its namespace is empty here.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from reconciler.api.meta import PREFIX, Kind, Object, ObjectRef
from reconciler.installation import REPLACING, Installation

POLICY_REPORTS = Kind(
    group="wgpolicyk8s.io",
    version="v1alpha2",
    kind="PolicyReport",
    plural="policyreports",
    namespaced=True,
)
CLUSTER_POLICY_REPORTS = replace(
    POLICY_REPORTS, kind="ClusterPolicyReport", plural="clusterpolicyreports", namespaced=False
)

ANNOTATION_SHORTENED = f"{PREFIX}shortened"
MAX_RESULTS = 500
"""Results that a report holds; those that did not pass come first, then the newest."""
MAX_MESSAGE = 500

Key = tuple[str, str, str, str, str, str, str]
"""Policy and rule of a result; apiVersion, kind, namespace, name, subresource of its target."""


class Verdict(StrEnum):
    """The results that are written; the API defines ``fail`` and ``warn`` as well."""

    PASS = "pass"  # noqa: S105
    SKIP = "skip"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of a rule at one target.

    Attributes:
        changed: The target was written; such a result is not replaced by a later one that found
            nothing to do.
        at: Time of the result, to the second.
        recovered: It was found later, so it replaces no result of the same or a later time.
    """

    policy: str
    rule: str
    target: ObjectRef
    subresource: str = ""
    verdict: Verdict
    message: str
    changed: bool = False
    at: datetime
    recovered: bool = False

    @property
    def key(self) -> Key:
        """Return the key under which another result replaces this one."""
        ref = self.target
        place = (ref.api_version, ref.kind, ref.namespace, ref.name)
        return (self.policy, self.rule, *place, self.subresource)


def labels_of(installation: Installation) -> dict[str, str]:
    """Return the labels of an installation's reports, whose name is `Installation.prefix`."""
    managed = {"app.kubernetes.io/managed-by": installation.reporter}
    return {**managed, f"{PREFIX}report": "mutate-existing"}


def render_result(result: Result, source: str = REPLACING.reporter) -> Object:
    """Return a result as stored in a report; two fields name the target, for two readers."""
    ref = result.target
    group, _, version = ref.api_version.rpartition("/")
    kind = f"{ref.kind}/{result.subresource}" if result.subresource else ref.kind
    reference = {**ref.reference, "fieldPath": result.subresource}
    return {
        "source": source,
        "policy": result.policy,
        "rule": result.rule,
        "result": result.verdict.value,
        "scored": True,
        "message": result.message[:MAX_MESSAGE],
        "timestamp": {"seconds": int(result.at.timestamp()), "nanos": 0},
        "resources": [{key: value for key, value in reference.items() if value}],
        "properties": {
            "patched-target": f"{group}/{version}, Kind={kind} Name={ref.name}"
            f" Namespace={ref.namespace}"
        },
    }


def key_of(raw: Mapping[str, Any]) -> Key:
    """Return the key of a result as stored in a report."""
    ref: Mapping[str, Any] = (raw.get("resources") or [{}])[0]
    fields = ("apiVersion", "kind", "namespace", "name", "fieldPath")
    place = tuple(str(ref.get(name, "")) for name in fields)
    api_version, kind, namespace, name, subresource = place
    policy, rule = str(raw.get("policy", "")), str(raw.get("rule", ""))
    return policy, rule, api_version, kind, namespace, name, subresource


def results_of(report: Mapping[str, Any] | None) -> dict[Key, Object]:
    """Return the results of a report by their keys."""
    return {key_of(item): item for item in (report or {}).get("results") or ()}


def merge_results(
    stored: Mapping[Key, Object],
    changes: Mapping[Key, Result | None],
    source: str = REPLACING.reporter,
) -> dict[Key, Object]:
    """Return the results after changes; None removes one.

    A result that says the same as before is kept, so that an idle report is not written again.
    """
    merged = dict(stored)
    for key, result in changes.items():
        if result is None:
            merged.pop(key, None)
            continue
        rendered = render_result(result, source)
        old = merged.get(key)
        if result.recovered and old is not None and _seconds(old) >= int(result.at.timestamp()):
            continue
        same = old is not None and old.get("result") == rendered["result"]
        alike = old is not None and same and old.get("message") == rendered["message"]
        if same and not result.changed and (alike or result.verdict is Verdict.PASS):
            continue
        merged[key] = rendered
    return merged


def render_report(
    namespace: str,
    results: Iterable[Object],
    *,
    shortened: bool = False,
    installation: Installation = REPLACING,
) -> Object:
    """Return the report of a namespace.

    Args:
        namespace: Empty for the report of cluster-scoped objects.
        results: All results; no more than `MAX_RESULTS` are kept.
        shortened: Results were left out before.
    """
    kept = sorted(results, key=_weight)
    shortened = shortened or len(kept) > MAX_RESULTS
    kept = kept[:MAX_RESULTS]
    kind = POLICY_REPORTS if namespace else CLUSTER_POLICY_REPORTS
    meta: Object = {"name": installation.prefix, "labels": labels_of(installation)}
    if namespace:
        meta["namespace"] = namespace
    if shortened:
        meta["annotations"] = {ANNOTATION_SHORTENED: f"only {MAX_RESULTS} results are kept"}
    summary = dict.fromkeys(("pass", "fail", "warn", "error", "skip"), 0)
    for item in kept:
        summary[item["result"]] = summary.get(item["result"], 0) + 1
    return {**kind.head, "metadata": meta, "summary": summary, "results": kept}


def is_shortened(report: Mapping[str, Any] | None) -> bool:
    """Return whether a stored report says that results were left out."""
    meta = (report or {}).get("metadata") or {}
    return ANNOTATION_SHORTENED in (meta.get("annotations") or {})


def _weight(raw: Object) -> tuple[bool, int]:
    return raw.get("result") == Verdict.PASS, -_seconds(raw)


def _seconds(raw: Object) -> int:
    return int((raw.get("timestamp") or {}).get("seconds", 0))
