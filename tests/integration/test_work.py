"""`retrofit run`, `status`, `retry` and `top` on a cluster with both programs running."""

import asyncio
import json
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from reconciler.api.meta import ANNOTATION_RUN
from reconciler.api.updaterequest import Source, State
from reconciler.cli.main import retrofit
from tests.faults.rig import Rig, config_map, rule, target

pytestmark = pytest.mark.cluster

GOT = {"data": {"got": "{{ request.object.metadata.name }}"}}


async def desk(rig: Rig, *words: str, code: int = 0, kubeconfig: Path | None = None) -> Result:
    """Run a `retrofit` command against the cluster, and check its exit code."""
    address = ("--kubeconfig", str(kubeconfig or rig.cluster.kubeconfig))
    done = await asyncio.to_thread(CliRunner().invoke, retrofit, [*words, *address])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code == code, done.stderr + done.stdout
    return done


async def pairs(rig: Rig, count: int) -> dict[str, dict[str, str]]:
    """Create triggers and their targets, and return the data expected in the targets."""
    numbers = [f"{number:03}" for number in range(count)]
    place = rig.namespace
    await rig.create_all(config_map(place, f"trigger-{n}", to=f"target-{n}") for n in numbers)
    await rig.create_all(config_map(place, f"target-{n}") for n in numbers)
    return {f"target-{n}": {"got": f"trigger-{n}"} for n in numbers}


def each(rig: Rig, **more: Any) -> Any:
    """Return a rule that gives each trigger its own target."""
    return rule(
        rig.namespace, [target(rig.namespace, "{{ request.object.data.to }}")], GOT, **more
    )


async def test_run_applies_a_rule_to_existing_triggers(rig: Rig) -> None:
    wanted = await pairs(rig, 5)
    await rig.apply(each(rig), each(rig, name="on-create", operations=["CREATE"]))
    done = await desk(rig, "run", rig.namespace, "rule", "--wait")
    assert await rig.lacking(wanted) == {}
    assert "rule rule: Completed" in done.stdout
    assert ", 5 patched" in done.stdout
    (request,) = await rig.requests()
    assert (request.spec.source, request.spec.sweep) == (Source.MANUAL, True)
    refused = await desk(rig, "run", rig.namespace, "on-create", code=1)
    assert "rule on-create cannot run now: every filter of its match lists operations" in (
        refused.stderr
    )
    unknown = await desk(rig, "run", rig.namespace, "other", code=2)
    assert "its rules: rule, on-create" in unknown.stderr


async def test_every_new_value_of_the_run_annotation_runs_the_rules_once(rig: Rig) -> None:
    await rig.apply(each(rig), each(rig, name="on-create", operations=["CREATE"]))
    wanted = await pairs(rig, 3)
    await rig.finish(6)
    await rig.delete("ConfigMap", "target-000")
    await rig.create(config_map(rig.namespace, "target-000"))
    before = len(await rig.requests())

    async def run(value: str) -> None:
        change = {"metadata": {"annotations": {ANNOTATION_RUN: value}}}
        await rig.merge("ClusterPolicy", rig.namespace, change, namespace="")

        async def missing() -> Any:
            policy = await rig.get("ClusterPolicy", rig.namespace, "")
            seen = policy["status"]["mutateExisting"].get("manualRun") or {}
            return "" if seen.get("value") == value else seen or "nothing"

        await rig.settle(missing, within=15.0)

    await run("one")
    await rig.applied(wanted, within=15.0)
    policy = await rig.get("ClusterPolicy", rig.namespace, "")
    (refused,) = policy["status"]["mutateExisting"]["manualRun"]["refused"]
    assert refused.startswith("rule on-create: every filter of its match lists operations")
    await rig.finish(before + 1)
    await run("one")
    assert len(await rig.requests()) == before + 1
    await run("two")
    await rig.finish(before + 2)
    sweeps = [item for item in await rig.requests(state=State.COMPLETED) if item.spec.sweep]
    assert len(sweeps) == 2


async def status(rig: Rig, *words: str) -> Any:
    """Return the output of `status -o json` for the test's policy."""
    return json.loads((await desk(rig, "status", rig.namespace, "-o", "json", *words)).stdout)


async def test_status_groups_waiting_requests_by_missing_right_with_its_cure(rig: Rig) -> None:
    place = rig.namespace
    secret = target(place, "hidden", "Secret")
    async with rig.granted("secrets"):
        await rig.apply(rule(place, [secret], {"metadata": {"labels": {"got": "yes"}}}))
    await rig.create_all(config_map(place, f"trigger-{n}") for n in range(3))

    async def missing() -> Any:
        found = (await status(rig))["troubles"]
        counts = [item["count"] for item in found if item["reason"] == "Forbidden"]
        return "" if counts == [3] else found

    await rig.settle(missing, within=20.0)
    found = await status(rig)
    (trouble,) = found["troubles"]
    assert trouble["missingPermission"] == f"get secrets in namespace {place}"
    assert "ClusterRole" in trouble["cure"]
    assert trouble["nextAttemptTime"]
    (line,) = found["policies"]
    assert (line["pending"], line["failed"], line["notReady"]) == (3, 0, "")
    shown = (await desk(rig, "status", place)).stdout
    assert f"3 requests of {place} / rule, Forbidden" in shown
    assert "next attempt: " in shown
    assert (await status(rig, "-n", "elsewhere"))["troubles"] == []
    woken = await desk(rig, "retry", place)
    assert "repeated: 0 failed requests; tried at once: 3 waiting requests" in woken.stdout

    async def not_woken() -> Any:
        attempts = [item.status.attempts for item in await rig.requests()]
        return "" if min(attempts) >= 2 else attempts

    await rig.settle(not_woken, within=10.0)


async def test_status_watch_shows_waiting_and_then_completed_requests(rig: Rig) -> None:
    place = rig.namespace
    await rig.create(config_map(place, "target"))
    await rig.apply(rule(place, [target(place, "target")], GOT))
    await rig.pause()
    program = str(Path(sys.executable).with_name("retrofit"))
    words = ("status", place, "--watch", "-o", "json", "--kubeconfig", str(rig.cluster.kubeconfig))
    watching = await asyncio.create_subprocess_exec(
        program, *words, stdout=asyncio.subprocess.PIPE
    )
    assert watching.stdout is not None
    try:
        await rig.create(config_map(place, "trigger-1"))
        async with asyncio.timeout(30):
            await shown(watching.stdout, pending=1, completed=0)
            await rig.resume()
            await shown(watching.stdout, pending=0, completed=1)
    finally:
        watching.terminate()
        await watching.communicate()


async def test_top_shows_the_figures_and_the_running_programs(rig: Rig) -> None:
    place = rig.namespace
    await rig.create(config_map(place, "target"))
    await rig.apply(rule(place, [target(place, "target")], GOT))
    await rig.create(config_map(place, "trigger-1"))
    await rig.finish()

    async def missing() -> Any:
        found = json.loads((await desk(rig, "top", place, "-o", "json")).stdout)
        (policy,) = found["policies"]
        right = (policy["waiting"], policy["doneTriggers"], policy["patched"]) == (0, 1, 1)
        return "" if right and found["leader"]["fresh"] and found["admission"]["fresh"] else found

    await rig.settle(missing, within=15.0)
    shown = (await desk(rig, "top")).stdout
    assert "a controller leads; an admission server serves" in shown
    assert place in shown
    unknown = await desk(rig, "top", f"{place}-other", code=2)
    assert f"the cluster has no ClusterPolicy {place}-other" in unknown.stderr


async def shown(lines: asyncio.StreamReader, **wanted: int) -> None:
    """Wait until a line shows these counts of the one policy."""
    async for line in lines:
        (policy,) = json.loads(line)["policies"]
        if wanted.items() <= policy.items():
            return
    raise AssertionError("the command ended")


async def test_retry_repeats_a_failed_request_once(rig: Rig) -> None:
    place = rig.namespace
    await rig.apply(each(rig))
    await rig.create(config_map(place, "trigger-1", to="target-1"))
    await rig.finish()
    (failed,) = await rig.requests()
    assert failed.status.state is State.FAILED
    (trouble,) = (await status(rig))["troubles"]
    assert (trouble["reason"], trouble["state"]) == ("TargetNotFound", "Failed")
    await rig.create(config_map(place, "target-1"))
    done = await desk(rig, "retry", place, "--failed")
    assert "repeated: 1 failed request;" in done.stdout
    await rig.applied({"target-1": {"got": "trigger-1"}}, within=15.0)
    await rig.finish(2)
    assert (await status(rig))["troubles"] == []
    again = await desk(rig, "retry", place, "--failed")
    assert "repeated: 0 failed requests;" in again.stdout
    named = await desk(rig, "retry", failed.name, code=1)
    assert "repeats its work" in named.stderr
    assert len(await rig.requests()) == 2


async def test_the_shipped_roles_suffice_for_the_cli(rig: Rig) -> None:
    place, name = rig.namespace, f"viewer-{uuid.uuid4().hex[:8]}"
    await pairs(rig, 1)
    await rig.apply(each(rig))
    shown = ("--kubeconfig", str(rig.cluster.kubeconfig), "--as", name)

    async def run(*words: str, code: int = 0) -> Result:
        done = await asyncio.to_thread(CliRunner().invoke, retrofit, [*words, *shown])
        assert done.exit_code == code, done.stderr + done.stdout
        return done

    refused = await run("status", code=2)
    assert refused.stderr.startswith("Error: you may not list updaterequests")
    assert refused.stderr.count("\n") == 1
    rig.cluster.kubectl(
        "create", "clusterrolebinding", name, "--clusterrole=view", f"--user={name}"
    )
    try:
        await run("status", place)
        assert "you may not read its Lease" in (await run("top", place)).stdout
        refused = await run("run", place, code=2)
        assert "you may not create updaterequests" in refused.stderr
        role = "--clusterrole=kyverno:rbac:operate:updaterequests"
        rig.cluster.kubectl("create", "rolebinding", name, role, f"--user={name}", "-n", "kyverno")
        await run("run", place, "--wait")
        await rig.create(config_map(place, "trigger-999", to="target-999"))
        await rig.finish()
        await rig.create(config_map(place, "target-999"))
        done = await run("retry", place, "--failed")
        assert "repeated: 1 failed request;" in done.stdout
        await rig.applied({"target-999": {"got": "trigger-999"}}, within=15.0)
    finally:
        rig.cluster.kubectl("delete", "clusterrolebinding", name)
        rig.cluster.kubectl("delete", "rolebinding", name, "-n", "kyverno", "--ignore-not-found")
