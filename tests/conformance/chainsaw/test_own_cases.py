"""The runner on a real API server, with the project's own cases: half of them must fail."""

from pathlib import Path

import pytest

from devcluster.binaries import Binaries
from devcluster.cluster import Cluster
from tests.conformance.chainsaw import loader
from tests.conformance.chainsaw.cluster import ApiServer
from tests.conformance.chainsaw.environment import copy_tree, make_shell, missing_tools
from tests.conformance.chainsaw.operations import Failure
from tests.conformance.chainsaw.runner import run
from tests.conformance.chainsaw.shell import Shell
from tests.conformance.kubeconfig import read

CASES = Path(__file__).parent / "cases"
PASSING, FAILING = (
    [folder.relative_to(CASES).as_posix() for folder in loader.discover(CASES / kind)]
    for kind in ("passes", "fails")
)


@pytest.fixture(scope="module")
def shell(
    control_plane: Cluster, binaries: Binaries | Path, tmp_path_factory: pytest.TempPathFactory
) -> Shell:
    kubectl = ("kubectl",) if isinstance(binaries, Path) else binaries.command("kubectl")
    return make_shell(control_plane, kubectl, tmp_path_factory.mktemp("bin"))


async def run_case(case: str, cluster: Cluster, shell: Shell, tmp_path: Path) -> None:
    copy_tree(CASES, tmp_path / "cases")
    test = loader.load(tmp_path / "cases" / case, tmp_path)
    async with ApiServer(read(cluster.kubeconfig)) as server:
        await run(test, server, shell)


@pytest.mark.parametrize("case", PASSING)
async def test_a_passing_case_succeeds_and_leaves_no_objects(
    case: str, control_plane: Cluster, shell: Shell, tmp_path: Path
) -> None:
    await run_case(case, control_plane, shell, tmp_path)
    left = control_plane.kubectl("get", "configmaps,crds", "-A", "-o", "name")
    assert "configmap/shelf" not in left.split()
    assert "crates.cases.kube-retrofit.dev" not in left


@pytest.mark.parametrize("case", FAILING)
async def test_a_failing_case_fails_with_the_expected_message(
    case: str, control_plane: Cluster, shell: Shell, tmp_path: Path
) -> None:
    first, *_ = (CASES / case / loader.TEST_FILE).read_text().splitlines()
    with pytest.raises(Failure) as caught:
        await run_case(case, control_plane, shell, tmp_path)
    assert first.removeprefix("# expected: ") in str(caught.value)


def test_a_missing_tool_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.sh").write_text("a $(jq .) |curl -s")
    (tmp_path / "jq.yaml").write_text("openssl")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert missing_tools(tmp_path) == ["curl", "jq"]
