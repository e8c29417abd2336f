"""The results of single patch operations, observed by running KubeMod's patch library.

A case of ``operations.json`` is an operation, a path, and the specification that comes out; null
where the operation fails, so that the rule is skipped.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.dialects.kubemod.modrules import errors, make_pod, patching, request

_OBSERVED = json.loads(Path(__file__).with_name("operations.json").read_text())
SPEC: dict[str, Any] = _OBSERVED["data"]


@pytest.mark.parametrize(("op", "path", "wanted"), _OBSERVED["cases"])
def test_a_patch_operation_has_the_result_of_the_original(op: str, path: str, wanted: Any) -> None:
    chain = request([patching({"op": op, "path": path, "value": "v"})], make_pod(spec=SPEC))
    assert chain.obj["spec"] == (SPEC if wanted is None else wanted)
    assert bool(errors(chain)) is (wanted is None)
