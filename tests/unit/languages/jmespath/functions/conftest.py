import pytest

from reconciler.engine.environment import surround
from reconciler.errors import EvaluationError
from reconciler.languages.jmespath import compile_expression


@pytest.fixture
def run():
    """Evaluate an expression on named values."""

    def evaluate(source, /, *, around=None, **data):
        return compile_expression(source).search(data | surround(**(around or {})))

    return evaluate


@pytest.fixture
def fails(run):
    """Evaluate an expression that must fail, and give the text of the error."""

    def evaluate(source, /, **data):
        with pytest.raises(EvaluationError) as failure:
            run(source, **data)
        return str(failure.value)

    return evaluate
