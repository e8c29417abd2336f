import pytest


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("compare('ant', 'bee')", -1),
        ("compare('bee', 'ant') == `1`", True),
        ("compare('z', 'é')", -1),
        ("equal_fold('Straße', 'STRAßE')", True),
        ("equal_fold('Straße', 'STRASSE')", False),
        ("equal_fold('ΣΑΣ', 'σας')", True),
        ("equal_fold('node', 'nodes')", False),
        ("replace('a-b-c-d', '-', '+', `2`)", "a+b+c-d"),
        ("replace('a-b-c-d', '-', '+', `-1`)", "a+b+c+d"),
        ("replace('abc', '-', '+', `1`)", "abc"),
        ("replace('abc', '', '.', `2`)", ".a.bc"),
        ("replace('aaaa', 'a', 'b', `2.9`)", "bbaa"),
        ("replace('aaaa', 'a', 'b', `-0.5`)", "aaaa"),
        ("replace('aaaa', 'a', 'b', `1e300`)", "bbbb"),
        ("replace_all('abc', '', '.')", ".a.b.c."),
        ("replace_all('aaa', 'aa', 'b')", "ba"),
        ("to_upper('straße')", "STRAßE"),
        ("to_lower('ÄÖ')", "äö"),
        ("trim('xxabcyx', 'xy')", "abc"),
        ("trim('abc', '')", "abc"),
        ("trim_prefix('v1v1.2', 'v1')", "v1.2"),
        ("trim_prefix('1.2', 'v')", "1.2"),
        ("split('a,b,,c', ',')", ["a", "b", "", "c"]),
        ("split('häh', '')", ["h", "ä", "h"]),
        ("split('', ',')", [""]),
        ("truncate('häuser', `3`)", "häu"),
        ("truncate('ab', `2.9`)", "ab"),
        ("truncate('ab', `-3`)", ""),
        ("truncate('ab', `1e300`)", "ab"),
        ("to_boolean('TRUE')", True),
        ("to_boolean('false')", False),
        ("pattern_match('web-*-?', 'web-shop-1')", True),
        ("pattern_match('web-?', 'web-10')", False),
        ("pattern_match('80*', `8080`)", True),
        ("pattern_match('16777217', `16777217`)", True),
    ],
)
def test_string_functions_return_the_expected_values(run, source, expected):
    result = run(source)
    assert result == expected
    assert type(result) is type(expected)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("compare('a', `1`)", "JMESPath function 'compare': argument #2 is not of type string"),
        ("to_upper(absent)", "JMESPath function 'to_upper': argument #1 is not of type string"),
        (
            "pattern_match('a', `[]`)",
            "JMESPath function 'pattern_match': argument #2 is not of type String or Real",
        ),
    ],
)
def test_string_functions_refuse_invalid_arguments(fails, source, message):
    assert fails(source) == message


def test_an_error_does_not_show_the_value(fails):
    message = fails("to_boolean(password)", password="s3cr3t")
    assert message == (
        "JMESPath function 'to_boolean': lowercase argument must be 'true' or 'false'"
    )
