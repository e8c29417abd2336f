"""The webhook server keeps only the GlobalContextEntries that its rules name."""

from typing import Any

import pytest

from admission.global_entries import NamedEntries
from reconciler.api.meta import Object
from reconciler.clock import SystemClock
from reconciler.isolation import ChildProcesses
from reconciler.memory.cluster import MemoryCluster
from reconciler.observe.metrics import Metrics
from reconciler.services.catalog.globalcontext import Dependencies, GlobalContext, ProblemLog
from reconciler.services.catalog.policy_store import PolicyStore
from tests.unit.admission.conftest import Make
from tests.unit.keptdata import Cluster, entry


@pytest.fixture
def index() -> PolicyStore:
    return PolicyStore()


@pytest.fixture
def entries(index: PolicyStore) -> NamedEntries:
    clock = SystemClock()
    cluster = Cluster(clock)
    said = list[str]()
    context = GlobalContext(
        Dependencies(
            entries=cluster,
            kinds=MemoryCluster(),
            loader=cluster,
            clock=clock,
            spread=lambda pause: pause,
            warn=said.append,
            isolation=ChildProcesses(),
            most_bytes=2_000,
        ),
        verdicts=ProblemLog(warn=said.append),
        wanted=frozenset(),
    )
    found = NamedEntries(context=context)
    index.subscribe(found.on_policy)
    return found


def reading(*names: str) -> list[Any]:
    return [
        {"name": f"e{position}", "globalReference": {"name": name}}
        for position, name in enumerate(names)
    ]


def versioned(policy: Object, generation: int) -> Object:
    return {**policy, "metadata": {**policy["metadata"], "generation": generation}}


def test_entries_named_by_current_policies_are_wanted(entries, index, make: type[Make]):
    one, other = (
        make.mutating("one", context=reading("teams", "costs.by-team")),
        make.mutating("other", context=reading("teams")),
    )
    for policy in (one, other, make.mutating("plain")):
        index.apply(policy)
    assert entries.context.wanted == {"teams", "costs"}
    index.apply(versioned(make.mutating("one", context=reading("zones")), 9))
    assert entries.context.wanted == {"teams", "zones"}
    index.on_deleted(other)
    assert entries.context.wanted == {"zones"}


def test_entries_named_in_a_foreach_are_wanted(entries, index, make: type[Make]):
    block = {
        "list": "request.object.data.list",
        "context": reading("inner"),
        "patchStrategicMerge": {"data": {"a": "{{ e0 }}"}},
    }
    index.apply(make.mutating(mutate={"foreach": [block]}))
    assert entries.context.wanted == {"inner"}


def test_all_entries_are_wanted_if_a_name_contains_a_variable(entries, index, make: type[Make]):
    policy = make.mutating(context=reading("{{ request.namespace }}-teams"))
    index.apply(policy)
    assert entries.context.wanted is None
    index.on_deleted(policy)
    assert entries.context.wanted == frozenset()


def test_entries_of_rules_with_targets_and_of_broken_rules_are_not_wanted(
    entries, index, make: type[Make]
):
    index.apply(make.policy(context=reading("teams")))
    index.apply(make.mutating("broken", context=reading("teams"), mutate={"nothing": 1}))
    assert entries.context.wanted == frozenset()


async def test_metrics_count_ready_entries_and_failures(entries):
    metrics = Metrics()
    entries.show(metrics)
    verdicts = entries.context.verdicts
    for problem in ("away", ""):
        verdicts.judged.emit(entry(), problem)
    value = metrics.registry.get_sample_value
    assert value("retrofit_entry_failures_total") == 1
    assert value("retrofit_entries", {"state": "ready"}) == 0
