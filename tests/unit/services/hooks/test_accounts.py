"""The first status that is written for a hook."""

from reconciler.clock import SystemClock
from reconciler.hooks.declared import HOOKS, compile_hook
from reconciler.services.hooks.accounts import HookAccounts
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
