from collections.abc import Callable
from typing import Any

import pytest

from reconciler.engine.environment import environment_entry
from reconciler.errors import EvaluationError
from reconciler.languages.jmespath import compile_expression


@pytest.fixture
def run() -> Callable[..., Any]:
    """Evaluate an expression on named values."""

    def evaluate(source: str, /, *, environment: Any = None, **data: Any) -> Any:
        return compile_expression(source).search(data | environment_entry(**(environment or {})))

    return evaluate


@pytest.fixture
def fails(run: Callable[..., Any]) -> Callable[..., str]:
    """Evaluate an expression that must fail, and give the text of the error."""

    def evaluate(source: str, /, **data: Any) -> str:
        with pytest.raises(EvaluationError) as failure:
            run(source, **data)
        return str(failure.value)

    return evaluate
