"""JSON patch operations: compiling, applying, and what each profile allows."""

from typing import Any

import pytest

from reconciler.engine.patch import LENIENT, Profile, apply_operations, compile_operations
from reconciler.engine.patch.rfc6902 import KUBEMOD
from reconciler.errors import EvaluationError, InvalidPolicy

STRICT = Profile(
    create_parents=False, ignore_absent=False, negative_index=False, absent_is_null=False
)


def operation(op: str, path: str, **rest: Any) -> dict[str, Any]:
    if "source" in rest:
        rest["from"] = rest.pop("source")
    return {"op": op, "path": path, **rest}


def lenient(document: Any, *operations: dict[str, Any]) -> Any:
    compiled = compile_operations(list(operations), location="patch")
    return apply_operations(document, compiled, profile=LENIENT)


def strict(document: Any, *operations: dict[str, Any]) -> Any:
    compiled = compile_operations(list(operations), location="patch")
    return apply_operations(document, compiled, profile=STRICT)


@pytest.mark.parametrize(
    ("document", "path", "expected"),
    [
        ({}, "/meta/labels/acme.io~1owner", {"meta": {"labels": {"acme.io/owner": 1}}}),
        ({}, "/l/-", {"l": [1]}),
        ({}, "/l/0", {"l": [1]}),
        ({}, "/l/-1", {"l": [1]}),
        ({}, "/l/2", {"l": [None, None, 1]}),
        ({}, "/l/1/a", {"l": [None, {"a": 1}]}),
        ({"l": [0]}, "/l/2/a", {"l": [0, None, {"a": 1}]}),
        ({"l": [0]}, "/l/-/a", {"l": [0, {"a": 1}]}),
        ({"l": []}, "/l/-1/a", {"l": [{"a": 1}]}),
        ({"l": [0]}, "/l/-2/a", {"l": [{"a": 1}, 0]}),
        ({"a": None}, "/a/b", {"a": {"b": 1}}),
        ({"l": [0, 2]}, "/l/1", {"l": [0, 1, 2]}),
        ({"l": [0, 2]}, "/l/2", {"l": [0, 2, 1]}),
        ({"l": [0, 2]}, "/l/-1", {"l": [0, 2, 1]}),
        ({"l": [0, 2]}, "/l/-2", {"l": [0, 1, 2]}),
        # An index is parsed as Go parses an integer.
        ({"l": [0, 2]}, "/l/+1", {"l": [0, 1, 2]}),
        ({"l": [0, 2]}, "/l/01", {"l": [0, 1, 2]}),
        ({"l": [0, 2]}, "/l/-0", {"l": [1, 0, 2]}),
        ({"a": 0}, "/a", {"a": 1}),
        ({"a": 0}, "/", {"a": 0, "": 1}),
        ({"a": 0}, "", 1),
    ],
)  # fmt: skip
def test_add(document: Any, path: str, expected: Any) -> None:
    assert lenient(document, operation("add", path, value=1)) == expected


@pytest.mark.parametrize(
    ("document", "path"),
    [({"l": [1]}, "/l/5"), ({"l": [1]}, "/l/x"), ({"l": [1]}, "/l/-3"), ({}, "/l/999999/a")],
)
def test_add_at_an_invalid_index_is_an_error(document: Any, path: str) -> None:
    with pytest.raises(
        EvaluationError, match=r"Unable to access invalid index: .*: invalid index"
    ):
        lenient(document, operation("add", path, value=1))


def test_add_below_a_scalar_is_an_error() -> None:
    with pytest.raises(EvaluationError, match="add operation does not apply: doc is missing path"):
        lenient({"a": 3}, operation("add", "/a/b", value=1))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/none", {"l": [1, 2]}),
        ("/none/none", {"l": [1, 2]}),
        ("/l/7", {"l": [1, 2]}),
        ("/l/-1", {"l": [1]}),
        ("/l/0", {"l": [2]}),
        ("/l/x/y", {"l": [1, 2]}),
        ("/l/-/y", {"l": [1, 2]}),
        ("/l", {}),
    ],
)
def test_remove(path: str, expected: Any) -> None:
    assert lenient({"l": [1, 2]}, operation("remove", path)) == expected


@pytest.mark.parametrize("part", ["x", "-"])
def test_remove_at_an_index_that_is_not_a_number_is_an_error(part: str) -> None:
    with pytest.raises(EvaluationError, match=f"invalid index: {part}"):
        lenient({"l": [1]}, operation("remove", f"/l/{part}"))


def test_the_kubemod_profile_treats_a_dash_in_a_new_parent_as_a_key() -> None:
    def kubemod(document: Any, path: str) -> Any:
        compiled = compile_operations([operation("add", path, value=1)], location="patch")
        return apply_operations(document, compiled, profile=KUBEMOD)

    assert kubemod({}, "/l/-") == {"l": {"-": 1}}
    assert kubemod({}, "/l/-1") == {"l": [1]}
    assert kubemod({"l": [0]}, "/l/-") == {"l": [0, 1]}
    with pytest.raises(EvaluationError, match="invalid index: -"):
        kubemod({"l": [0]}, "/l/-/a")


def test_operations_run_in_the_order_written() -> None:
    found = lenient({"l": [*"abc"]}, operation("remove", "/l/0"), operation("remove", "/l/1"))
    assert found == {"l": ["b"]}


def test_replace() -> None:
    assert lenient({"a": [1]}, operation("replace", "/a/0", value=None)) == {"a": [None]}
    with pytest.raises(
        EvaluationError, match="replace operation does not apply: doc is missing key: /x: missing"
    ):
        lenient({}, operation("replace", "/x", value=1))
    with pytest.raises(EvaluationError, match="doc is missing path: /x/y: missing value"):
        lenient({}, operation("replace", "/x/y", value=1))


def test_test() -> None:
    document = {"a": 1, "b": True}
    assert lenient(document, operation("test", "/a", value=1.0)) is document
    assert lenient(document, operation("test", "/gone", value=None)) is document
    with pytest.raises(EvaluationError, match="testing value /b failed: test failed"):
        lenient(document, operation("test", "/b", value=1))
    with pytest.raises(EvaluationError, match="test operation does not apply: is missing path"):
        lenient(document, operation("test", "/x/y", value=None))
    for part in ("1", "-3", "-"):
        with pytest.raises(EvaluationError, match=f"invalid index: {part}: invalid index"):
            lenient({"l": [None]}, operation("test", f"/l/{part}", value=None))
    with pytest.raises(EvaluationError, match="test failed"):
        strict(document, operation("test", "/gone", value=None))


def test_move_and_copy() -> None:
    document = {"a": {"b": 1}, "l": [1, 2]}
    assert lenient(document, operation("move", "/c", source="/a/b")) == {
        "a": {},
        "l": [1, 2],
        "c": 1,
    }
    # Only the operation add creates parents.
    for name in ("move", "copy"):
        with pytest.raises(EvaluationError, match=r"is missing destination path: /c/d: missing"):
            lenient(document, operation(name, "/c/d", source="/a/b"))
    assert lenient(document, operation("copy", "/l/0", source="/l/-1"))["l"] == [2, 1, 2]
    assert lenient(document, operation("move", "/a", source="/a")) is document
    with pytest.raises(EvaluationError, match=r"move .* missing from path: /x: missing value"):
        lenient(document, operation("move", "/y", source="/x"))
    with pytest.raises(EvaluationError, match="lies inside of"):
        lenient(document, operation("move", "/a/b/c", source="/a"))


def test_operations_are_applied_all_or_none() -> None:
    document = {"a": {"b": 1}}
    with pytest.raises(EvaluationError):
        lenient(document, operation("add", "/a/c", value=2), operation("replace", "/x", value=1))
    assert document == {"a": {"b": 1}}


@pytest.mark.parametrize(
    "broken",
    [
        operation("add", "/a/b", value=1),
        operation("add", "/l/-1", value=1),
        operation("remove", "/a"),
        operation("remove", "/a/b"),
        operation("remove", ""),
        operation("replace", "/l/x", value=1),
    ],
)
def test_the_strict_profile_refuses_extensions_of_the_standard(broken: Any) -> None:
    with pytest.raises(EvaluationError):
        strict({"l": [1, 2]}, broken)


@pytest.mark.parametrize(
    ("value", "place", "words"),
    [
        ({}, "patch", "must be a list"),
        ([1], "patch[0]", "must be a map"),
        ([{"path": "/a"}], "patch[0].op", 'unknown "None"'),
        ([{"op": "addition", "path": "/a"}], "patch[0].op", 'unknown "addition"; use one of add'),
        ([{"op": "add", "path": "/a"}], "patch[0]", "add needs a value"),
        ([{"op": "remove"}], "patch[0]", "remove needs path"),
        ([{"op": "copy", "path": "/a"}], "patch[0]", "copy needs from"),
        ([{"op": "remove", "path": "a"}], "patch[0].path", "must begin with a forward slash"),
        (
            [{"op": "remove", "path": "/a"}, {"op": "move", "path": "/a", "from": "b"}],
            "patch[1].from",
            "must begin with a forward slash",
        ),
        ([{"op": "remove", "path": "/a" * 300}], "patch[0].path", "deeper than 200"),
        ([{"op": ["add"], "path": "/a"}], "patch[0].op", "unknown"),
    ],
)
def test_invalid_operations_are_reported_with_their_location(
    value: Any, place: str, words: str
) -> None:
    with pytest.raises(InvalidPolicy) as caught:
        compile_operations(value, location="patch")
    assert caught.value.location == place
    assert words in caught.value.reason


def test_copies_that_grow_exponentially_are_refused() -> None:
    doubling = [operation("copy", f"/{i + 1}", source="") for i in range(40)]
    with pytest.raises(EvaluationError, match="is too large"):
        lenient({"0": [1, 2, 3]}, *doubling)


@pytest.mark.parametrize("op", ["add", "replace", "test"])
def test_deeply_nested_values_are_refused(op: str) -> None:
    deep: Any = 1
    for _ in range(3000):
        deep = [deep]
    with pytest.raises(EvaluationError, match="is too large"):
        lenient({"a": deep}, operation(op, "/a", value=deep))
