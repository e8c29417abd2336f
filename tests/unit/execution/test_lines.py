"""Splitting of a process's output into lines, with limits."""

from reconciler.execution.lines import LONGEST, RATE, LineReader


def test_lines_are_assembled_from_pieces() -> None:
    lines = LineReader()
    assert lines.feed(b"one\ntw", 0.0) == ["one"]
    assert lines.feed(b"o\r\n\n  \nthree", 0.0) == ["two"]
    assert lines.finish(0.0) == ["three"]
    assert lines.finish(0.0) == []


def test_a_long_line_is_cut_even_if_it_arrives_in_pieces() -> None:
    lines = LineReader()
    assert lines.feed(b"x" * LONGEST + b"\n", 0.0) == ["x" * LONGEST]
    for _ in range(100):
        assert lines.feed(b"y" * LONGEST, 0.0) == []
    assert lines.feed(b"\nz\n", 0.0) == ["y" * LONGEST + " [cut]", "z"]


def test_the_lines_per_second_are_limited_and_the_last_line_is_kept() -> None:
    lines = LineReader()
    shown = lines.feed(b"".join(b"%d\n" % number for number in range(RATE + 5)), 0.2)
    assert (len(shown), lines.left_out, lines.last) == (RATE, 5, str(RATE + 4))
    assert lines.feed(b"too many\n", 0.9) == []
    assert lines.feed(b"again\n", 1.3) == ["again"]
    assert lines.left_out == 6


def test_control_characters_and_invalid_bytes_are_escaped() -> None:
    given = b"a\xff\x00\tb\x1b[2Jc\xc2\x9bd\xc3\xa9\n"
    assert LineReader().feed(given, 0.0) == ["a\\xff\\x00\tb\\x1b[2Jc\\x9bdé"]
