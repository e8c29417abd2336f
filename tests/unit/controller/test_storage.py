"""kopf stores no state in objects."""

import kopf
import pytest

from reconciler.controller.settings import NoEssence, NoProgress

BODY = kopf.Body(
    {
        "metadata": {"name": "x", "annotations": {"kopf.zalando.org/last-handled": "{}"}},
        "spec": {"a": 1},
        "status": {"kopf": {"progress": {"handler": {"retries": 3}}}},
    }
)


def test_no_essence_of_an_object_is_stored():
    storage, patch = NoEssence(), kopf.Patch()
    essence = storage.build(body=BODY, extra_fields=())
    assert dict(essence) == {}
    assert storage.fetch(body=BODY) is None
    storage.store(body=BODY, patch=patch, essence=essence)
    assert not patch


def test_no_progress_of_a_handler_is_stored():
    storage, patch = NoProgress(), kopf.Patch()
    assert storage.fetch(key="handler", body=BODY) is None
    storage.store(key="handler", record={"retries": 1}, body=BODY, patch=patch)
    storage.purge(key="handler", body=BODY, patch=patch)
    storage.touch(body=BODY, patch=patch, value="now")
    storage.flush()
    assert not patch
    essence = kopf.BodyEssence({"spec": {"a": 1}})
    assert storage.clear(essence=essence) == {"spec": {"a": 1}}


@pytest.mark.parametrize(
    ("storage", "base"),
    [(NoEssence, kopf.DiffBaseStorage), (NoProgress, kopf.ProgressStorage)],
)
def test_every_method_that_kopf_calls_is_overridden(storage, base):
    asked = {name for name in vars(base) if not name.startswith("_")} - {"flush"}
    own = {name for name in vars(storage) if not name.startswith("_")}
    assert {name for name in asked if callable(getattr(base, name))} <= own
