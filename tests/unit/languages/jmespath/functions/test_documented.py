from pathlib import Path

import pytest

from reconciler.languages.jmespath.functions.registry import REGISTRY

TEXT = (Path(__file__).parents[5] / "docs/reference/functions.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", REGISTRY)
def test_every_function_is_documented(name):
    assert f"`{name}(" in TEXT
