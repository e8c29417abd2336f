"""The tests of mutate-existing, migrated with `retrofit migrate`, in a cluster with a Kyverno."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from devcluster.binaries import Binaries
from devcluster.cluster import ControlPlane
from reconciler.cli.main import retrofit
from reconciler.installation import BESIDE, REPLACING
from tests.conformance import verdicts
from tests.conformance.chainsaw import loader
from tests.conformance.chainsaw.environment import Environment, copy_tree, prepare
from tests.conformance.chainsaw.neighbour import calls, is_of_kyverno, living_kyverno, stored
from tests.conformance.chainsaw.test_chainsaw import CASES, LIMIT, ROOT, VERDICTS
from tests.usedrights import audited

GROUP = "chainsaw/existing"
MOVED = [
    case
    for case in CASES
    if case.startswith(f"{GROUP}/") and verdicts.verdict_of(case, VERDICTS) is None
]
IN_TEXTS = {
    # Commands in scripts, which are not objects.
    f"-n {REPLACING.namespace}": f"-n {BESIDE.namespace}",
    f"configmap {REPLACING.settings}": f"configmap {BESIDE.settings}",
    "get updaterequests": "get retrofitupdaterequests",
    "- cpol\n": "- rcpol\n",
    f"in {REPLACING.namespace} namespace": f"in {BESIDE.namespace} namespace",
    # The origin of a report.
    f"managed-by: {REPLACING.reporter}": f"managed-by: {BESIDE.reporter}",
    f"source: {REPLACING.reporter}": f"source: {BESIDE.reporter}",
}
"""Names of the programs in texts, which users change themselves when they migrate."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "moved" in metafunc.fixturenames:
        full = metafunc.config.getoption("conformance_report", default=False)
        marks = [pytest.mark.conformance("beside"), *([] if full else [pytest.mark.skip(_WHY)])]
        metafunc.parametrize("moved", [pytest.param(it, id=it, marks=marks) for it in MOVED])


_WHY = "make conformance runs them; tests/integration/test_beside.py has one of each kind"


@pytest.fixture(scope="module")
def beside(
    binaries: Binaries | Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Environment]:
    """A separate cluster with the objects of a Kyverno, which must be unchanged at the end."""
    if isinstance(binaries, Path):
        pytest.skip("RETROFIT_CONTROL_PLANE names a cluster, which gets no second installation")
    folder = tmp_path_factory.mktemp("bin")
    kubectl = binaries.command("kubectl")
    with audited(binaries) as plane, living_kyverno(plane):
        before = stored(plane)
        with prepare(plane, kubectl, folder, overlay="conformance-beside") as prepared:
            yield prepared
        check_untouched(plane, before)


def check_untouched(plane: ControlPlane, before: dict[str, str]) -> None:
    """Fail if an object of Kyverno has changed, or a call addressed one."""
    assert stored(plane) == before
    assert len(before) == 4
    made = list(calls(plane))
    assert len(made) > 100
    assert [call for call in made if is_of_kyverno(call[2])] == []


@pytest.mark.timeout(LIMIT)
async def test_a_migrated_case_passes_beside_kyverno(
    moved: str, beside: Environment, tmp_path: Path
) -> None:
    copy = tmp_path / GROUP
    copy.parent.mkdir(parents=True)
    copy_tree(ROOT / GROUP, copy)
    for folder in (tmp_path / moved, copy / "_step-templates"):
        # The command runs its own event loop.
        await asyncio.to_thread(migrate, folder)
    test = loader.load(tmp_path / moved, tmp_path)
    await beside.play(test, moved)


def migrate(folder: Path) -> None:
    """Migrate the files of a folder as their owner would."""
    result = CliRunner().invoke(retrofit, ["migrate", str(folder), "--write"])
    # Some of the policies are invalid on purpose.
    assert result.exit_code in {0, 1}, result.output
    for path in folder.iterdir():
        if path.suffix in {".sh", ".yaml"}:
            text = path.read_text()
            for before, after in IN_TEXTS.items():
                text = text.replace(before, after)
            path.write_text(text)
