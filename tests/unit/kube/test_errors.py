"""The errors that the API server's responses are mapped to."""

import orjson
import pytest

from reconciler import errors
from reconciler.kube.errors import failure, readable
from reconciler.kube.paths import describe

PATCH = describe("PATCH", "/apis/apps/v1/namespaces/a/deployments/web")
GET = describe("GET", "/api/v1/namespaces/a/secrets/s")


def status(code, reason="", message="", **details):
    return {
        "kind": "Status",
        "code": code,
        "reason": reason,
        "message": message,
        "details": details,
    }


def error_of(call, answer, headers=None, code=None):
    body = answer if isinstance(answer, bytes) else orjson.dumps(answer)
    return failure(call, code or answer["code"], headers or {}, body)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (status(401, "Unauthorized"), errors.Unauthorized),
        (status(404, "NotFound", 'deployments.apps "web" not found', name="web"), errors.NotFound),
        (status(404, "NotFound", "could not find the requested resource"), errors.NoKindMatch),
        (status(409, "AlreadyExists"), errors.AlreadyExists),
        (status(409, "Conflict"), errors.Conflict),
        (status(410, "Expired"), errors.Gone),
        (status(400, "BadRequest"), errors.Invalid),
        (status(405, "MethodNotAllowed"), errors.Invalid),
        (status(413, "RequestEntityTooLarge"), errors.Invalid),
        (status(415, "UnsupportedMediaType"), errors.Invalid),
        (status(422, "Invalid"), errors.Invalid),
        (status(429, "TooManyRequests"), errors.Throttled),
        (status(408, "Timeout"), errors.Unavailable),
        (status(500, "InternalError"), errors.Unavailable),
        (status(503, "ServiceUnavailable"), errors.Unavailable),
        (status(504, "Timeout"), errors.Unavailable),
        (
            status(500, "InternalError", 'failed calling webhook "a.example": connection refused'),
            errors.Unavailable,
        ),
        (status(400, "", 'admission webhook "a.example" denied the request: no'), errors.Denied),
        (status(403, "", 'admission webhook "a.example" denied the request: no'), errors.Denied),
        (
            status(
                422,
                "Invalid",
                'deployments.apps "web" is forbidden: '
                "ValidatingAdmissionPolicy 'a' with binding 'b' denied request: no",
            ),
            errors.Denied,
        ),
        (status(403, "Forbidden", 'pods "a" is forbidden: exceeded quota: q'), errors.Denied),
        (
            {
                **status(403, "Forbidden", 'pods "a" is forbidden: unable to create new content'),
                "details": {"causes": [{"reason": "NamespaceTerminating"}]},
            },
            errors.NamespaceTerminating,
        ),
        (
            status(
                403,
                "Forbidden",
                'deployments.apps "web" is forbidden: User "u" cannot patch resource '
                '"deployments" in API group "apps" in the namespace "a"',
            ),
            errors.Forbidden,
        ),
    ],
)
def test_every_status_is_mapped_to_its_error(answer, kind):
    error = error_of(PATCH, answer)
    assert type(error) is kind
    assert error.status == answer["code"]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (302, errors.Unavailable),
        (403, errors.Forbidden),
        (404, errors.NoKindMatch),
        (409, errors.Conflict),
        (418, errors.Invalid),
        (502, errors.Unavailable),
    ],
)
def test_a_response_of_a_proxy_is_mapped_by_its_status_code(code, kind):
    assert type(error_of(PATCH, b"<html>", code=code)) is kind


def test_forbidden_names_the_permission():
    error = error_of(PATCH, b"", code=403)
    assert error.permission == "patch deployments.apps in namespace a"
    assert "grant: patch deployments.apps in namespace a" in str(error)


def test_a_forbidden_read_is_not_a_denial():
    error = error_of(GET, status(403, "Forbidden", "secrets is forbidden: no"))
    assert isinstance(error, errors.Forbidden)


def test_unauthorized_says_that_the_token_is_expired_or_wrong():
    assert "token is expired or wrong" in str(error_of(PATCH, b"", code=401))


@pytest.mark.parametrize(
    ("headers", "details", "seconds"),
    [
        ({"Retry-After": "7"}, {}, 7.0),
        ({}, {"retryAfterSeconds": 3}, 3.0),
        ({}, {}, None),
        ({"Retry-After": "Fri, 31 Dec 1999 23:59:59 GMT"}, {}, None),
        ({"Retry-After": "nan"}, {}, None),
        # A load balancer in maintenance asks for it; then all work would stop for as long.
        ({"Retry-After": "3600"}, {}, 60.0),
    ],
)
def test_the_time_to_wait_is_read_from_the_header_or_the_details(headers, details, seconds):
    assert error_of(PATCH, status(429, **details), headers).retry_after == seconds


def test_a_quoted_object_is_left_out_of_the_message():
    quoted = orjson.dumps(orjson.dumps({"data": {"password": "aHVudGVyMg=="}}).decode()).decode()
    message = f' "" is invalid: patch: Invalid value: {quoted}: unknown field "dota"'
    text = readable(message, secret=False)
    assert text == '"" is invalid: patch: Invalid value: (left out): unknown field "dota"'


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ('type: Invalid value: "x": bad', "type: Invalid value: (left out): bad"),
        ("a: Invalid value: {'b'}: bad", "a: Invalid value: (left out)"),
        ('a: Duplicate value: "x"', "a: Duplicate value: (left out)"),
    ],
)
def test_values_of_secrets_are_left_out_of_the_message(message, text):
    assert readable(message, secret=True) == text


def test_a_short_value_stays_in_the_message():
    message = 'spec.replicas: Invalid value: "two": must be an integer'
    assert readable(message, secret=False) == message


def test_a_long_message_is_cut():
    assert len(readable("x" * 5000, secret=False)) == 1027
