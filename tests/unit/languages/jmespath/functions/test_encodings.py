import pytest


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("base64_encode('häuser')", "aMOkdXNlcg=="),
        ("base64_decode('aMOkdXNlcg==')", "häuser"),
        ("base64_decode('')", ""),
        ("sha256('')", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
        ("sha1('ä')", "961fa22f61a56e19f3f5f8867901ac8cf5e6d11f"),
        ("md5('a')", "0cc175b9c0f1b6a831c399e269772661"),
        ("parse_json('[1, 2.50, \"ä\", null]')", [1, 2.5, "ä", None]),
        ("parse_json('123456789012345678901234567890')", 1.2345678901234568e29),
        (
            "parse_yaml('{a: yes, b: [no, On, \"off\"], y: 0x10, 010: n}')",
            {"a": True, "b": [False, True, "off"], "true": 16, "8": False},
        ),
        ("parse_yaml('[08, 1_000.5, 0.1_1]')", [8, 1000.5, 0.11]),
        ("parse_yaml('')", None),
        ("parse_yaml(text).b", [{"c": 0o644}, "2026-11-21"]),
        ("parse_yaml('[&x [1], *x]')", [[1], [1]]),
        ("parse_yaml(merged).web", {"port": 80, "name": "web"}),
        ("parse_yaml('[!!str 5, !!int \\'7\\', !!binary aGk=, !own x]')", ["5", 7, "hi", "x"]),
        ("parse_yaml('!!python/name:os.system x')", "x"),
    ],
)
def test_encoding_functions_return_the_expected_values(run, source, expected):
    text = "# words\n1: a\nb:\n- c: 0644\n- 2026-11-21\n"
    merged = "all: &all {port: 80}\nweb:\n  <<: *all\n  name: web\n---\nanother: document\n"
    assert run(source, text=text, merged=merged) == expected


def test_lines_of_base64_are_joined(run):
    assert run("base64_decode(text)", text="aMOk\r\ndXNlcg==\n") == "häuser"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("base64_decode('aMO')", "'base64_decode': argument #1 is not base64 with padding"),
        ("base64_decode('YQ==YQ==')", "'base64_decode': argument #1 is not base64 with padding"),
        ("base64_decode('a-_=')", "'base64_decode': argument #1 is not base64 with padding"),
        ("base64_decode('/w==')", "'base64_decode': the decoded bytes are not UTF-8 text"),
        ("parse_json('{a: 1}')", "'parse_json': argument #1 is not JSON"),
        ("parse_json('NaN')", "'parse_json': argument #1 is not JSON"),
        ("parse_json('1e999')", "'parse_json': argument #1 is not JSON"),
    ],
)
def test_text_that_cannot_be_decoded_is_an_error(fails, source, reason):
    assert fails(source) == f"JMESPath function {reason}"


def test_invalid_yaml_is_refused_with_its_position(fails):
    assert "'parse_yaml': argument #1 is not YAML: line 1, column " in fails("parse_yaml('a: ]')")
    message = fails("parse_yaml('!!int x')")
    assert "line 1, column 1: the text does not fit its tag !!int" in message


@pytest.mark.parametrize("function", ["parse_json", "parse_yaml"])
@pytest.mark.parametrize("text", ["[" * 100_000, "[" * 201 + "]" * 201])
def test_deeply_nested_documents_are_refused(fails, function, text):
    assert "nested deeper than 200 levels" in fails(f"{function}(text)", text=text)


def test_aliases_do_not_multiply_beyond_the_limit(fails):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    assert "more than 100000 values" in fails("parse_yaml(text)", text="\n".join(lines))


def test_nested_aliases_count_with_their_full_depth(fails):
    lines = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 300)]
    assert "nested deeper than 200 levels" in fails("parse_yaml(text)", text="\n".join(lines))


def test_corrections_of_yaml_are_counted(run, fails):
    assert run("parse_yaml(text)", text="[a:, b:]") == ["a:", "b:"]
    text = f"[{','.join(['a:'] * 250)}]"
    source = f"map(&parse_yaml(@), [{','.join(['text'] * 100)}])"
    assert "the functions work through more than" in fails(source, text=text)


def test_a_lone_surrogate_is_refused(fails):
    assert "not well-formed text" in fails("sha256(text)", text="\ud800")
