"""Colours, width, tables and counts in the output of commands."""

import io
import os
import pty
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

import pytest

from reconciler.cli.output.exits import FINDINGS, NOT_RUN, code_of
from reconciler.cli.output.screen import Screen, screen_of
from reconciler.cli.output.table import table
from reconciler.cli.output.words import nearest, number, some
from reconciler.errors import EvaluationError, InvalidPolicy, InvalidSetting, Unavailable


@contextmanager
def terminal() -> Iterator[TextIO]:
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb", 0), os.fdopen(theirs, "w") as stream:
        yield stream


@pytest.mark.parametrize(
    ("environment", "coloured"),
    [
        ({}, True),
        ({"NO_COLOR": "1"}, False),
        ({"NO_COLOR": "false"}, False),
        ({"NO_COLOR": ""}, True),
        ({"TERM": "dumb"}, False),
    ],
)
def test_colours_are_used_only_on_terminals_without_no_color(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], coloured: bool
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with terminal() as stream:
        assert screen_of(stream).coloured is coloured
    assert screen_of(io.StringIO()) == Screen()


def test_a_message_is_folded_between_words_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    text = "spec.rules[0].mutate.targets[0].kind: expected a string, which this is not"
    with terminal() as stream:
        lines = screen_of(stream).fold(text, "  ", hanging="    ")
    assert lines == [
        "  spec.rules[0].mutate.targets[0].kind:",
        "    expected a string, which this is not",
    ]
    assert Screen().fold(text) == [text]


HEAD = ("POLICY", "RULE", "CHANGED")


def test_a_table_that_fits_is_not_folded() -> None:
    rows = [HEAD, ("reload-web", "settings-changed", "12")]
    assert list(table(rows, 80)) == [
        "POLICY      RULE              CHANGED",
        "reload-web  settings-changed  12",
    ]


def test_a_wide_cell_is_wrapped_at_its_hyphens() -> None:
    rows = [HEAD, ("reload-web", "settings-of-the-whole-shop-changed", "12")]
    assert list(table(rows, 46)) == [
        "POLICY      RULE                       CHANGED",
        "reload-web  settings-of-the-whole-     12",
        "            shop-changed",
    ]


def test_columns_that_do_not_fit_are_shown_below_each_other() -> None:
    rows = [HEAD, ("a" * 30, "b" * 30, "12"), ("a", "b", "1")]
    assert list(table(rows, 40)) == [
        f"POLICY   {'a' * 30}",
        f"RULE     {'b' * 30}",
        "CHANGED  12",
        "",
        "POLICY   a",
        "RULE     b",
        "CHANGED  1",
    ]


def test_counts_are_shown_with_singular_or_plural() -> None:
    assert [number(count, "object") for count in (0, 1, 2, 1234)] == [
        "0 objects",
        "1 object",
        "2 objects",
        "1,234 objects",
    ]
    assert number(2, "policy", "policies") == "2 policies"


def test_lists_of_names_are_shortened_and_similar_names_suggested() -> None:
    assert nearest("realod", ["reload", "stamp"]) == "; did you mean reload?"
    assert nearest("other", ["reload"]) == ""
    assert some(["a", "b"]) == "a, b"
    assert some(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"


def test_the_class_of_an_error_determines_the_exit_code() -> None:
    assert code_of(InvalidPolicy("spec", "wrong")) == FINDINGS
    assert code_of(EvaluationError("no value")) == FINDINGS
    assert code_of(InvalidSetting("no file")) == NOT_RUN
    assert code_of(Unavailable("no cluster")) == NOT_RUN
