import pytest

from reconciler.errors import EvaluationError, InvalidPolicy
from reconciler.hooks.programs import check_program
from reconciler.hooks.values import input_text, output_of, render_json, result_of

_ESCAPED = '{"a":"\\u003c\\u0026\\u003e\\u2028é","b":[true,null]}'


@pytest.mark.parametrize(
    "program",
    [
        "{input: 1, debug}",
        ".input.debug",
        '.["input"]',
        "def input: 1; input",
        "def f(stderr): stderr; f(.)",
        "# input\n.",
        '"input \\(.a) debug"',
        'test("(?<word>[a-z]+)"; "x")',
        "test(.pattern)",
        '"\\u0022(?=" | length',
    ],
)
def test_a_program_that_only_contains_a_forbidden_word_is_accepted(program: str) -> None:
    check_program(program, location="jqFilter")


@pytest.mark.parametrize(
    "program",
    [
        "",
        " # nothing",
        "input",
        "[inputs]",
        '{"a": input}',
        "{(input): 1}",
        '"a \\(.b | "c \\(input)") d"',
        '@base64 "\\(debug)"',
        "$__loc__",
        "$ __loc__",
        '"\\($__prog_args)"',
        'import "a" as a; .',
        'def import: 1; include "a" {search: "/etc"}; .',
        'def f: 1; "x" | modulemeta',
        "halt_error",
        "keys_unsorted",
        "lgamma_r",
        '.a | test("(?=b)")',
        '.a | gsub("(a)\\\\1"; "")',
        '"open',
        "." + " " * 70_000 + "a",
    ],
)
def test_a_program_with_a_forbidden_function_or_syntax_is_refused(program: str) -> None:
    with pytest.raises(InvalidPolicy, match=r"^jqFilter: "):
        check_program(program, location="jqFilter")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (0.00001, "0.00001"),
        (1.5e-6, "0.0000015"),
        (1e-7, "1e-7"),
        (-0.25, "-0.25"),
        ({"b": [True, None], "a": "<&>\u2028é"}, _ESCAPED),
    ],
)
def test_values_are_rendered_as_json_in_the_format_of_go(value: object, text: str) -> None:
    assert render_json(value) == text


def test_lines_of_json_are_indented_in_the_format_of_go() -> None:
    value = {"b": [], "a": [1, {}, {"c": None}]}
    assert render_json(value, indented=True).splitlines() == [
        "{",
        '  "a": [',
        "    1,",
        "    {},",
        "    {",
        '      "c": null',
        "    }",
        "  ],",
        '  "b": []',
        "}",
    ]


def test_a_program_receives_64_bit_numbers_and_sorted_keys() -> None:
    assert input_text({"b": 9007199254740993, "a": 2.0}) == '{"a": 2, "b": 9007199254740992}'
    assert input_text({"b": "1:9007199254740993", "a": 2}) == '{"a":2,"b":"1:9007199254740993"}'


def test_the_results_of_a_program_become_one_value() -> None:
    assert result_of(output_of("")) is None
    assert result_of(output_of("false")) is False
    assert result_of(output_of("1\n[2.0]")) == [1, [2]]
    with pytest.raises(EvaluationError):
        output_of('[{"a":-1.7976931348623157e+308}]')
    assert output_of('"1.7976931348623157e+308"') == ["1.7976931348623157e+308"]


@pytest.mark.parametrize(
    ("number", "written"),
    [
        (9007199254740993, "9007199254740992"),
        (1699999999123456789, "1699999999123456800"),
        (-(2**63), "-9223372036854776000"),
        (123456789012345678901, "123456789012345680000"),
    ],
)
def test_a_large_number_has_the_digits_that_go_writes(number: int, written: str) -> None:
    """As few as distinguish it from other float64, and zeros."""
    text = f'{{"a":{written}}}'
    assert input_text({"a": number}).replace(" ", "") == text
    assert render_json(output_of(f'{{"a":{number}}}')[0]) == text
