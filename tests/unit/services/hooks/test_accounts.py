"""The statuses of hooks, and when they are written."""

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from reconciler.api.meta import Object, PolicyRef, policy_ref, version_number
from reconciler.clock import SystemClock
from reconciler.errors import ClusterError, Conflict, Unavailable
from reconciler.hooks.crontab import parse_crontab
from reconciler.hooks.declared import CLUSTER_HOOKS, HOOKS, compile_hook
from reconciler.hooks.records import Passed
from reconciler.services.hooks.accounts import HookAccount, HookAccounts
from tests.unit.services.hooks.world import PLACE, Ending, Objects, World


async def test_the_status_that_makes_a_hook_ready_also_records_its_schedules() -> None:
    world = World()
    schedule = [{"name": "tick", "crontab": "0 * * * *"}]
    run = {"operations": [{"operation": "Delete", "kind": "Pod", "name": "a"}]}
    meta = {"namespace": PLACE, "name": "clock"}
    obj = {
        "apiVersion": HOOKS.api_version,
        "kind": HOOKS.kind,
        "metadata": meta,
        "spec": {"schedule": schedule, "run": run},
    }
    stored = world.cluster.create(HOOKS, obj)
    accounts = HookAccounts(
        hooks=Objects(world.cluster, HOOKS, Ending()), clock=SystemClock(), warn=print
    )
    accounts.open(compile_hook(stored), stored)
    await accounts.flush()
    status = (await world.cluster.get(HOOKS, PLACE, "clock"))["status"]
    assert [item["type"] for item in status["conditions"] if item["status"] == "True"] == ["Ready"]
    assert [(item["binding"], item["crontab"]) for item in status["schedules"]] == [
        ("tick", "0 * * * *")
    ]


CURSOR = {"binding": "pods", "namespace": "", "watched": "w", "resourceVersion": "3"}
DUE = {"binding": "tick", "crontab": "* * * * *", "last": "2026-01-01T00:00:00Z"}
ODD = (None, 3, 1.5, True, "x", "9" * 5000, [1], {"a": 1}, "9999-12-31T23:59:59Z")
ODD_STATUSES = [
    *({name: odd} for name in ("cursors", "schedules", "conditions") for odd in ODD),
    *({name: [odd]} for name in ("cursors", "schedules", "conditions") for odd in ODD),
    *({"cursors": [{**CURSOR, name: odd}]} for name in CURSOR for odd in ODD),
    *({"schedules": [{**DUE, name: odd}]} for name in DUE for odd in ODD),
    *({name: odd} for name in ("startedGeneration", "runs", "failed", "lastRun") for odd in ODD),
]


def test_a_status_that_a_user_has_edited_harms_only_the_progress_of_its_hook() -> None:
    run = {"operations": [{"operation": "Delete", "kind": "Pod", "name": "a"}]}
    bindings = {
        "kubernetes": [{"name": "pods", "kind": "Pod"}],
        "schedule": [{"name": "tick", "crontab": "* * * * *"}],
    }
    meta = {"namespace": PLACE, "name": "a", "generation": 1}
    spec = {**bindings, "run": run}
    obj = {"apiVersion": HOOKS.api_version, "kind": HOOKS.kind, "metadata": meta, "spec": spec}
    hook, now = compile_hook(obj), SystemClock().now()
    for status in ODD_STATUSES:
        account = HookAccount.of({**obj, "status": status})
        account.keep(hook.config)
        account.begin(hook.config, now)
        for cursor in account.cursors.values():
            assert version_number(cursor.version) in {0, 3}, status
        for moment in account.schedules.values():
            assert parse_crontab("* * * * *", location="").next(moment), status
        assert account.render(now)["runs"] in {0, 1, 3}, status


class Failing:
    """Stored hooks; the status of some cannot be written."""

    def __init__(self) -> None:
        self.errors: dict[str, ClusterError] = {}
        self.ready: list[tuple[str, str]] = []

    async def write_status(self, hook: Object, status: Mapping[str, Any]) -> Object:
        name = policy_ref(hook).name
        if name in self.errors:
            raise self.errors[name]
        self.ready.append((name, status["conditions"][0]["status"]))
        return hook

    async def stored(self) -> list[Object]:
        return []

    async def find(self, ref: PolicyRef) -> Object | None:
        raise AssertionError(ref)

    async def events(self) -> AsyncIterator[tuple[str, Object]]:
        yield "", {}

    def look(self) -> None:
        """Do nothing: the kind is always served."""


def declared(name: str, version: int = 1, **spec: Any) -> Object:
    run = {"operations": [{"operation": "Delete", "kind": "Pod", "name": "a", "namespace": PLACE}]}
    meta = {"name": name, "uid": name, "generation": 1, "resourceVersion": str(version)}
    return {
        "apiVersion": CLUSTER_HOOKS.api_version,
        "kind": CLUSTER_HOOKS.kind,
        "metadata": meta,
        "spec": {"onStartup": 1, "run": run, **spec},
    }


def opened(accounts: HookAccounts, obj: Object) -> HookAccount:
    return accounts.open(compile_hook(obj), obj)


AWAY = Unavailable("the API server answered 503", status=503)
CHANGED = Conflict("it changed", status=409)


async def test_a_status_that_cannot_be_written_does_not_hold_up_the_others() -> None:
    hooks = Failing()
    accounts = HookAccounts(hooks=hooks, clock=SystemClock(), warn=print)
    for name in ("a", "b", "c"):
        opened(accounts, declared(name))
    refused = declared("d")
    accounts.refuse(policy_ref(refused), refused, "spec.run: wrong")
    hooks.errors = {"a": AWAY, "d": AWAY}
    with pytest.raises(Unavailable):
        await accounts.flush()
    assert hooks.ready == [("b", "True"), ("c", "True")]


@pytest.mark.parametrize("error", [AWAY, CHANGED], ids=["away", "changed"])
async def test_a_refusal_is_written_until_it_is_stored(error: ClusterError) -> None:
    hooks = Failing()
    accounts = HookAccounts(hooks=hooks, clock=SystemClock(), warn=print)
    before = declared("a")
    opened(accounts, before)
    accounts.refuse(policy_ref(before), before, "spec.run: wrong")
    hooks.errors = {"a": error}
    with contextlib.suppress(Unavailable):
        await accounts.flush()
    hooks.errors = {}
    newer = declared("a", version=2)
    accounts.on_stored(policy_ref(newer), newer)
    for _ in range(2):
        await accounts.flush()
    assert hooks.ready == [("a", "False")]


async def test_a_hook_that_is_repaired_is_no_longer_refused() -> None:
    hooks = Failing()
    accounts = HookAccounts(hooks=hooks, clock=SystemClock(), warn=print)
    refused = declared("a")
    accounts.refuse(policy_ref(refused), refused, "spec.run: wrong")
    opened(accounts, declared("a", version=2))
    await accounts.flush()
    assert hooks.ready == [("a", "True")]


def test_the_cursors_of_left_namespaces_are_bounded() -> None:
    account = HookAccount.of(declared("a"))
    account.passed(Passed(binding="b", scope="stays", version="1", watched="w"))
    for number in range(2, 2000):
        scope = f"preview-{number}"
        account.passed(Passed(binding="b", scope=scope, version=str(number), watched="w"))
        account.passed(
            Passed(binding="b", scope=scope, version=str(number), watched="w", left=True)
        )
    assert account.scopes_of("b") == {"stays"}
    assert len(account.cursors) < 1000
    assert account.cursors["b", "preview-1999"].left


def test_a_problem_of_a_watch_that_the_hook_no_longer_has_is_dropped() -> None:
    accounts = HookAccounts(hooks=Failing(), clock=SystemClock(), warn=print)
    everywhere = declared("a", kubernetes=[{"name": "b", "kind": "ConfigMap"}])
    account = opened(accounts, everywhere)
    account.expect([("b", "")])
    account.tell("b", "", "b: no right to list configmaps")
    place = {"nameSelector": {"matchNames": ["a"]}}
    limited = declared("a", 2, kubernetes=[{"name": "b", "kind": "ConfigMap", "namespace": place}])
    account = opened(accounts, limited)
    account.expect([("b", "a")])
    account.passed(Passed(binding="b", scope="a", version="5", watched="w"))
    account.tell("b", "a", "")
    assert account.problem == ""
