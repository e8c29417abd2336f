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


def test_what_can_be_read_is_read_as_it_is() -> None:
    for body in (b"[1]", b'{"a":"[[["}', deep(400)):
        assert decode(body) == orjson.loads(body)
        assert cut_deep(body) is body or orjson.loads(cut_deep(body)) == orjson.loads(body)


@pytest.mark.parametrize("levels", [600, 1_100, MANY])
def test_what_is_too_deep_is_cut_where_it_stands(levels: int) -> None:
    shallow = orjson.loads(cut_deep(deep(levels)))
    assert is_cut(shallow)
    assert shallow["metadata"] == {"name": "deep", "namespace": "n"}


def test_the_others_of_a_list_are_there() -> None:
    body = b'{"items":[%s,%s,%s]}' % (deep(3, "first"), deep(MANY), deep(3, "last"))
    with pytest.raises(TooDeep, match="nested deeper than 500 levels") as caught:
        decode(body)
    said: list[str] = []
    rest = salvage(caught.value, describe("GET", "/api/v1/configmaps"), said.append)
    assert [item["metadata"]["name"] for item in rest["items"]] == ["first", "last"]
    assert said[0].endswith(": n/deep")


@pytest.mark.parametrize("body", [b"", b"[", b"{]", b'{"a":}', b"[" * 5_000])
def test_what_is_no_json_is_no_json(body: bytes) -> None:
    with pytest.raises(orjson.JSONDecodeError):
        decode(body)
