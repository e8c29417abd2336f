"""The content of a Secret shows up nowhere else, however a rule uses it."""

import asyncio
import base64
import contextlib
import json
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
import uvloop
import yaml
from click.testing import CliRunner

from devcluster.install import NAMESPACE
from devcluster.programs import ADMISSION, CONTROLLER, Programs
from reconciler.api.meta import Object
from reconciler.cli.main import retrofit
from tests.attacks.conftest import asked_about_policies
from tests.faults.rig import Rig, config_map, open_rig, rule, target

# The time of the first test includes the fixture that creates and deletes all Secrets.
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]
_AT_A_TIME: Final = 8

APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
OPERATIONS: Final = ("CREATE", "UPDATE", "DELETE")
KINDS: Final = ("UpdateRequest", "ClusterPolicy", "Policy", "Event", "ConfigMap", "Lease")
REPORTS: Final = ("PolicyReport", "ClusterPolicyReport", "GlobalContextEntry")
PASSWORD: Final = "base64_decode(request.object.data.password)"
WORD: Final = "base64_decode(request.object.data.word)"
_PER_FUNCTION: Final = (
    f"parse_json({PASSWORD})",
    f"parse_yaml({PASSWORD})",
    "regex_match(base64_decode(request.object.data.pattern), 'x')",
    f"semver_compare({PASSWORD}, '>1')",
    f"to_number({PASSWORD})",
    f"time_parse('2006', {PASSWORD})",
    f"x509_decode({PASSWORD})",
    f"random({PASSWORD})",
    f"divide({PASSWORD}, '1Mi')",
    f"base64_decode({PASSWORD})",
    f"items({PASSWORD}, 'a', 'b')",
    f"time_to_cron({PASSWORD})",
)
"""Expressions that fail on the content or return an invalid value for a label."""


@dataclass(frozen=True, slots=True)
class Canary:
    """A unique value that can be searched for, plain or base64-encoded."""

    token: str

    @property
    def content(self) -> dict[str, str]:
        """Return the data of the Secret."""
        parts = {"password": f"{self.token} is/secret?", "word": self.token}
        parts["pattern"] = f"({self.token}"
        return {key: base64.b64encode(value.encode()).decode() for key, value in parts.items()}

    def found(self, text: str) -> list[str]:
        """Return the text around the first occurrences of the value in a text."""
        # Search only the part of the encoded value that does not depend on adjacent bytes.
        encoded = base64.b64encode(self.token.encode()).decode()[4:-4]
        lower = text.lower()
        places = [*_places(lower, self.token), *_places(text, encoded)]
        return [text[max(0, at - 200) : at + 100] for at in places[:3]]


def _places(text: str, needle: str) -> Iterator[int]:
    at = text.find(needle)
    while at >= 0:
        yield at
        at = text.find(needle, at + 1)


def secret(namespace: str, canary: Canary, **labels: str) -> Object:
    """Return the trigger, with copies of the content that kubectl and its owner left in it."""
    content = canary.content
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": "trigger-secret",
            "namespace": namespace,
            "labels": labels,
            "annotations": {
                APPLIED: json.dumps({"data": content}),
                "copy": f"{canary.token} is/secret?",
            },
        },
        "data": content,
    }


def label(expression: str) -> Object:
    """Return a patch that sets a label to the value of an expression, which is invalid there."""
    return {"metadata": {"labels": {"x": f"{{{{ {expression} }}}}"}}}


def operation(kind: str, path: str, value: str = "x") -> str:
    """Return a JSON patch of one operation."""
    return yaml.safe_dump([{"op": kind, "path": path, "value": value}])


def _entry(**source: Any) -> list[Object]:
    return [{"name": "entry", **source}]


def _ways(place: str) -> dict[str, Object]:
    """Return the ways to use the content: fields of a rule by name; `_rules` adds the rest."""
    path = f"/api/v1/namespaces/{place}"
    read = {"patch": {"data": {"x": "{{ entry }}"}}}
    secrets = f"{path}/secrets/{{{{ request.name }}}}"
    named = {"patch": {"data": {"x": "y"}}}
    nested: Object = {"list": f"[{WORD}]"}
    nested["patchesJson6902"] = operation("remove", "/data/{{ element }}/x")
    each: Object = {"list": f"split({PASSWORD}, ' ')", "patchStrategicMerge": label("element")}
    each["patchStrategicMerge"]["metadata"]["labels"]["x"] += "/ "
    return {
        "strategic": {"patch": label(PASSWORD)},
        "json-patch": {"patch": operation("add", "/metadata/labels", f"{{{{ {PASSWORD} }}}}")},
        "json-patch-path": {"mutate": {"foreach": [nested]}},
        "patch-as-a-whole": {"patch": f"{{{{ {PASSWORD} }}}}"},
        "foreach": {"mutate": {"foreach": [each]}},
        "foreach-list": {
            "mutate": {"foreach": [{"list": f"parse_json({PASSWORD})", "patchStrategicMerge": {}}]}
        },
        "precondition": {
            **named,
            "preconditions": {
                "all": [
                    {"key": f"{{{{ parse_json({PASSWORD}) }}}}", "operator": "Equals", "value": 1}
                ]
            },
        },
        # The API call makes the admission server leave the precondition to the controller.
        "precondition-unmet": {
            **named,
            "context": _entry(apiCall={"urlPath": path}),
            "preconditions": {
                "all": [
                    {
                        "key": f"{{{{ entry.kind }}}} {{{{ {WORD} }}}}",
                        "operator": "Equals",
                        "value": "no",
                    }
                ]
            },
        },
        "anchor": {
            "patch": {
                "metadata": {"(name)": f"{{{{ {WORD} }}}}", "labels": {"x": "y"}},
            }
        },
        "anchor-key": {"patch": {"data": {f"({{{{ {WORD} }}}})": "x", "y": "z"}}},
        "map-key": {"patch": {"metadata": {"labels": {f"{{{{ {PASSWORD} }}}}": "x"}}}},
        "nested": {"patch": label(f"request.object.data.{{{{ {WORD} }}}}")},
        "url-path": {
            **read,
            "context": _entry(apiCall={"urlPath": f"{path}/configmaps/{{{{ {WORD} }}}}"}),
        },
        "url-path-kind": {
            **read,
            "context": _entry(apiCall={"urlPath": f"{path}/{{{{ {WORD} }}}}"}),
        },
        "url-path-refused": {
            **read,
            "context": _entry(apiCall={"urlPath": f"{path}/configmaps/{{{{ {PASSWORD} }}}}"}),
        },
        "url-query": {
            **read,
            "context": _entry(
                apiCall={"urlPath": f"{path}/pods?labelSelector={{{{ {PASSWORD} }}}}"}
            ),
        },
        "service": {
            **read,
            "context": _entry(apiCall={"service": {"url": f"http://{{{{ {WORD} }}}}.nowhere"}}),
        },
        "config-map": {
            **read,
            "context": _entry(configMap={"name": f"{{{{ {WORD} }}}}", "namespace": place}),
        },
        "config-map-namespace": {
            **read,
            "context": _entry(configMap={"name": "x", "namespace": f"{{{{ {WORD} }}}}"}),
        },
        "config-map-refused": {
            **read,
            "context": _entry(configMap={"name": f"{{{{ {PASSWORD} }}}}", "namespace": place}),
        },
        "global": {**read, "context": _entry(globalReference={"name": f"{{{{ {WORD} }}}}"})},
        "variable": {
            **read,
            "context": _entry(variable={"jmesPath": f"request.{{{{ {WORD} }}}}"}),
        },
        "call-of-secrets": {
            "patch": label("base64_decode(entry)"),
            "context": _entry(apiCall={"urlPath": secrets, "jmesPath": "data.password"}),
        },
        "target-name": {**named, "targets": [target(place, f"{{{{ {WORD} }}}}")]},
        "target-name-refused": {**named, "targets": [target(place, f"{{{{ {PASSWORD} }}}}")]},
        "target-namespace": {**named, "targets": [target(f"{{{{ {WORD} }}}}", "x")]},
        "target-kind": {**named, "targets": [target(place, "x", kind=f"{{{{ {WORD} }}}}")]},
        "target-selector": {
            **named,
            "targets": [
                {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "namespace": place,
                    "selector": {"matchLabels": {"x": f"{{{{ {PASSWORD} }}}}"}},
                }
            ],
        },
        "target-secret": {
            "targets": [target(place, "other", kind="Secret")],
            "patch": label("base64_decode(target.data.password)"),
        },
        "annotation": {"patch": label("request.object.metadata.annotations.copy")},
        "last-applied": {"patch": label(f'request.object.metadata.annotations."{APPLIED}"')},
        "old-object": {"patch": label("base64_decode(request.oldObject.data.password)")},
        "whole-object": {"patch": label("to_string(request.object)")},
        "whole-request": {"patch": label("to_string(request)")},
        **{
            f"function-{expression.partition('(')[0]}": {"patch": label(expression)}
            for expression in _PER_FUNCTION
        },
    }


WAYS: Final = tuple(_ways("x"))


def _rules(place: str, way: str) -> list[Object]:
    """Return a way's rules, one per operation, so that each operation has its own request."""
    more = dict(_ways(place)[way])
    made = []
    for name in OPERATIONS:
        given = dict(more)
        patch = given.pop("patch", {"data": {"x": "y"}})
        targets = given.pop("targets", [target(place, "target")])
        mutate = given.pop("mutate", None)
        item = rule(
            place,
            targets,
            patch,
            kinds=["Secret"],
            operations=[name],
            name=name.lower(),
            skipBackgroundRequests=True,
            **given,
        )
        if mutate is not None:
            item["mutate"] = {"targets": targets, **mutate}
        made.append(item)
    return made


async def dump(rig: Rig) -> dict[str, str]:
    """Return all data that users without access to the Secret may read, by location."""
    for kind in REPORTS:
        group = "wgpolicyk8s.io/v1alpha2" if "Report" in kind else "kyverno.io/v2"
        await rig.learn(group, kind)
    seen = {kind: json.dumps(await rig.items(kind, "")) for kind in (*KINDS, *REPORTS)}
    for program in (ADMISSION, CONTROLLER):
        seen[f"log of {program}"] = (rig.programs.logs / f"{program}.log").read_text()
        seen[f"metrics of {program}"] = await asyncio.to_thread(_metrics, rig, program)
    return seen


def _metrics(rig: Rig, program: str) -> str:
    with urllib.request.urlopen(f"{rig.programs.address(program)}/metrics") as answer:
        return str(answer.read().decode())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Desk:
    """Runs ``retrofit`` commands, one at a time because they share the output of this process."""

    folder: Path
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def says(self, rig: Rig, made: Object) -> dict[str, str]:
        """Return the output of the commands for the policy and its trigger."""
        async with self._lock:
            return await asyncio.to_thread(self._run, rig, made)

    def _run(self, rig: Rig, made: Object) -> dict[str, str]:
        policy, trigger = self.folder / "policy.yaml", self.folder / "trigger.yaml"
        trigger.write_text(yaml.safe_dump(made))
        stored = rig.cluster.kubectl("get", "clusterpolicy", rig.namespace, "-o", "yaml")
        policy.write_text(stored)
        address = ("--kubeconfig", str(rig.cluster.kubeconfig))
        calls = (
            ("status", *address),
            ("status", rig.namespace, *address),
            ("preview", str(policy), *address),
            ("explain", str(policy), "--trigger", str(trigger), *address),
            ("explain", str(policy), "--trigger", str(trigger), "--operation", "DELETE", *address),
            ("apply", str(policy), "--resource", str(trigger)),
        )
        return {" ".join(call): CliRunner().invoke(retrofit, call).output for call in calls}


async def _ended(rig: Rig, operations: int) -> None:
    """Wait until there is a request per operation and each request has had an attempt."""

    async def missing() -> Any:
        found = await rig.requests()
        waits = [item for item in found if not item.status.state or not _tried(item.status)]
        return waits or (f"{len(found)} requests" if len(found) < operations else "")

    await rig.settle(missing, within=40.0)


def _tried(status: Any) -> bool:
    return str(status.state) != "Pending" or bool(status.reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The visible data after the Secrets of all ways were created, changed and deleted.

    Attributes:
        said: The output of the commands for each way, or the error that ended it early.
        seen: The data that users without access to the Secrets may read, by location.
        recorded: The Secrets that may contain the content.
    """

    said: Mapping[str, dict[str, str] | Exception]
    seen: Mapping[str, str]
    recorded: list[Object]


async def _gone_its_way(rig: Rig, way: str, canary: Canary, desk: _Desk) -> dict[str, str]:
    """Create, change and delete the Secret of a way; return the output of the commands."""
    place = rig.namespace
    await rig.create(config_map(place, "target"))
    other = secret(place, canary)
    await rig.create({**other, "metadata": {"name": "other", "namespace": place}})
    await rig.apply(*_rules(place, way))
    await rig.create(secret(place, canary))
    await _ended(rig, 1)
    await rig.merge("Secret", "trigger-secret", {"metadata": {"labels": {"changed": "yes"}}})
    await _ended(rig, 2)
    said = await desk.says(rig, secret(place, canary))
    await rig.delete("Secret", "trigger-secret")
    await _ended(rig, 3)
    return said


async def _all_ways(programs: Programs, canaries: Mapping[str, Canary], folder: Path) -> World:
    """Try all ways, several at a time, and collect all data before anything is removed."""
    cluster, desk, gate = programs.cluster, _Desk(folder=folder), asyncio.Semaphore(_AT_A_TIME)
    async with contextlib.AsyncExitStack() as stack:
        first = await stack.enter_async_context(open_rig(cluster, programs, _name()))
        await asked_about_policies(first)
        await stack.enter_async_context(first.granted("secrets"))

        async def go(way: str) -> dict[str, str] | Exception:
            async with gate:
                rig = await stack.enter_async_context(open_rig(cluster, programs, _name()))
                try:
                    return await _gone_its_way(rig, way, canaries[way], desk)
                except Exception as error:  # noqa: BLE001 - the other ways are looked at all the same
                    return error

        said = dict(zip(WAYS, await asyncio.gather(*map(go, WAYS)), strict=True))
        return World(
            said=said, seen=await dump(first), recorded=await first.items("Secret", NAMESPACE)
        )


def _name() -> str:
    return f"attack-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="module")
def canaries() -> dict[str, Canary]:
    """A canary for each way."""
    return {way: Canary(uuid.uuid4().hex) for way in WAYS}


@pytest.fixture(scope="module")
def world(
    live_programs: Programs,
    canaries: dict[str, Canary],
    tmp_path_factory: pytest.TempPathFactory,
) -> World:
    """The data after all ways were tried, with a controller that may read and change Secrets."""
    folder = tmp_path_factory.mktemp("canary")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_all_ways(live_programs, canaries, folder))


@pytest.mark.parametrize("way", WAYS)
def test_a_secret_value_appears_only_in_recorded_fields(
    world: World, canaries: dict[str, Canary], way: str
) -> None:
    canary, said = canaries[way], world.said[way]
    if isinstance(said, Exception):
        raise said
    seen = {**said, **world.seen}
    leaks = {where: found for where, text in seen.items() if (found := canary.found(text))}
    assert not leaks
    kept = [item for item in world.recorded if canary.found(json.dumps(item))]
    assert all(item["metadata"]["name"].endswith("-recorded") for item in kept)
