from collections.abc import Callable
from typing import Any

import pytest

from reconciler.engine.environment import environment_entry
from reconciler.errors import EvaluationError
from reconciler.languages.jmespath import compile_expression


@pytest.fixture
def run() -> Callable[..., Any]:
    """Return a function that evaluates an expression on named values."""

    def evaluate(source: str, /, *, environment: Any = None, **data: Any) -> Any:
        return compile_expression(source).search(data | environment_entry(**(environment or {})))

    return evaluate


@pytest.fixture
def fails(run: Callable[..., Any]) -> Callable[..., str]:
    """Return a function that evaluates a failing expression and returns the error's text."""

    def evaluate(source: str, /, **data: Any) -> str:
        with pytest.raises(EvaluationError) as failure:
            run(source, **data)
        return str(failure.value)

    return evaluate
