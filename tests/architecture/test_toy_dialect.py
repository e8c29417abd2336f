"""A new dialect takes one folder and one line: the toy dialect then works with every driver."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.conftest import ROOT
from tests.architecture.test_contracts import only_python

TOY = ROOT / "tests/architecture/toy"
LINE = "DIALECTS: Final[tuple[Dialect, ...]] = (KYVERNO, KUBEMOD, KINITIRAS)\n"


# Copying the tree and running pytest in the copy takes half a minute.
@pytest.mark.timeout(300)
def test_a_dialect_takes_one_folder_and_one_line_of_the_registry(tmp_path: Path) -> None:
    for package in ("reconciler", "admission", "tests"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=only_python)
    for name in ("pyproject.toml", "crds", "manifests", "devcluster"):
        (tmp_path / name).symlink_to(ROOT / name)
    folder = tmp_path / "reconciler/dialects/toy"
    folder.mkdir()
    shutil.copy(TOY / "dialect.py", folder / "__init__.py")
    registry = tmp_path / "reconciler/dialects/registry.py"
    text = registry.read_text()
    assert text.count(LINE) == 1
    planted = LINE.replace("KINITIRAS)", "KINITIRAS, TOY)")
    imported = "from reconciler.dialects.toy import TOY\n"
    registry.write_text(text.replace(LINE, planted).replace("__all__", f"{imported}\n__all__", 1))
    shutil.copy(TOY / "scenes.py", tmp_path / "tests/unit/services/test_toy.py")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0"),
            "tests/unit/services/test_toy.py",
        ],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(tmp_path), "HOME": str(tmp_path)},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "5 passed" in done.stdout
