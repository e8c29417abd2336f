"""Hooks of a scenario, run by either program, and the objects that their events produced."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from random import Random  # noqa: TID251 - of a seed that is printed
from signal import Signals
from typing import Any

from devcluster.install import NAMESPACE
from devcluster.programs import CONTROLLER, HOOKS
from reconciler.api.meta import Object
from reconciler.cli.manifests import find_manifests
from reconciler.clock import Clock, SystemClock
from tests.faults.hooked import hook, seeds
from tests.faults.rig import SHORT_LEASE
from tests.faults.table.stage import Stage

_DUE = timedelta(seconds=60)
"""Time from the installation until the schedule is due; a daily crontab is due once per run."""
_STANDBY = "retrofit-hooks-standby"
_READY = 60.0
_LEASES = {CONTROLLER: "kube-retrofit-controller", HOOKS: "kube-retrofit-hooks"}
_MADE = """.[] | select(%s) | {operation: "Create", object: {apiVersion: "v1", kind: "ConfigMap",
metadata: {generateName: "made-", namespace: "%s", labels: {made: (%s)}}, data: {at: %s}}}"""
_ABSENT = """.[] | {operation: "MergePatch", kind: "ConfigMap", namespace: "%s", name: "absent",
mergePatch: {data: {}}}"""
_SCRIPT = """#!/bin/bash
if [[ $1 == --config ]]; then
cat <<'END'
%s
END
else
jq -c '%s' "$BINDING_CONTEXT_PATH" > "$KUBERNETES_PATCH_PATH"
fi
"""
_RIGHTS = {
    "rules": [
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "verbs": ["get", "list", "watch", "create", "patch"],
        }
    ]
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HookRow:
    """One row of the table of hooks.

    Attributes:
        name: The name of the scenario.
        program: The program that ran the hooks.
        events: How many events had to produce an object, including the due schedule.
        lost: How many of them produced none.
        twice: The number of surplus objects.
        unordered: How many objects were created after the object of a later event.
        stuck: Whether the hook whose first run always fails reported the next attempt.
        kills: How often the program was killed.
        heal: Seconds from the end of the fault until all objects existed; None for never.
        left: What was missing at the deadline.
        problem: The error that ended the scenario early.
    """

    name: str
    program: str
    events: int = 0
    lost: int = 0
    twice: int = 0
    unordered: int = 0
    stuck: bool = False
    kills: int = 0
    heal: float | None = None
    left: str = ""
    problem: str = ""

    @property
    def good(self) -> bool:
        """Return whether each event had one object, in order, while another queue was stuck."""
        broken = self.lost or self.twice or self.unordered or self.heal is None
        return bool(self.events and self.stuck and not broken)


def _bindings(place: str, due: datetime) -> dict[str, tuple[dict[str, Any], str]]:
    """Return each hook's bindings and the jq program that turns its contexts into operations."""
    here = {"nameSelector": {"matchNames": [place]}}
    watched = seeds(executeHookOnEvent=["Added", "Deleted"], namespace=here)
    first = seeds(
        executeHookOnEvent=["Added"],
        namespace=here,
        nameSelector={"matchNames": ["seed-0"]},
        queue="stuck",
    )
    crontab = f"{due.second} {due.minute} {due.hour} * * *"
    label = '.object.metadata.name + "-" + (.watchEvent | ascii_downcase)'
    event = '.type == "Event"', place, label, ".object.metadata.resourceVersion"
    moment = '.type == "Schedule"', place, '"due"', '""'
    return {
        "ledger": ({"kubernetes": [watched]}, _MADE % event),
        "stuck": ({"kubernetes": [first]}, _ABSENT % place),
        "due": ({"schedule": [{"name": "due", "crontab": crontab}]}, _MADE % moment),
    }


@dataclass(kw_only=True)
class HookStage:
    """The operations by which a scenario disturbs a program that runs hooks.

    Attributes:
        stage: The stage of the scenario.
        program: CONTROLLER for declared hooks, or HOOKS for executables.
        seed: The seed of the random delays and choices.
        due: When the schedule is due.
        kills: How often the program was killed.
        deleted: The names of the objects that were deleted again.
    """

    stage: Stage
    program: str
    seed: str
    clock: Clock = field(default_factory=SystemClock)
    random: Random = field(init=False)
    due: datetime = field(init=False)
    kills: int = 0
    deleted: set[str] = field(default_factory=set)
    _holders: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Seed the random generator."""
        self.random = Random(self.seed)

    async def install(self) -> None:
        """Install the hooks, and wait until they are Ready, before the schedule is due."""
        rig = self.stage.rig
        if self.program == HOOKS:
            await self._give_rights()
        self.due = self.clock.now() + _DUE
        bound = _bindings(rig.namespace, self.due)
        if self.program == CONTROLLER:
            for name, (bindings, program) in bound.items():
                run = {"jq": f".contexts | ({program})"}
                await rig.create(hook(rig.namespace, name, **bindings, run=run))
        else:
            for name, (bindings, program) in bound.items():
                self._write(name, bindings, program)
            await self._start(HOOKS)

        async def unready() -> list[str]:
            found = [await rig.find("Hook", name) for name in bound]
            return [str(item) for item in found if not _is_ready(item)]

        await rig.settle(unready, within=_READY)
        assert self.clock.now() < self.due, "the schedule was due before its hook was Ready"

    def _write(self, name: str, bindings: Mapping[str, Any], program: str) -> None:
        """Write the executable of a hook."""
        config = json.dumps({"configVersion": "v1", **bindings})
        file = self._folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(_SCRIPT % (config, program))
        file.chmod(0o755)

    @property
    def _folder(self) -> Path:
        return self.stage.house.programs.logs / self.stage.rig.namespace

    async def _give_rights(self) -> None:
        place, by_hand = self.stage.rig.namespace, self.stage.by_hand
        kubectl = self.stage.house.plane.kubectl
        rbac = find_manifests() / "manifests" / "hooks" / "rbac.yaml"
        await by_hand(kubectl, "apply", "-n", place, "-f", str(rbac))
        meta = {"metadata": {"name": "made", "namespace": place}}
        group = "rbac.authorization.k8s.io"
        account = {"kind": "ServiceAccount", "name": HOOKS, "namespace": place}
        documents = [
            {"apiVersion": f"{group}/v1", "kind": "Role", **meta, **_RIGHTS},
            {
                "apiVersion": f"{group}/v1",
                "kind": "RoleBinding",
                **meta,
                "roleRef": {"apiGroup": group, "kind": "Role", "name": "made"},
                "subjects": [account],
            },
        ]
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": documents})
        await by_hand(kubectl, "apply", "-f", "-", stdin=text)

    async def _start(self, name: str) -> None:
        start = self.stage.house.programs.start_hooks
        await self.stage.by_hand(
            start, self.stage.rig.namespace, self._folder, flags=SHORT_LEASE, name=name
        )
        self.stage.keep_up(name)

    async def standby(self) -> None:
        """Start a second replica, which waits for the Lease of the first."""
        if self.program == CONTROLLER:
            await self.stage.standby()
        else:
            await self._start(_STANDBY)

    async def leads(self) -> None:
        """Wait until the leader is a process that no earlier call has seen as the leader."""
        name = _LEASES[self.program]
        place = NAMESPACE if self.program == CONTROLLER else self.stage.rig.namespace

        async def missing() -> str:
            lease = await self.stage.rig.find("Lease", name, place)
            holder = str(((lease or {}).get("spec") or {}).get("holderIdentity") or "")
            if not holder or holder in self._holders:
                return f"nobody new leads, but {holder!r}"
            self._holders.add(holder)
            return ""

        await self.stage.rig.settle(missing, within=_READY)

    async def kill(self, number: Signals = Signals.SIGKILL) -> None:
        """Send the program a signal; it is restarted when it has ended."""
        await self.stage.kill(self.program, number)
        self.kills += number is Signals.SIGKILL

    async def delete(self, names: list[str]) -> None:
        """Delete objects that the hooks are bound to."""
        for name in names:
            await self.stage.rig.delete("ConfigMap", name)
            self.deleted.add(name)

    async def wanted(self) -> set[str]:
        """Return the values of the label ``made`` on the objects that hooks must have created."""
        items = await self.stage.rig.items("ConfigMap", labelSelector="seed=yes")
        stored = {item["metadata"]["name"] for item in items} | self.deleted
        deleted = {f"{name}-deleted" for name in self.deleted}
        return {f"{name}-added" for name in stored} | deleted | {"due"}

    async def made(self) -> list[Object]:
        """Return the objects that hooks created, in order of creation."""
        items = await self.stage.rig.items("ConfigMap", labelSelector="made")
        return sorted(items, key=lambda item: int(item["metadata"]["resourceVersion"]))

    async def statuses(self) -> dict[str, Mapping[str, Any]]:
        """Return the status of each Hook by name."""
        items = await self.stage.rig.items("Hook")
        return {item["metadata"]["name"]: item.get("status") or {} for item in items}


def counted(made: list[Object]) -> Counter[str]:
    """Return the number of objects per event."""
    return Counter(item["metadata"]["labels"]["made"] for item in made)


def unordered(made: list[Object]) -> int:
    """Return how many objects were created after the object of a later event."""
    moments = [int(item["data"]["at"]) for item in made if item["data"]["at"]]
    return sum(later < earlier for earlier, later in pairwise(moments))


def _is_ready(obj: Object | None) -> bool:
    conditions = ((obj or {}).get("status") or {}).get("conditions") or ()
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)
