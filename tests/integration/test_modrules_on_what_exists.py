"""A ModRule changes an object that existed before it in the same way as one created later."""

import json
from typing import Any

import pytest
import yaml

from reconciler.api.meta import ANNOTATION_EXISTING, Object
from tests.faults.rig import Rig, config_map, deployment
from tests.integration.test_modrules import kubectl, modrules, ready
from tests.unit.dialects.kubemod.modrules import modrule
from tests.unit.dialects.kubemod.test_use_cases import EMPTY_CONTEXT, NO_MESH

pytestmark = pytest.mark.cluster

__all__ = ["modrules"]

PORTS = """
match: [{select: $.kind, matchValue: Deployment}]
patch:
- op: replace
  select: '$.spec.template.spec.containers[? @.image =~ "shop"].ports[? @.containerPort == 80]'
  path: /spec/template/spec/containers/#0/ports/#1/containerPort
  value: "8080"
"""
SIDECAR = """
match:
- {select: $.metadata.annotations.trace, matchValue: "true"}
- {select: "$.spec.template.spec.containers[*].name", matchValue: agent, negate: true}
patch:
- op: add
  path: /spec/template/spec/containers/-1
  value: |-
    name: agent
    image: tools/agent:1
    args: ["--host={{ .Target.metadata.name }}.{{ .Namespace }}:14250"]
"""
OF_DEPLOYMENTS = {
    "mesh": NO_MESH,
    "sidecar": SIDECAR,
    "context": EMPTY_CONTEXT,
    "ports": PORTS,
    "harden": """
match: [{select: $.kind, matchValue: Deployment}]
patch:
- {op: add, path: /metadata/annotations/hardened, value: by-rule}
- op: add
  path: /spec/template/spec/securityContext
  value: "{runAsUser: 101, runAsNonRoot: true}"
""",
    "mirror": """
match: [{select: $.kind, matchValue: Deployment}]
patch:
- op: replace
  select: '$.spec.template.spec.containers[? @.image =~ "^shop/"].image'
  path: /spec/template/spec/containers/#0/image
  value: '{{ .SelectedItem | replace "shop/" "mirror.example.com/" }}'
""",
    "first": """
match:
- {select: $.kind, matchValue: Deployment}
- {select: '$.spec.template.spec.volumes[*].name', matchValue: scratch, negate: true}
patch:
- {op: add, path: /spec/template/spec/volumes/0, value: "{name: scratch, emptyDir: {}}"}
""",
    "last": """
match: [{select: $.kind, matchValue: Deployment}]
patch: [{op: replace, path: /spec/template/spec/containers/-1/image, value: '"tools/log:2"'}]
""",
    "number": """
match: [{select: $.kind, matchValue: Deployment}, {select: $.spec.revisionHistoryLimit > 3}]
patch: [{op: replace, path: /spec/revisionHistoryLimit, value: "3"}]
""",
    "flag": """
match: [{select: $.kind, matchValue: Deployment}]
patch: [{op: add, path: /spec/paused, value: "true"}]
""",
}
OF_CONFIG_MAPS = {
    "label": "patch: [{op: add, path: /metadata/labels/team, value: blue}]",
    "made": """
patch:
- op: add
  path: /metadata/labels/made
  value: '{{ .Target.data.mode | upper }}-{{ .Namespace | len }}'
""",
    "keys": """
patch:
- {op: add, select: '$.data[? @ == "on"]', path: /metadata/labels/#0, value: '"{{ .#0 }}"'}
""",
    "gone": "patch: [{op: remove, path: /data/old}, {op: remove, path: /data/never}]",
    "kept": """
match: [{select: $.data.mode, matchRegex: '^lo'}, {select: $.data.keep, negate: true}]
patch: [{op: add, path: /data/keep, value: '"yes"'}]
""",
    "none": """
match: [{select: $.data.mode, matchValues: [strict, lax]}]
patch: [{op: add, path: /data/keep, value: '"yes"'}]
""",
    "all": """
match: [{select: "$.data[*]", matchFor: All, matchRegex: '^[a-z]+$'}]
patch: [{op: add, path: /data/plain, value: 'yes!'}]
""",
    "count": """
match: [{select: "length($.data) == 3"}]
patch: [{op: add, path: /metadata/annotations/count, value: '"{{ len .Target.data }}"'}]
""",
    "parents": """
patch: [{op: add, path: /metadata/annotations/a.b~1c, value: '"0123"'}]
""",
    "list": """
patch: [{op: add, path: /data/names, value: '"{{ keys .Target.data | sortAlpha | join "," }}"'}]
match: [{select: $.data.names, negate: true}]
""",
}
"""Ten rules for each kind, to which `rule_of` adds a match for the objects of the case."""


def rule_of(case: str, text: str, place: str) -> Object:
    spec = {"type": "Patch", **yaml.safe_load(text)}
    picked = {"select": "$.metadata.labels.case", "matchValue": case}
    kind = "Deployment" if case in OF_DEPLOYMENTS else "ConfigMap"
    named = {"select": "$.kind", "matchValue": kind}
    spec["match"] = [picked, named, *spec.get("match", ())]
    marks = {ANNOTATION_EXISTING: "true"}
    return modrule(spec, name=case, namespace=place, annotations=marks)


def object_of(case: str, prefix: str, place: str) -> Object:
    name = f"{prefix}-{case}"
    if case not in OF_DEPLOYMENTS:
        made = config_map(place, name, mode="loose", trace="on", old="x")
    else:
        made = deployment(place, name)
        ports = [{"containerPort": 80}, {"containerPort": 443}]
        made["spec"]["template"]["spec"]["containers"] = [
            {"name": "web", "image": "shop/web:2", "ports": ports, "securityContext": {}},
            {"name": "log", "image": "tools/log:1"},
        ]
        made["metadata"]["annotations"] = {"trace": "true"}
    made["metadata"]["labels"] = {"case": case}
    return made


def shown(obj: Object, prefix: str) -> Any:
    """Return the fields of an object that a rule may have changed, without the name prefix."""
    meta = obj["metadata"]
    marks = dict(meta.get("annotations") or {})
    marks.pop("deployment.kubernetes.io/revision", None)
    kept = {"labels": meta.get("labels"), "annotations": marks}
    text = json.dumps([kept, obj.get("spec"), obj.get("data")], sort_keys=True)
    return json.loads(text.replace(f"{prefix}-", ""))


async def test_twenty_rules_have_the_same_result_on_existing_and_new_objects(
    modrules: Rig,
) -> None:
    rig, place = modrules, modrules.namespace
    cases = OF_DEPLOYMENTS | OF_CONFIG_MAPS
    assert len(cases) == 20
    await rig.create_all(object_of(case, "old", place) for case in cases)
    plain = {case: shown(object_of(case, "old", place), "old") for case in cases}
    for case, text in cases.items():
        await kubectl(rig, "create", "-f", "-", stdin=rule_of(case, text, place))

    async def unswept() -> Any:
        found = {item["metadata"]["name"]: item for item in await rig.items("ModRule")}
        left = {
            name: (item.get("status") or {}).get("mutateExisting")
            for name, item in found.items()
            if not _is_done(item)
        }
        return left if len(found) == len(cases) else f"only {len(found)} rules"

    await rig.settle(unswept, within=90.0)
    await rig.create_all(object_of(case, "new", place) for case in cases)
    kinds = {case: "Deployment" if case in OF_DEPLOYMENTS else "ConfigMap" for case in cases}
    made: dict[str, dict[str, Any]] = {}
    for prefix in ("old", "new"):
        made[prefix] = {
            case: shown(await rig.get(kind, f"{prefix}-{case}"), prefix)
            for case, kind in kinds.items()
        }
    for case in cases:
        assert made["old"][case] == made["new"][case], case
    unchanged = {case for case in OF_CONFIG_MAPS if made["new"][case] == plain[case]}
    assert unchanged == {"none"}


async def test_the_writes_of_a_sweep_reach_other_rules_but_not_its_own(
    modrules: Rig,
) -> None:
    rig, place = modrules, modrules.namespace
    await rig.create(config_map(place, "old"))
    rule = modrule(
        type="Patch",
        match=[{"select": "$.kind", "matchValue": "ConfigMap"}],
        patch=[{"op": "add", "path": "/metadata/labels/team", "value": "blue"}],
        namespace=place,
        annotations={ANNOTATION_EXISTING: "true"},
    )
    await swept(rig, rule)
    found = await rig.get("ConfigMap", "old")
    assert found["metadata"]["labels"] == {"team": "blue"}
    # One patch of the ConfigMap above, and one of kube-root-ca.crt, which each namespace has.
    assert await rig.asked("patch", "configmaps") == [False, False]

    other = modrule(
        type="Patch",
        match=[{"select": "$.metadata.labels.team", "matchValue": "red"}],
        patch=[{"op": "add", "path": "/metadata/labels/seen", "value": '"yes"'}],
        namespace=place,
        name="other",
    )
    await ready(rig, other)
    rule["spec"]["patch"][0]["value"] = "red"
    change = {"spec": {"patch": rule["spec"]["patch"]}}
    await rig.merge("ModRule", "rule", change)

    async def unseen() -> Any:
        labels = (await rig.get("ConfigMap", "old"))["metadata"]["labels"]
        return "" if labels == {"team": "red", "seen": "yes"} else labels

    await rig.settle(unseen, within=30.0)


async def swept(rig: Rig, rule: Object) -> None:
    """Create a rule, and wait until its sweep over the existing objects is done."""
    await rig.create(rule)

    async def unfinished() -> Any:
        found = await rig.get("ModRule", rule["metadata"]["name"])
        return "" if _is_done(found) else found.get("status") or "no status"

    await rig.settle(unfinished, within=40.0)


def _is_done(rule: Object) -> bool:
    figures = (rule.get("status") or {}).get("mutateExisting") or {}
    return bool(figures.get("lastRun")) and not figures.get("pending")
