"""The short form of `make fuzz`: each fuzzer with a small number of inputs."""

import pytest

from tests.fuzz import http, pipeline
from tests.fuzz.fuzzing import Fuzzer

FUZZERS = (*http.FUZZERS, *pipeline.FUZZERS)


# Hypothesis shrinks a failure for up to five minutes, and a timeout would hide the failure.
@pytest.mark.timeout(400)
@pytest.mark.parametrize("fuzzer", FUZZERS, ids=lambda fuzzer: fuzzer.name)
def test_bad_input_is_refused_with_its_location_and_good_input_is_handled(fuzzer: Fuzzer) -> None:
    fuzzer.run(fuzzer.short)
