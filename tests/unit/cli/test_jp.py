"""`retrofit jp` behaves as scripts that call `kyverno jp` expect."""

import json

import pytest
from click.testing import CliRunner, Result

from reconciler.cli.main import retrofit
from reconciler.languages.jmespath.functions.registry import REGISTRY

OBJECT = '{"metadata": {"annotations": {"a.b/c": "v"}}, "spec": {"replicas": 2, "list": [1, 2]}}'


def jp(*words: str, stdin: str = OBJECT) -> Result:
    return CliRunner().invoke(retrofit, ["jp", *words], input=stdin)


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (["spec.replicas"], "2\n"),
        (["metadata.annotations.\"a.b\\/c\" || 'none'"], '"v"\n'),
        (["metadata.labels.x || 'none'"], '"none"\n'),
        (["-u", 'metadata.annotations."a.b/c"'], "v\n"),
        (["-c", "spec.list"], "[1,2]\n"),
        (["spec.list"], "[\n  1,\n  2\n]\n"),
        (["-c", "spec.replicas", "spec.list"], "# spec.replicas\n2\n# spec.list\n[1,2]\n"),
        (["-c", "length(time_now_utc()) > `10`"], "true\n"),
    ],
)
def test_query_prints_the_result_of_each_expression(words: list[str], printed: str) -> None:
    done = jp("query", *words)
    assert (done.exit_code, done.stdout) == (0, printed)


def test_query_reads_yaml_from_a_file(tmp_path) -> None:
    (tmp_path / "a.yaml").write_text("a: {b: [x, z]}\n")
    done = jp("query", "-u", "-i", str(tmp_path / "a.yaml"), "a.b[1]", stdin="")
    assert (done.exit_code, done.stdout) == (0, "z\n")


def test_no_input_is_null() -> None:
    assert jp("query", "@", stdin="").stdout == "null\n"


@pytest.mark.parametrize(
    ("words", "stdin", "error"),
    [
        (["query", "a["], "{}", "column 3: the expression ends too early"),
        (["query", "absent(@)"], "{}", "unknown function: absent"),
        (["query", "length(spec.replicas)"], OBJECT, "expected: string or array or object"),
        (["query", "a"], "a: [", "stdin:2:1: is not YAML"),
        (["query", "a"], "a: 1\n---\nb: 2\n", "stdin:2: a second document"),
        (["query", "-i", "absent.yaml", "a"], "", "absent.yaml: there is no such file"),
        (["parse", "a."], "", "the expression ends too early"),
        (["function", "absent"], "", "there is no function absent"),
    ],
)
def test_an_error_is_reported_in_one_line(words: list[str], stdin: str, error: str) -> None:
    done = jp(*words, stdin=stdin)
    # An error of the expression exits with 1, an unusable input or name with 2.
    unusable = "absent" in words or "absent.yaml" in words or "stdin" in error
    assert (done.exit_code, done.stdout) == (2 if unusable else 1, "")
    assert error in done.stderr
    assert done.stderr.startswith("Error: ")
    assert done.stderr.count("\n") == 1


def test_parse_prints_the_tree() -> None:
    done = jp("parse", "a.b || c[0:2] || length('x')")
    assert done.stdout.splitlines() == [
        "or_expression",
        "  or_expression",
        "    subexpression",
        '      field "a"',
        '      field "b"',
        "    projection",
        "      index_expression",
        '        field "c"',
        "        slice",
        "          0",
        "          2",
        "          null",
        "      identity",
        '  function_expression "length"',
        '    literal "x"',
    ]


def test_every_function_is_listed() -> None:
    lines = jp("function").stdout.splitlines()
    assert [line.partition("(")[0] for line in lines] == sorted(REGISTRY)


def test_the_signature_of_one_function_is_printed() -> None:
    assert jp("function", "join").stdout == "join(string, array[string])  JMESPath\n"
    assert jp("function", "random").stdout.endswith("policies, another result each time\n")


@pytest.mark.parametrize("words", [[], ["query"], ["parse"], ["function"]])
def test_the_help_of_every_jp_command_shows_examples(words: list[str]) -> None:
    assert "  retrofit jp " in jp(*words, "-h").stdout


def test_control_characters_leave_json_valid_and_do_not_reach_the_terminal() -> None:
    value = "a\x7fb\x85c\x9b2J\u202ed"
    done = CliRunner().invoke(retrofit, ["jp", "query", "@"], input=json.dumps(value))
    assert json.loads(done.stdout) == value
    assert value not in done.stdout


def test_unquoted_text_is_unchanged_in_a_pipe() -> None:
    done = CliRunner().invoke(retrofit, ["jp", "query", "-u", "@"], input=json.dumps("a\r\nb\x7f"))
    assert done.stdout_bytes == b"a\r\nb\x7f\n"
