import pytest


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("regex_match('^web-[0-9]+$', 'web-12')", True),
        ("regex_match('[0-9]{2}', 'a12b')", True),
        ("regex_match('^80', `8080`)", True),
        ("regex_match('^a$', name)", False),
        ("regex_match('(?i)WEB', 'web')", True),
        ("regex_replace_all('a(x*)b', 'axxb-ab', '<$1>')", "<xx>-<>"),
        ("regex_replace_all('(?P<first>[a-z])[0-9]', 'a1b2', '${first}')", "ab"),
        ("regex_replace_all('([a-z])([0-9])', 'a1', '$2$1')", "1a"),
        ("regex_replace_all('([a-z])', 'ab', '$1x$9$$')", "$$"),
        ("regex_replace_all('([a-z])', 'ab', '<$01>')", "<><>"),
        (f"regex_replace_all('([a-z])', 'ab', '<${'1' * 5000}>')", "<><>"),
        ("regex_replace_all('b*', 'abc', '-')", "-a-c-"),
        ("regex_replace_all('ä', 'bär', 'ae')", "baer"),
        ("regex_replace_all('0', `101`, `2`)", "121"),
        ("regex_replace_all_literal('([a-z])', 'ab', '$1')", "$1$1"),
    ],
)
def test_regex_functions_return_the_expected_values(run, source, expected):
    assert run(source, name="a\n") == expected


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(", "missing ): ("),
        ("(?=a)", "invalid perl operator: (?="),
        (r"(a)\1", r"invalid escape sequence: \1"),
        ("a{1001}", "invalid repetition size: {1001}"),
        ("(((a{100}){100}){100})", "invalid repetition size: {100}"),
        (r"\C", r"\C is not supported"),
        (r"[\pL\pN]{999}", "pattern too large - compile failed"),
        ("\ud800", "argument #1 is not well-formed text"),
    ],
)
def test_an_invalid_regular_expression_is_an_error(fails, pattern, reason):
    message = fails("regex_match(pattern, 'a')", pattern=pattern)
    assert message.startswith("JMESPath function 'regex_match': argument #1 is not")
    assert reason in message


def test_malformed_text_is_refused(fails):
    assert "argument #2 is not well-formed text" in fails("regex_match('a', x)", x="\ud800")


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("regex_replace_all('(?:a.*z|a)', text, 'b')", "a" * 1_000_000),
        ("regex_match('(a|b)*a(a|b){500}c', text)", "ab" * 1_000_000),
        ("map(&regex_match('b', @), text)", ["a"] * 400_000),
    ],
)
def test_a_search_that_takes_too_long_is_refused(fails, source, text):
    assert "work through more than" in fails(source, text=text)


def test_a_result_that_is_too_long_is_refused(fails):
    message = fails("regex_replace_all('a', text, text)", text="a" * 3000)
    assert "longer than" in message
