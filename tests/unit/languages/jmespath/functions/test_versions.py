import pytest


@pytest.mark.parametrize(
    ("version", "wanted", "expected"),
    [
        ("1.4.2", ">=1.4.0 <2.0.0", True),
        ("2.0.0", ">=1.4.0 <2.0.0", False),
        ("2.0.0-rc.1", "<2.0.0", True),
        ("1.4.2+build", "1.4.2", True),
        ("1.4.2", "= 1.4.2", True),
        ("1.4.2", "!=1.4.2", False),
        ("1.4.2", "!1.4.3", True),
        ("3.1.0", "<2.0.0 || >=3.0.0", True),
        ("2.1.0", "<2.0.0||>=3.0.0", False),
        ("3.9.9", "3.x", True),
        ("4.0.0", "3.x.x", False),
        ("3.2.7", "3.2.x", True),
        ("3.3.0", ">3.2.x", True),
        ("3.2.9", ">3.2.x", False),
        ("3.2.9", "<=3.2.x", True),
        ("3.2.0", "<3.2.x", False),
        ("3.2.0", ">=3.2.x", True),
        ("5.0.0", "!4.x.x", True),
        ("4.5.6", "!=4.x", False),
        ("v1.0.0", "0.0.0", True),
        ("1.2.3", "1.x || 5.0.0 - 7.2.3", True),
        ("6.0.0", "1.x || 5.0.0 - 7.2.3", False),
        ("", ">0.0.0", False),
    ],
)
def test_a_range_contains_the_expected_versions(run, version, wanted, expected):
    found = run("semver_compare(version, wanted)", version=version, wanted=wanted)
    assert found is expected


@pytest.mark.parametrize(
    "wanted",
    ["", "latest", ">=", "1.2", "x", "~1.2.3", "|| 1.0.0", "1.0.0 ||", "1.2.x.x", "01.0.0"],
)
def test_an_invalid_range_is_an_error(fails, wanted):
    message = fails("semver_compare('1.0.0', wanted)", wanted=wanted)
    assert message.startswith("JMESPath function 'semver_compare': argument #2 ")


def test_a_range_that_is_too_long_is_an_error(fails):
    assert "longer than" in fails("semver_compare('1.0.0', x)", x="1.0.0 " * 1000)
