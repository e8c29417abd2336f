"""The webhook's responses to writes of PolicyExceptions."""

from collections.abc import Awaitable, Callable

import pytest

from admission.decide import AdmissionResponse
from admission.exceptions import ExceptionWebhook
from reconciler.services.catalog.exceptions import DISABLED, ExceptionSettings
from reconciler.serving.review import parse_review
from tests.unit.admission.conftest import Make

HEEDED = ExceptionSettings(enabled=True, namespaces="security")


def exception(namespace="security", **spec):
    return {
        "apiVersion": "kyverno.io/v2",
        "kind": "PolicyException",
        "metadata": {"name": "e", "namespace": namespace},
        "spec": {
            "match": {"any": [{"resources": {"kinds": ["ConfigMap"]}}]},
            "exceptions": [{"policyName": "p", "ruleNames": ["r"]}],
            **spec,
        },
    }


@pytest.fixture
def response(make: type[Make]) -> Callable[..., Awaitable[AdmissionResponse]]:
    async def ask(obj, old=None, *, exception_settings=HEEDED):
        body = make.review("UPDATE" if old else "CREATE", obj, old)
        return await ExceptionWebhook(exception_settings).review(
            parse_review(body), make.deadline()
        )

    return ask


async def test_an_exception_in_an_allowed_namespace_is_stored_without_warning(response):
    found = await response(exception())
    assert (found.allowed, found.warnings) == (True, ())


async def test_an_exception_in_another_namespace_gives_a_warning(response):
    found = await response(exception("a"))
    assert found.allowed
    assert found.warnings == (
        "a PolicyException in namespace a is not honoured: --exception-namespace allows security",
    )


async def test_an_exception_gives_a_warning_if_exceptions_are_disabled(response):
    found = await response(exception(), exception_settings=ExceptionSettings())
    assert (found.allowed, found.warnings) == (True, (DISABLED,))


async def test_an_invalid_exception_is_refused_with_its_place(response):
    found = await response(exception(exceptions=[]))
    assert (found.allowed, found.code) == (False, 422)
    assert found.message.startswith("PolicyException security/e: spec.exceptions: ")


async def test_compiler_warnings_of_an_exception_are_returned(response):
    (text,) = (await response(exception(podSecurity=[{}]))).warnings
    assert "podSecurity" in text


async def test_a_broken_exception_can_still_be_labelled_and_removed(response):
    broken = exception(exceptions=[])
    labelled = {**broken, "metadata": {**broken["metadata"], "labels": {"a": "b"}}}
    assert (await response(labelled, broken)).allowed
    dying = {**broken["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    assert (await response({**broken, "metadata": dying}, exception())).allowed


async def test_a_changed_excepts_annotation_is_checked(response):
    marks = {"annotations": {"kube-retrofit.dev/excepts": "all"}}
    changed = exception()
    changed["metadata"] |= marks
    assert not (await response(changed, exception())).allowed
