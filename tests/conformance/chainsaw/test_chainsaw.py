"""Every chainsaw test of the conformance data, one at a time, on a real control plane."""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from devcluster.binaries import Binaries
from devcluster.cluster import Cluster
from tests.conformance import data, verdicts
from tests.conformance.chainsaw import loader
from tests.conformance.chainsaw.environment import Environment, copy_tree, missing_tools, prepare
from tests.usedrights import audited

ROOT = data.root()
# Each is copied as a whole for a test, because tests use files beside their folder.
GROUPS = (*sorted(ROOT.glob("chainsaw/*")), ROOT / "library")
CASES = sorted(
    folder.relative_to(ROOT).as_posix() for group in GROUPS for folder in loader.discover(group)
)
VERDICTS = verdicts.read()
# Above the sum of the time-outs of any test.
LIMIT = 600


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" in metafunc.fixturenames:
        full = metafunc.config.getoption("conformance_report", default=False)
        params = [pytest.param(case, id=case, marks=_marks(case, full=full)) for case in CASES]
        metafunc.parametrize("case", params)


def _marks(case: str, *, full: bool) -> list[Any]:
    visible = [part for part in PurePosixPath(case).parts if not part.startswith(".")]
    marks: list[Any] = [pytest.mark.conformance("/".join(visible[:-1]))]
    verdict = verdicts.verdict_of(case, VERDICTS)
    if verdict is None:
        return marks
    if full and verdict.attempt:
        return [*marks, pytest.mark.xfail(reason=verdict.reason, strict=False)]
    return [*marks, pytest.mark.skip(reason=verdict.reason)]


@pytest.fixture(scope="module")
def environment(
    binaries: Binaries | Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Environment]:
    """An environment with its own cluster: the policies of these tests apply to all namespaces."""
    folder = tmp_path_factory.mktemp("bin")
    if isinstance(binaries, Path):
        cluster = Cluster.connect(binaries, tmp_path_factory.mktemp("cluster"))
        with prepare(cluster, ("kubectl",), folder) as prepared:
            yield prepared
        return
    with (
        audited(binaries) as plane,
        prepare(plane, binaries.command("kubectl"), folder) as prepared,
    ):
        yield prepared


def test_data_is_there() -> None:
    if not CASES and not data.required():
        pytest.skip(f"conformance data absent: nothing in {ROOT}; set CONFORMANCE_DATA")
    assert CASES, f"CONFORMANCE_REQUIRED=1, but there is no chainsaw test in {ROOT}"


def test_every_verdict_matches_a_case() -> None:
    if not CASES:
        pytest.skip("conformance data absent")
    assert verdicts.idle_patterns(CASES, VERDICTS) == []


@pytest.mark.timeout(LIMIT)
async def test_case(case: str, environment: Environment, tmp_path: Path) -> None:
    group = next(path for path in GROUPS if (ROOT / case).is_relative_to(path))
    # The copy keeps its path below a root, so that relative paths up the tree stay valid.
    copy = tmp_path / group.relative_to(ROOT)
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy_tree(group, copy)
    folder = tmp_path / case
    missing = missing_tools(folder)
    if missing:
        pytest.skip(f"not on PATH: {', '.join(missing)}")
    test = loader.load(folder, tmp_path)
    await environment.play(test, case)
