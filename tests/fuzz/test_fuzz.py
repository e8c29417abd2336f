"""The short form of `make fuzz`: each way in, for so many inputs."""

import pytest

from tests.fuzz import http, pipeline
from tests.fuzz.fuzzing import Fuzzer

FUZZERS = (*http.FUZZERS, *pipeline.FUZZERS)


# What fails is made small for up to five minutes, and says nothing where that is cut off.
@pytest.mark.timeout(400)
@pytest.mark.parametrize("fuzzer", FUZZERS, ids=lambda fuzzer: fuzzer.name)
def test_bad_input_is_refused_by_its_place_and_good_input_has_its_end(fuzzer: Fuzzer) -> None:
    fuzzer.run(fuzzer.short)
