"""The files of docs/examples produce the output that the documents show."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from reconciler.cli.main import retrofit
from tests.architecture.conftest import ROOT

EXAMPLES = ROOT / "docs/examples"
README = (ROOT / "README.md").read_text()
TESTING = (ROOT / "docs/how-to/test-a-policy.md").read_text()
FILES = ["reload-web.yaml", "-r", "configmap.yaml", "-t", "deployments.yaml"]


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLES)


def run(*words: str) -> Result:
    return CliRunner().invoke(retrofit, list(words))


def test_the_example_policy_is_the_one_in_the_readme() -> None:
    assert f"```yaml\n{Path('reload-web.yaml').read_text()}```\n" in README


def test_the_first_example_prints_the_output_in_the_readme() -> None:
    shown = re.search(r"^\$ retrofit apply ([^\n]*)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    assert shown
    assert shown[1].split() == FILES
    done = run("apply", *FILES)
    assert done.exit_code == 0
    assert shown[2] == done.stdout + done.stderr


def test_the_steps_of_testing_a_policy_work_on_the_examples() -> None:
    assert run("apply", *FILES, "-o", "yaml").stdout == Path("patched.yaml").read_text()
    assert f"```yaml\n{Path('kyverno-test.yaml').read_text()}```\n" in TESTING
    assert run("test", ".", "--strict").exit_code == 0
    assert run("lint", "--strict", ".").exit_code == 0
    assert run("apply", "reload-web.yaml", "-r", "patched.yaml", "--check").exit_code == 0
    assert run("apply", *FILES, "--check").exit_code == 1
