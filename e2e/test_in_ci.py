"""The GitHub action installs itself as on a runner: from the package index, into a new folder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]


@pytest.mark.timeout(600)
def test_the_action_installs_the_program_that_its_other_steps_call(tmp_path: Path) -> None:
    steps = yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"]
    (install,) = (item["run"] for item in steps if item.get("name") == "Install")
    found = tmp_path / "path"
    # The interpreter that actions/setup-python puts first on the PATH.
    (tmp_path / "python").symlink_to(sys.executable)
    variables = {
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        "RUNNER_TEMP": str(tmp_path),
        "GITHUB_ACTION_PATH": str(ROOT),
        "GITHUB_PATH": str(found),
    }
    subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", install],
        env={**os.environ, **variables},
        check=True,
    )
    program = Path(found.read_text().strip(), "retrofit")
    examples = ROOT / "docs/examples"
    for words in (("lint", "reload-web.yaml"), ("test", ".")):
        subprocess.run([program, *words], cwd=examples, check=True)
