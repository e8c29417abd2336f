"""Cases of shell-operator's hooks: configurations, schedules, jq, contexts, operations."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any, Final

import pytest

from reconciler.api.meta import CONFIG_MAPS
from reconciler.errors import EvaluationError, InvalidPolicy
from reconciler.hooks import contexts
from reconciler.hooks.bindings import AdmissionBinding, HookConfig, KubernetesBinding
from reconciler.hooks.config import decode_text, load_config, read_config, version_of
from reconciler.hooks.contexts import Context
from reconciler.hooks.crontab import parse_crontab
from reconciler.hooks.monitor import Monitor, ObservedObject, observe
from reconciler.hooks.operations import Operation
from reconciler.hooks.programs import check_program
from reconciler.hooks.values import render_json, result_of
from reconciler.isolation.jq import JqWorkers
from reconciler.memory.cluster import MemoryCluster
from reconciler.memory.kinds import MemoryKinds
from reconciler.memory.operations import MemoryOperations
from reconciler.services.hooks.operations import OperationRunner
from tests.conformance.dialects.cases import CASES, Case, runs
from tests.operations import parse_operations

_DEPTH: Final = 6
Answer = list[Any] | InvalidPolicy | EvaluationError


@runs("shell-operator/config")
def run_config(case: Case) -> None:
    given, wanted = case["input"], case["expected"]
    text = given["text"]
    if "data" in wanted:
        data = decode_text(text)
        assert (data, version_of(data)) == (wanted["data"], wanted["version"])
        return
    config = _config(text, case["kind"])
    assert isinstance(config, HookConfig) is wanted["accepted"], config
    if isinstance(config, HookConfig) and "loaded" in wanted:
        assert _bare(_loaded(config)) == _bare(wanted["loaded"])


def _config(text: str, kind: str) -> HookConfig | InvalidPolicy:
    try:
        config = read_config(decode_text(text)) if kind == "schema-only" else load_config(text)
        _compile(config)
    except InvalidPolicy as error:
        return error
    return config


def _compile(config: HookConfig) -> None:
    if not any(binding.jq_filter for binding in config.kubernetes):
        return

    async def compile_all() -> None:
        jq = JqWorkers(workers=1)
        try:
            for binding in config.kubernetes:
                if binding.jq_filter:
                    await jq.compile(binding.jq_filter, location=binding.name)
        finally:
            await jq.close()

    asyncio.run(compile_all())


def _loaded(config: HookConfig) -> dict[str, Any]:
    return {
        "version": "v1",
        "onStartup": config.startup,
        "schedule": [
            {
                "name": item.name,
                "crontab": item.crontab,
                "allowFailure": item.allow_failure,
                "includeSnapshotsFrom": item.snapshots,
                "queue": item.queue,
                "group": item.group,
            }
            for item in config.schedules
        ],
        "kubernetes": [_kubernetes(item) for item in config.kubernetes],
        "kubernetesValidating": [_admission(item) for item in config.validating],
        "kubernetesMutating": [_admission(item) for item in config.mutating],
        "kubernetesCustomResourceConversion": [
            {
                "name": item.name,
                "crdName": item.crd,
                "conversions": [
                    {"fromVersion": old, "toVersion": new} for old, new in item.conversions
                ],
                "includeSnapshotsFrom": item.snapshots,
                "group": item.group,
            }
            for item in config.conversions
        ],
    }


def _kubernetes(item: KubernetesBinding) -> dict[str, Any]:
    chosen = item.selection
    return {
        "name": item.name,
        "apiVersion": item.api_version,
        "kind": item.kind,
        "eventTypes": item.events,
        "executeHookOnSynchronization": item.on_synchronization,
        "waitForSynchronization": item.wait_for_synchronization,
        "keepFullObjectsInMemory": item.keep_full_objects,
        "jqFilter": item.jq_filter,
        "allowFailure": item.allow_failure,
        "includeSnapshotsFrom": item.snapshots,
        "queue": item.queue,
        "group": item.group,
        "nameSelector": chosen.names and {"matchNames": chosen.names},
        "labelSelector": chosen.labels and chosen.labels.source,
        "fieldSelector": chosen.fields
        and {
            "matchExpressions": [
                {"field": test.field, "operator": test.operator, "value": test.value}
                for test in chosen.fields
            ]
        },
        "namespaceSelector": {
            "nameSelector": chosen.namespaces and {"matchNames": chosen.namespaces},
            "labelSelector": chosen.namespace_labels and chosen.namespace_labels.source,
        },
    }


def _admission(item: AdmissionBinding) -> dict[str, Any]:
    return {
        "name": item.name,
        "group": item.group,
        "includeSnapshotsFrom": item.snapshots,
        "webhook": {
            "name": item.name,
            "clientConfig": {},
            "rules": item.rules,
            "matchConditions": item.conditions,
            "failurePolicy": item.failure_policy,
            "namespaceSelector": item.namespace_labels and item.namespace_labels.source,
            "objectSelector": item.object_labels and item.object_labels.source,
            "sideEffects": item.side_effects,
            "timeoutSeconds": item.timeout,
            "admissionReviewVersions": None,
        },
    }


def _bare(value: Any) -> Any:
    """Return a value without nulls, empty lists and empty maps."""
    if isinstance(value, Mapping):
        found = {key: _bare(item) for key, item in value.items()}
        return {key: item for key, item in found.items() if item not in (None, [], {})}
    if isinstance(value, list | tuple):
        return [_bare(item) for item in value]
    return value


@runs("shell-operator/schedule")
def run_schedule(case: Case) -> None:
    given, wanted = case["input"], case["expected"]
    assert given["timeZone"] == "UTC"
    if not wanted["accepted"]:
        with pytest.raises(InvalidPolicy):
            parse_crontab(given["crontab"], location="crontab")
        return
    schedule = parse_crontab(given["crontab"], location="crontab")
    found: list[str] = []
    moment = schedule.next(datetime.fromisoformat(given["from"]))
    while moment is not None and len(found) < _DEPTH:
        found.append(moment.strftime("%Y-%m-%dT%H:%M:%SZ"))
        moment = schedule.next(moment)
    assert found == wanted["next"]


@runs("shell-operator/jq")
def run_jq(case: Case) -> None:
    given, wanted = case["input"], case["expected"]
    answer = _answers()[json.dumps(given, sort_keys=True)]
    assert isinstance(answer, list) is not wanted.get("error", False), str(answer)
    if isinstance(answer, list):
        assert render_json(result_of(answer)) == wanted["text"]
        assert result_of(answer) == wanted["value"]


@cache
def _answers() -> dict[str, Answer]:
    """Evaluate all cases with one worker, whose start takes longer than all evaluations."""
    cases = [param.values[1]["input"] for param in CASES if param.values[0].endswith("/jq")]

    async def evaluate_all() -> dict[str, Answer]:
        jq = JqWorkers(workers=1)
        try:
            return {json.dumps(case, sort_keys=True): await _answer(jq, case) for case in cases}
        finally:
            await jq.close()

    return asyncio.run(evaluate_all())


async def _answer(jq: JqWorkers, given: Mapping[str, Any]) -> Answer:
    try:
        check_program(given["program"], location="program")
        await jq.compile(given["program"], location="program")
    except InvalidPolicy as error:
        return error
    (answer,) = await jq.evaluate(given["program"], [given["data"]])
    return answer


@runs("shell-operator/contexts")
def run_contexts(case: Case) -> None:
    given, wanted = case["input"], case["expected"]
    assert asyncio.run(_contexts(given)) == wanted["steps"]


async def _contexts(given: Mapping[str, Any]) -> list[list[dict[str, Any]]]:
    jq = JqWorkers(workers=1)
    try:
        hook = _Hook(load_config(given["config"]), jq)
        return [await hook.step(step) for step in given["steps"]]
    finally:
        await jq.close()


class _Hook:
    """A hook whose bindings see the states of a cluster one after another."""

    def __init__(self, config: HookConfig, jq: JqWorkers) -> None:
        self._config = config
        self._jq = jq
        self._monitors = {binding.name: Monitor(binding) for binding in config.kubernetes}
        self._started = False

    async def step(self, step: Mapping[str, Any]) -> list[dict[str, Any]]:
        found: list[Context] = []
        if "schedule" in step:
            due = [item for item in self._config.schedules if item.crontab == step["schedule"]]
            found += map(contexts.of_schedule, due)
        for monitor in self._monitors.values() if "clusterState" in step else ():
            found += await self._seen(monitor, step["clusterState"])
        self._started = True
        return contexts.render(found, lambda name: self._monitors[name].snapshot())

    async def _seen(self, monitor: Monitor, state: Sequence[Mapping[str, Any]]) -> list[Context]:
        changes = list(monitor.replace(await self._observed(monitor.binding, state)))
        if self._started:
            return [contexts.of_change(monitor.binding, change) for change in changes]
        first = contexts.of_synchronization(monitor.binding)
        return [first] if first else []

    async def _observed(
        self, binding: KubernetesBinding, state: Sequence[Mapping[str, Any]]
    ) -> list[ObservedObject]:
        kind = await MemoryKinds().named("", binding.kind)
        names = {kind.kind if kind else binding.kind}
        labels = {
            obj["metadata"]["name"]: obj["metadata"].get("labels") or {}
            for obj in state
            if obj["kind"] == "Namespace"
        }
        chosen = [
            dict(obj)
            for obj in state
            if obj["kind"] in names
            and binding.selection.accepts(
                {**obj, "metadata": {"namespace": "default", **obj["metadata"]}},
                labels.get(obj["metadata"].get("namespace", "default"), {}),
            )
        ]
        if not binding.jq_filter:
            return [observe(binding, obj, None) for obj in chosen]
        results = await self._jq.evaluate(binding.jq_filter, chosen)
        return [
            observe(binding, obj, found)
            for obj, found in zip(chosen, results, strict=True)
            if isinstance(found, list)
        ]


@runs("shell-operator/operations")
def run_operations(case: Case) -> None:
    given, wanted = case["input"], case["expected"]
    if not wanted["accepted"]:
        with pytest.raises(InvalidPolicy):
            parse_operations(given["text"])
        return
    operations = parse_operations(given["text"])
    assert len(operations) == wanted["operations"]
    if case["kind"] == "execute":
        failed, stored = asyncio.run(_executed(given, operations))
        assert failed is wanted["error"]
        assert stored == sorted(wanted["stored"], key=_name)


async def _executed(
    given: Mapping[str, Any], operations: Sequence[Operation]
) -> tuple[bool, list[Any]]:
    cluster = MemoryCluster()
    for obj in given["stored"]:
        cluster.add(obj)
    jq = JqWorkers(workers=1)
    runner = OperationRunner(
        kinds=cluster,
        reader=cluster,
        writer=cluster,
        operations=MemoryOperations(cluster),
        jq=jq,
    )
    try:
        results = await runner.run(operations)
    finally:
        await jq.close()
    page = await cluster.list_page(CONFIG_MAPS, namespace=given["namespace"])
    return any(result.error for result in results), sorted(map(own_part, page.items), key=_name)


def own_part(obj: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object without the metadata that its cluster adds."""
    meta = obj["metadata"]
    kept = {name: meta[name] for name in ("name", "namespace", "labels") if name in meta}
    return {**obj, "metadata": kept}


def _name(obj: Mapping[str, Any]) -> str:
    return str(obj["metadata"]["name"])
