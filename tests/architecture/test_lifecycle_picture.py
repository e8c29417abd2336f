"""The picture of a request's states shows the transitions that the code makes."""

from typing import get_args

from reconciler.requests.lifecycle import Disposition
from tests.lifecycle_picture import EXAMPLES, LABELS, draw, drawn


def test_the_picture_on_the_page_is_up_to_date() -> None:
    assert drawn() == draw(), "write it anew: python -m tests.lifecycle_picture"


def test_every_disposition_has_an_example_and_a_label() -> None:
    assert set(EXAMPLES) == set(LABELS) == set(get_args(Disposition))
