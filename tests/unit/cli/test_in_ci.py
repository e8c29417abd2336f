"""The GitHub action and the pre-commit hooks, as users run them in CI."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.architecture.conftest import ROOT
from tests.documents import blocks

ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
HOOKS = {
    item["id"]: item for item in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
}
INPUT = re.compile(r"\$\{\{ inputs\.([a-z-]+) \}\}")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a policy and a test for it."""
    for name in ("reload-web.yaml", "kyverno-test.yaml", "configmap.yaml", "deployments.yaml"):
        shutil.copy(ROOT / "docs/examples" / name, tmp_path)
    shutil.copy(ROOT / "docs/examples/patched.yaml", tmp_path)
    return tmp_path


def broken(repository: Path) -> None:
    file = repository / "reload-web.yaml"
    file.write_text(file.read_text().replace("patchStrategicMerge:", "patchStrategicMerg:"))


def run(folder: Path, *words: str, **variables: str) -> tuple[int, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        words,
        cwd=folder,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **variables, "PATH": path},
    )
    return done.returncode, done.stdout


def step(name: str, folder: Path, **given: str) -> tuple[int, str]:
    """Run a step of the action with the given inputs, and the defaults for the others."""
    values = {key: item["default"] for key, item in ACTION["inputs"].items()} | given
    (found,) = (item for item in ACTION["runs"]["steps"] if item.get("name") == name)
    variables = {
        key: INPUT.sub(lambda match: values[match[1]], text) for key, text in found["env"].items()
    }
    # The flags with which the GitHub runner starts bash.
    flags = ("--noprofile", "--norc", "-eo", "pipefail")
    return run(folder, "bash", *flags, "-c", found["run"], **variables)


def test_the_action_lints_and_tests(repository: Path) -> None:
    assert step("Lint", repository)[0] == 0
    code, printed = step("Test", repository, tests="\n.\n")
    assert (code, "2 passed, 0 failed" in printed) == (0, True), printed


def test_the_action_annotates_findings_with_their_file(repository: Path) -> None:
    broken(repository)
    code, printed = step("Lint", repository, policies="reload-web.yaml\n")
    assert code == 1
    assert printed.startswith("::error file=reload-web.yaml,")


def test_the_action_fails_on_warnings_only_if_it_is_strict(repository: Path) -> None:
    policy: Any = yaml.safe_load((repository / "reload-web.yaml").read_text())
    mutate = policy["spec"]["rules"][0]["mutate"]
    del mutate["patchStrategicMerge"]
    # A rule that appends again each time that it runs.
    mutate["patchesJson6902"] = '[{"op": "add", "path": "/spec/x/-", "value": "y"}]'
    (repository / "reload-web.yaml").write_text(yaml.safe_dump(policy))
    lax = step("Lint", repository, policies="reload-web.yaml")
    strict = step("Lint", repository, policies="reload-web.yaml", strict="true")
    assert (lax[0], strict[0]) == (0, 1), lax[1]


def test_every_input_of_the_action_is_declared_and_used() -> None:
    text = (ROOT / "action.yml").read_text()
    used = set(INPUT.findall(text)) | set(re.findall(r"inputs\.([a-z-]+) !=", text))
    assert used == set(ACTION["inputs"])
    for name in re.findall(r"\$GITHUB_ACTION_PATH/([\w./-]+)", text):
        assert (ROOT / name).is_file()


def test_the_page_uses_only_existing_inputs_and_hooks() -> None:
    written = [
        yaml.safe_load(block.text)
        for block in blocks(ROOT / "docs/how-to/install.md")
        if block.kind == "yaml"
    ]
    (step_of_workflow,) = (item[0] for item in written if isinstance(item, list))
    assert set(step_of_workflow["with"]) <= set(ACTION["inputs"])
    (configuration,) = (item for item in written if "repos" in item)
    named = {hook["id"] for item in configuration["repos"] for hook in item["hooks"]}
    assert named == set(HOOKS)


@pytest.mark.parametrize("name", sorted(HOOKS))
def test_a_pre_commit_hook_passes_and_fails(repository: Path, name: str) -> None:
    words = (*shlex.split(HOOKS[name]["entry"]), *HOOKS[name]["args"])
    code, printed = run(repository, *words)
    assert code == 0, printed
    broken(repository)
    assert run(repository, *words)[0] == 1
