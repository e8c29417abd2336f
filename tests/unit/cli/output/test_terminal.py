"""The content of objects cannot send control sequences to the user's terminal."""

import io
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from reconciler.cli.output.screen import Screen
from reconciler.cli.output.terminal import CLEAR, visible, visible_streams

ATTACKS = {
    "\x1b[2J": "\\x1b[2J",
    "\x1b]0;title\x07": "\\x1b]0;title\\x07",
    "a\rb": "a\\x0db",
    "a\x08b": "a\\x08b",
    "\x9b31m": "\\u009b31m",
    "\x7f": "\\u007f",
    "\udcff": "\\udcff",
    "\u202eabc": "\\u202eabc",
    "\u2066abc\u2069": "\\u2066abc\\u2069",
    "\u2028": "\\u2028",
}


@pytest.mark.parametrize(("text", "shown"), ATTACKS.items())
def test_control_characters_are_shown_as_escapes(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_other_text_stays_as_it_is() -> None:
    for text in ("a\tb\nc", "Grüße, 世界", "🙂", "\\x1b"):
        assert visible(text) == text


def test_styles_are_written_as_escapes_and_escapes_in_the_text_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bare = io.StringIO()
    monkeypatch.setattr(sys, "stdout", bare)
    screen = Screen(coloured=True)
    with visible_streams():
        sys.stdout.write(screen.style("\x1b[8mname", fg="red") + " \x1b[8m\n")
        sys.stdout.write(CLEAR)
    assert bare.getvalue() == "\x1b[31m\\x1b[8mname\x1b[0m \\x1b[8m\n\x1b[2J\x1b[1;1H"


EVIL = "\x1b[2J\x1b]0;owned\x07\u202e"
POLICY = {
    "apiVersion": "kyverno.io/v1",
    "kind": "ClusterPolicy",
    "metadata": {"name": f"p{EVIL}"},
    "spec": {
        "rules": [
            {
                "name": f"r{EVIL}",
                "match": {"any": [{"resources": {"kinds": ["ConfigMap"]}}]},
                "preconditions": {
                    "all": [
                        {
                            "key": "{{ request.object.data.x }}",
                            "operator": "Equals",
                            "value": "no",
                            "message": f"m{EVIL}",
                        }
                    ]
                },
                "mutate": {"patchStrategicMerge": {"data": {"z": "{{ request.object.data.x }}"}}},
            }
        ]
    },
}
OBJECT = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": f"o{EVIL}", "namespace": "shop"},
    "data": {"x": EVIL},
}


@pytest.mark.parametrize(
    "words",
    [
        ["apply", "{policy}", "-r", "{object}", "-v"],
        ["apply", "{sound}", "-r", "{object}"],
        ["explain", "{policy}", "--trigger", "{object}"],
        ["explain", "{policy}"],
        ["lint", "{policy}"],
        ["lint", f"missing{EVIL}.yaml"],
        ["jp", "query", f"'{EVIL}'"],
        [f"no-command{EVIL}"],
    ],
)
def test_no_command_writes_escape_sequences_from_objects(words: list[str], tmp_path: Path) -> None:
    sound = yaml.safe_load(yaml.safe_dump(POLICY))
    sound["spec"]["rules"][0].pop("preconditions")
    files = {"policy": POLICY, "object": OBJECT, "sound": sound}
    for name, content in files.items():
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(content))
    named = {name: str(tmp_path / f"{name}.yaml") for name in files}
    given = [word.format(**named) if "{" in word else word for word in words]
    shown = _on_a_terminal(given)
    assert shown
    for sign in (b"\x1b[2J", b"\x1b]0;", b"\x07", "\u202e".encode()):
        assert sign not in shown, shown


def _on_a_terminal(words: list[str]) -> bytes:
    """Return the bytes that a command writes to a terminal."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", "from reconciler.cli.main import main; main()", *words],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "NO_COLOR": ""},
    ) as process:
        os.close(theirs)
        read = b""
        while part := _part(ours):
            read += part
        process.wait(timeout=60)
    os.close(ours)
    return read


def _part(ours: int) -> bytes:
    try:
        return os.read(ours, 65536)
    except OSError:  # The other end is closed.
        return b""
