"""The check of an object that rules changed."""

from typing import Any

import pytest

from reconciler.services.admitting.growth import Growth


def nested(levels: int) -> Any:
    value: Any = {}
    for _ in range(levels):
        value = {"a": value}
    return value


@pytest.mark.parametrize("value", [1 << 64, "\ud800", nested(300)])
@pytest.mark.parametrize("small", [0, 1 << 13])
def test_an_object_without_a_json_form_is_a_fault(value: Any, small: int) -> None:
    before = {"data": {"a": "b"}}
    growth = Growth(before, small=small)
    fault = growth.fault(before, {"data": {"a": "b", "x": value}})
    assert fault.startswith("the object would have no JSON form: ")
    assert not growth.fault(before, {"data": {"a": "c"}})
