import pytest

from reconciler.errors import Invalid, InvalidPolicy
from reconciler.hooks.operations import (
    OperationType,
    after_failure,
    read_operations,
)
from tests.operations import parse_operations

DELETE = "{operation: Delete, kind: Pod, name: a}"


def places(text: str) -> list[str]:
    with pytest.raises(InvalidPolicy) as caught:
        parse_operations(text)
    return [caught.value.location, *(error.location for error in caught.value.others)]


@pytest.mark.parametrize(
    "text",
    [
        f"{DELETE}\n---\n{DELETE}\n",
        f"---\n{DELETE}\n---\n{DELETE}\n...\n",
        '{"operation":"Delete","kind":"Pod","name":"a"}{"operation":"Delete","kind":"Pod","name":"a"}',
        '{"operation": "Delete", "kind": "Pod",\n"name": "a"}\n' * 2 + "\n",
    ],
)
def test_several_documents_in_yaml_or_json_are_parsed(text: str) -> None:
    found = parse_operations(text)
    assert [(item.type, item.kind, item.name) for item in found] == [
        (OperationType.DELETE, "Pod", "a")
    ] * 2


def test_the_fields_of_json_are_named_in_any_case_and_those_of_yaml_are_not() -> None:
    (found,) = parse_operations('{"Operation":"Delete","KIND":"Pod","Name":"A"}')
    assert (found.type, found.kind, found.name) == (OperationType.DELETE, "Pod", "A")
    assert places("{Operation: Delete, kind: Pod, name: a}") == ["operations[0].operation"]


@pytest.mark.parametrize("text", ["", " \n", "# nothing\n"])
def test_an_empty_text_has_no_operations(text: str) -> None:
    assert parse_operations(text) == ()


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (f"{DELETE}\n---\n", ["operations[1]"]),
        (f"{DELETE}\n---\n[1]", ["operations[1]"]),
        ("{operation: delete, kind: Pod, name: a}", ["operations[0].operation"]),
        ("{kind: Pod}", ["operations[0].operation"]),
        ("{operation: [Delete]}", ["operations[0].operation"]),
        ("{operation: Delete}", ["operations[0].kind", "operations[0].name"]),
        (
            "{operation: MergePatch, kind: [], name: a, ignoreMissingObject: 1, mergePatch: []}",
            [
                "operations[0].kind",
                "operations[0].ignoreMissingObject",
                "operations[0].kind",
                "operations[0].mergePatch",
            ],
        ),
        ("{operation: Create, object: 5}", ["operations[0].object"]),
        ("{operation: Create, object: {a: 1, b: {c: 1, c: 2}}}", ["operations"]),
        (f"{DELETE[:-1]}, ignoreMissingObject: 0}}", ["operations[0].ignoreMissingObject"]),
        (f"{DELETE[:-1]}, ignoreMissingObject: si}}", ["operations[0].ignoreMissingObject"]),
        ("{operation: CreateIfNotExists, object: ''}", ["operations[0].object"]),
        (
            "{operation: JQPatch, kind: a, name: a, jqFilter: {a: 1}}",
            ["operations[0].jqFilter"],
        ),
        (
            "{operation: JSONPatch, kind: a, name: a, jsonPatch: [{op: remove, path: /a}]}",
            ["operations[0].jsonPatch[0].value"],
        ),
        (
            "{operation: JSONPatch, kind: a, name: a, jsonPatch: [x]}",
            ["operations[0].jsonPatch[0]"],
        ),
        (f"{DELETE[:-8]}", ["operations"]),
        ("\x00\x01\x02", ["operations"]),
        ("a: " + "[" * 100_000, ["operations"]),
        ("{" * 100_000, ["operations"]),
    ],
)
def test_an_invalid_operation_is_refused_with_its_location(text: str, wrong: list[str]) -> None:
    assert places(text) == wrong


@pytest.mark.parametrize("name", ["12", "010", "0x1f", "1e5", "1_0", "1.10", "true", "yes"])
@pytest.mark.parametrize(
    "text",
    [
        "operation: Delete\nkind: Pod\nname: {}\nnamespace: {}\n",
        "---\n{{operation: Delete, kind: Pod, name: {}, namespace: {}}}\n",
        '{{"operation": "Delete", "kind": "Pod", "name": {}, "namespace": {}}}',
    ],
)
def test_a_name_is_read_as_it_is_written(text: str, name: str) -> None:
    (found,) = parse_operations(text.format(name, name))
    assert (found.name, found.namespace) == (name, name)


def test_a_value_that_is_not_valid_json_is_a_yaml_string() -> None:
    (found,) = parse_operations('{"operation": "Create", "object": {"a": NaN, "b": 1}}')
    assert found.object() == {"a": "NaN", "b": 1}


def test_a_numeric_name_is_converted_to_a_string() -> None:
    (found,) = read_operations([{"operation": "Delete", "kind": "Pod", "name": 12}])
    assert found.name == "12"


@pytest.mark.parametrize(
    ("word", "flag"), [("yes", True), ("'on'", True), ("off", False), ("n", False), ("~", False)]
)
def test_a_flag_can_be_a_yaml_boolean_word(word: str, flag: object) -> None:
    (found,) = parse_operations(f"{DELETE[:-1]}, ignoreMissingObject: {word}}}")
    assert found.ignore_missing is flag


def test_a_patch_in_a_string_is_parsed_as_kubernetes_yaml() -> None:
    (found,) = parse_operations(
        "{operation: MergePatch, kind: a, name: a, mergePatch: 'a: on\n\na: {b: 010}\n'}"
    )
    assert found.patch() == {"a": {"b": 8}}


def test_only_the_first_step_of_a_json_patch_needs_a_value() -> None:
    (found,) = parse_operations(
        "{operation: JSONPatch, kind: a, name: a, jsonPatch:"
        " [{op: remove, path: /a, value: null}, {op: remove, path: /b}]}"
    )
    assert found.patch() == [
        {"op": "remove", "path": "/a", "value": None},
        {"op": "remove", "path": "/b"},
    ]


def test_a_patch_in_a_string_is_parsed_only_when_it_is_used() -> None:
    good, bad = parse_operations(
        "{operation: MergePatch, kind: a, name: a, mergePatch: 'a: 1'}\n---\n"
        "{operation: MergePatch, kind: a, name: a, mergePatch: '- 1'}"
    )
    assert good.patch() == {"a": 1}
    with pytest.raises(Invalid, match=r"^operations\[1\]\.mergePatch: expected an object"):
        bad.patch()


def test_only_status_patches_that_ignore_hook_errors_run_after_a_failure() -> None:
    fields = "kind: a, name: a, mergePatch: {status: {a: 1}}"
    text = "\n---\n".join(
        (
            f"{{operation: MergePatch, {fields}, subresource: /status, ignoreHookError: true}}",
            f"{{operation: MergePatch, {fields}, subresource: status}}",
            f"{{operation: MergePatch, {fields}, ignoreHookError: true}}",
            "{operation: Delete, kind: a, name: a, subresource: status, ignoreHookError: true}",
        )
    )
    operations = parse_operations(text)
    assert after_failure(operations) == operations[:1]
