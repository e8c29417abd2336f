import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.requests.schedule import Backoff


@pytest.mark.parametrize(("attempt", "pause"), [(0, 1), (1, 1), (2, 2), (5, 16), (9, 256)])
def test_pauses_double(attempt, pause):
    assert Backoff().delay(attempt) == pause


@given(
    st.integers(1, 10**9),
    st.floats(0, 1, exclude_max=True),
    st.floats(0.001, 10),
    st.floats(10, 1e5),
)
def test_a_pause_lies_between_base_and_ceiling_plus_jitter(attempt, jitter, base, ceiling):
    backoff = Backoff(base=base, ceiling=ceiling)
    assert base <= backoff.delay(attempt) <= backoff.delay(attempt, jitter)
    assert backoff.delay(attempt) <= backoff.delay(attempt + 1) <= ceiling
    assert backoff.delay(attempt, jitter) <= ceiling * 1.2
