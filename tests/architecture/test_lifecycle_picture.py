"""The picture of a request's states shows the transitions that the code makes."""

from typing import get_args

from reconciler.requests.lifecycle import Disposition
from tests.lifecycle_picture import EXAMPLES, LABELS, draw, drawn


def test_the_page_shows_what_the_code_does() -> None:
    assert drawn() == draw(), "write it anew: python -m tests.lifecycle_picture"


def test_no_end_of_an_attempt_is_left_out() -> None:
    assert set(EXAMPLES) == set(LABELS) == set(get_args(Disposition))
