"""The content of a Secret shows up nowhere else, however a ModRule uses it."""

import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest

from devcluster.programs import Programs
from reconciler.api.meta import ANNOTATION_EXISTING, Object
from tests.attacks.test_canary import Canary, dump, secret
from tests.faults.rig import Rig, open_rig
from tests.integration.test_modrules import install
from tests.unit.dialects.kubemod.modrules import modrule

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(200)]

SECRET = {"select": "$.kind", "matchValue": "Secret"}
PASSWORD = ".Target.data.password | b64dec"
WAYS: dict[str, Object] = {
    "fails": {"value": f"{{{{ {PASSWORD} | fail }}}}"},
    "number": {"value": f"{{{{ semver ({PASSWORD}) }}}}"},
    "no-yaml": {"value": f"{{{{ {PASSWORD} }}}}: : ["},
    "label": {"value": f'"{{{{ {PASSWORD} }}}}"'},
    "path": {"path": "/data/#0/x", "select": "$.data[*]", "value": "{{ .SelectedItem }}"},
    "regex": {"path": "/metadata/labels/y", "value": f'{{{{ regexFind ({PASSWORD}) "x" }}}}'},
}
"""Patches that fail on the content or whose result is not a valid object."""


@pytest.fixture
async def rig(live_programs: Programs) -> AsyncIterator[Rig]:
    name = f"canary-{uuid.uuid4().hex[:8]}"
    async with open_rig(live_programs.cluster, live_programs, name) as rig:
        await install(rig, "manifests/dialects/kubemod")
        yield rig


def rules(place: str) -> list[Object]:
    made = []
    for name, fields in WAYS.items():
        patch = {"op": "add", "path": "/metadata/labels/x", **fields}
        given: dict[str, Any] = {"name": name, "namespace": place}
        marks = {ANNOTATION_EXISTING: "true"}
        made.append(
            modrule(type="Patch", match=[SECRET], patch=[patch], annotations=marks, **given)
        )
    refusing = {"select": f'$.metadata.name == "{place}"'}
    made.append(
        modrule(
            type="Reject",
            match=[SECRET, refusing],
            rejectMessage=f"it holds {{{{ {PASSWORD} }}}}",
            name="refuses",
            namespace=place,
        )
    )
    return made


async def test_the_content_of_a_secret_appears_nowhere_else(rig: Rig) -> None:
    canary, place = Canary(uuid.uuid4().hex), rig.namespace
    await rig.create(secret(place, canary))
    made = rules(place)
    async with rig.granted("secrets"):
        for rule in made:
            await rig.create(rule)

        async def unready() -> Any:
            found = await rig.items("ModRule")
            left = {it["metadata"]["name"]: it.get("status") for it in found if not _ended(it)}
            return left or ("" if len(found) == len(made) else len(found))

        await rig.settle(unready, within=60.0)
    # The rules are also evaluated for new objects: a rule refuses one of them, and the API server
    # refuses the other because of the change that a rule made.
    for name in (place, "another"):
        written = secret(place, canary)
        written["metadata"]["name"] = name
        assert await rig.refused(written)
    seen = await dump(rig)
    seen["ModRule"] = str(await rig.items("ModRule"))
    leaked = {where: found for where, text in seen.items() if (found := canary.found(text))}
    assert leaked == {}
    for rule in made:
        await rig.delete("ModRule", rule["metadata"]["name"])


def _ended(rule: Object) -> bool:
    status = rule.get("status") or {}
    if rule["spec"]["type"] == "Reject":
        return status.get("ready") is True
    figures = status.get("mutateExisting") or {}
    return bool(figures.get("failed") or figures.get("lastRun") or figures.get("lastError"))
