"""The object names of hooks, derived from their paths."""

import re

from hypothesis import given
from hypothesis import strategies as st

from reconciler.execution.naming import object_names

SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def test_a_name_is_derived_from_the_path() -> None:
    assert object_names(["pods-hook.sh", "002-pods/My_hook.py", "-a/_b"]) == {
        "pods-hook.sh": "pods-hook.sh",
        "002-pods/My_hook.py": "002-pods.my-hook.py",
        "-a/_b": "a.b",
    }


def test_paths_with_the_same_derived_name_get_different_names() -> None:
    names = object_names(["a/b.sh", "a.b.sh", "c.sh"])
    assert names["c.sh"] == "c.sh"
    assert names["a/b.sh"] != names["a.b.sh"]
    assert {name.rpartition("-")[0] for name in names.values()} == {"a.b.sh", ""}


@given(st.sets(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1)))
def test_every_path_has_a_unique_name_that_the_api_server_accepts(paths: set[str]) -> None:
    names = object_names(paths)
    assert len(set(names.values())) == len(paths)
    for name in names.values():
        assert SUBDOMAIN.fullmatch(name), name
        assert len(name) <= 253
