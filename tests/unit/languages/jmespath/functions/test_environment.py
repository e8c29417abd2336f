from datetime import UTC, datetime

import pytest

from reconciler.dialects.kyverno.template import compile_template
from reconciler.engine.context import Context
from reconciler.engine.environment import environment_entry
from reconciler.errors import EvaluationError
from reconciler.languages.jmespath import IMPURE, compile_expression

NOW = datetime(2026, 11, 21, tzinfo=UTC)


def test_functions_of_time_and_randomness_are_impure():
    assert {"random", "time_now", "time_now_utc", "time_since"} == IMPURE
    assert not compile_expression("time_now()").functions.isdisjoint(IMPURE)


@pytest.mark.parametrize("source", ["@", "keys(@)", "*", "length(@)", "to_string(@)"])
def test_an_expression_does_not_see_the_environment(source):
    expression = compile_expression(source)
    assert expression.search({"a": 1, **environment_entry(now=NOW)}) == expression.search({"a": 1})


def test_data_cannot_pose_as_the_environment():
    (key,) = environment_entry(now=NOW)
    with pytest.raises(EvaluationError, match="the current time is not available here"):
        compile_expression("time_now()").search({key: {"now": "2026-11-21T00:00:00Z"}})


def test_a_context_passes_the_environment_to_documents_and_nested_variables():
    context = Context({"names": {"2026-11-21T00:00:00Z": "today"}}).bind(
        **environment_entry(now=NOW)
    )
    document = {"at": "{{ time_now() }}", "name": '{{ names."{{ time_now_utc() }}" }}'}
    rendered = compile_template(document).render(context.bind(more=1))
    assert rendered == {"at": "2026-11-21T00:00:00Z", "name": "today"}
