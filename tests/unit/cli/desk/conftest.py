"""A folder with a test's files, and the command line run in it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent, indent

import pytest
from click.testing import CliRunner, Result

from reconciler.cli.main import retrofit


@dataclass(frozen=True)
class Desk:
    folder: Path

    def write(self, name: str, text: str) -> str:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text), encoding="utf-8")
        return str(path)

    def run(self, *words: str, stdin: str | None = None) -> Result:
        done = CliRunner().invoke(retrofit, list(words), input=stdin)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.chdir(tmp_path)
    return Desk(tmp_path)


@pytest.fixture
def policy(desk: Desk) -> Callable[[str], str]:
    def write(rules: str, name: str = "p") -> str:
        head = (
            f"apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {{name: {name}}}\nspec:\n"
        )
        path = desk.folder / f"{name}.yaml"
        path.write_text(f"{head}  rules:\n{indent(dedent(rules), '  ')}", encoding="utf-8")
        return str(path)

    return write
