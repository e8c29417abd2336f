"""`retrofit apply` changes an object as the admission server does."""

import asyncio
import base64
from pathlib import Path

import jsonpatch
import orjson
import pytest

from tests.mutations import CASES, Case, at_the_desk, object_of, policy_of
from tests.unit.admission.conftest import Make
from tests.unit.admission.serving import World


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_apply_changes_an_object_as_the_admission_server_does(
    case: Case, tmp_path: Path, make: type[Make]
) -> None:
    policy, obj = policy_of(case, "p"), object_of(case, "x", "a")
    index = make.index(policy)
    (compiled,) = index.policies()
    route = "mutate-once" if compiled.acts_once else "mutate"
    async with World(index) as world:
        status, answer = await world.post(f"/{route}/fail", make.review(obj=obj))
    response = answer["response"]
    assert (status, response["allowed"]) == (200, True), answer
    patch = orjson.loads(base64.b64decode(response.get("patch", "W10=")))
    shown = await asyncio.to_thread(at_the_desk, tmp_path, policy, obj)
    assert shown == jsonpatch.apply_patch(obj, patch)
    if case is not CASES["a condition that fails"]:
        assert patch
