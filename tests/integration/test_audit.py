"""The audit logs of both programs: the user behind a trigger, and the outcome."""

import asyncio
import json
from typing import Any

import pytest

from devcluster.programs import ADMISSION, CONTROLLER
from reconciler.api.meta import Object
from tests.faults.rig import Rig, audit_log, config_map, rule, target

pytestmark = pytest.mark.cluster

GOT = {"data": {"got": "{{ request.object.metadata.name }}"}}


def lines(rig: Rig, program: str) -> list[Any]:
    """Return the lines of a program's audit log about the test's policy."""
    text = audit_log(rig.cluster, program).read_text()
    found = [json.loads(line) for line in text.splitlines()]
    return [line for line in found if line["policy"] == rig.namespace]


async def create_as(rig: Rig, user: str, obj: Object) -> None:
    names = (f"--as={user}", "--as-group=system:masters", "--as-group=developers")
    text = json.dumps(obj)
    await asyncio.to_thread(rig.cluster.kubectl, *names, "create", "-f", "-", stdin=text)


async def test_each_program_writes_an_audit_line_for_a_change(rig: Rig) -> None:
    place = rig.namespace
    await rig.create(config_map(place, "target"))
    await rig.apply(rule(place, [target(place, "target")], GOT))
    await create_as(rig, "ada", config_map(place, "trigger-1", secret="t0ps3cret"))
    await rig.finish()
    (request,) = await rig.requests()
    (asked,) = lines(rig, ADMISSION)
    assert (asked["event"], asked["request"]) == ("recorded", request.name)
    assert (asked["user"], asked["operation"]) == ("ada", "CREATE")
    assert "developers" in asked["groups"]
    assert (asked["trigger"]["namespace"], asked["trigger"]["name"]) == (place, "trigger-1")

    async def unsaid() -> str:
        # The controller writes the line after the final status of the request.
        return "" if lines(rig, CONTROLLER) else "no line of the controller"

    await rig.settle(unsaid, within=10)
    done = [line for line in lines(rig, CONTROLLER) if line["request"] == request.name]
    assert [(line["event"], line["outcome"]) for line in done] == [("target", "Patched")]
    assert done[0]["target"]["name"] == "target"
    live = await rig.get("ConfigMap", "target")
    assert done[0]["after"] == live["metadata"]["resourceVersion"]
    assert "t0ps3cret" not in audit_log(rig.cluster, ADMISSION).read_text()


async def test_the_audit_line_of_an_admission_change_names_the_writer(rig: Rig) -> None:
    changes = rule(rig.namespace, [], {"metadata": {"labels": {"seen": "yes"}}})
    del changes["mutate"]["targets"]
    await rig.apply(changes)
    await create_as(rig, "grace", config_map(rig.namespace, "trigger-1"))
    (line,) = lines(rig, ADMISSION)
    assert (line["event"], line["user"], line["rule"]) == ("changed", "grace", "rule")
    assert "request" not in line
