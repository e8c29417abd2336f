"""Parsing of a hook's responses to admission and conversion reviews."""

import base64
import json

import pytest

from reconciler.errors import InvalidPolicy
from reconciler.hooks.responses import (
    AdmissionAnswer,
    ConversionAnswer,
    parse_admission,
    parse_conversion,
)

PATCH = [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]


def in_base64(patch):
    return base64.b64encode(json.dumps(patch).encode()).decode()


def wrapped(patch):
    """Return the patch with a line break, as base64 writes it without -w0."""
    return in_base64(patch)[:20] + "\n" + in_base64(patch)[20:]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ('{"allowed": true}', AdmissionAnswer(allowed=True)),
        (
            '{"allowed": true, "warnings": ["one", "two"]}',
            AdmissionAnswer(allowed=True, warnings=("one", "two")),
        ),
        ('{"allowed": false}', AdmissionAnswer(allowed=False)),
        (
            '{"allowed": false, "message": "not on Tuesdays"}',
            AdmissionAnswer(allowed=False, message="not on Tuesdays"),
        ),
        # Accepted as the original's JSON parser accepts it.
        ('{"Allowed": true, "reason": 1} and more', AdmissionAnswer(allowed=True)),
        ('\n{"allowed": true, "message": null, "warnings": null}', AdmissionAnswer(allowed=True)),
        (
            json.dumps({"allowed": True, "patch": in_base64(PATCH)}),
            AdmissionAnswer(allowed=True, patch=tuple(PATCH)),
        ),
        (
            json.dumps({"allowed": True, "patch": wrapped(PATCH)}),
            AdmissionAnswer(allowed=True, patch=tuple(PATCH)),
        ),
        (json.dumps({"allowed": True, "patch": in_base64([])}), AdmissionAnswer(allowed=True)),
    ],
)
def test_an_admission_response_is_parsed(text, answer):
    assert parse_admission(text) == answer


@pytest.mark.parametrize("text", ["{}", "null", '{"alowed": true}'])
def test_a_response_without_allowed_refuses_with_a_message(text):
    answer = parse_admission(text)
    assert not answer.allowed
    assert "did not set allowed" in answer.message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        (" \n", "is empty"),
        ("allowed: true", "is not JSON"),
        ('{"allowed": tr', "is not JSON"),
        ('{"allowed": true, "message": "\\ud800"}', "is not JSON"),
        ('{"allowed": true, "n": NaN}', "NaN"),
        ("[" * 100_000, "nested too deeply"),
        ("[]", "expected an object, got a list"),
        ('"yes"', "expected an object, got"),
        ('{"allowed": "true"}', "allowed: expected true or false, got"),
        ('{"allowed": true, "message": 3}', "message: expected a string, got"),
        ('{"allowed": true, "warnings": "w"}', "warnings: expected a list, got"),
        ('{"allowed": true, "warnings": ["w", 1]}', "warnings[1]: expected a string, got"),
        ('{"allowed": true, "patch": [{"op": "add"}]}', "patch: expected a string, got a list"),
        ('{"allowed": true, "patch": "%"}', "patch: must be a JSON patch encoded in base64"),
        (json.dumps({"patch": in_base64({"op": "add"})}), "patch: must be a list of operations"),
        (json.dumps({"patch": in_base64([1])}), "patch: must be a list of operations"),
    ],
)
def test_an_invalid_admission_response_is_refused_with_its_location(text, said):
    with pytest.raises(InvalidPolicy) as caught:
        parse_admission(text)
    assert str(caught.value).startswith("$VALIDATING_RESPONSE_PATH")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ('{"convertedObjects": [{"a": 1}]}', ConversionAnswer(objects=({"a": 1},))),
        ('{"failedMessage": "no"}', ConversionAnswer(failed="no")),
        ("{}", ConversionAnswer()),
    ],
)
def test_a_conversion_response_is_parsed(text, answer):
    assert parse_conversion(text) == answer


@pytest.mark.parametrize("text", ["", "{", '{"convertedObjects": {}}', '{"failedMessage": []}'])
def test_an_invalid_conversion_response_is_refused(text):
    with pytest.raises(InvalidPolicy) as caught:
        parse_conversion(text)
    assert str(caught.value).startswith("$CONVERSION_RESPONSE_PATH")
