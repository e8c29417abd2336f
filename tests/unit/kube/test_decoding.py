"""One object that is nested too deeply does not hide the others."""

import orjson
import pytest

from reconciler.api.depth import is_cut
from reconciler.kube.decoding import TooDeep, cut_deep, decode, salvage
from reconciler.kube.paths import describe

MANY = 9_000


def deep(levels: int, name: str = "deep") -> bytes:
    inside = b'{"a[{\\"":' * levels + b"[]" + b"}" * levels
    return b'{"metadata":{"name":"%s","namespace":"n"},"spec":%s}' % (name.encode(), inside)


def test_a_body_within_the_depth_limit_is_decoded_unchanged() -> None:
    for body in (b"[1]", b'{"a":"[[["}', deep(400)):
        assert decode(body) == orjson.loads(body)
        assert cut_deep(body) is body or orjson.loads(cut_deep(body)) == orjson.loads(body)


@pytest.mark.parametrize("levels", [600, 1_100, MANY])
def test_a_deeply_nested_value_is_cut_in_place(levels: int) -> None:
    shallow = orjson.loads(cut_deep(deep(levels)))
    assert is_cut(shallow)
    assert shallow["metadata"] == {"name": "deep", "namespace": "n"}


def test_the_other_objects_of_a_list_are_kept() -> None:
    body = b'{"items":[%s,%s,%s]}' % (deep(3, "first"), deep(MANY), deep(3, "last"))
    with pytest.raises(TooDeep, match="nested deeper than 500 levels") as caught:
        decode(body)
    said: list[str] = []
    rest = salvage(caught.value, describe("GET", "/api/v1/configmaps"), said.append)
    assert [item["metadata"]["name"] for item in rest["items"]] == ["first", "last"]
    assert said[0].endswith(": n/deep")


@pytest.mark.parametrize("body", [b"", b"[", b"{]", b'{"a":}', b"[" * 5_000])
def test_an_invalid_body_is_a_json_error(body: bytes) -> None:
    with pytest.raises(orjson.JSONDecodeError):
        decode(body)
