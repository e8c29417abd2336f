"""Fixtures that give tests a real Kubernetes API, and a check for processes left behind."""

import contextlib
import gc
import os
import signal
import sys
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import structlog
from hypothesis import settings
from xdist.remote import Producer

from devcluster.binaries import Binaries, locate, read_source
from devcluster.cluster import Cluster, ControlPlane
from devcluster.install import install
from devcluster.programs import ADMISSION, CONTROLLER, Programs, start_programs
from devcluster.waiting import wait_until
from reconciler.errors import InvalidSetting, Unavailable
from tests.conformance.report import ConformanceReport
from tests.distribution import ASIDE_NICENESS, Distribution, group_of, is_aside, place_of
from tests.faults.rig import SHORT_LEASE, SHORT_WAR, audit_log
from tests.sharing import Shared
from tests.usedrights import UsedRights, audited

# The runners of conformance cases contain assertions, but are not test modules.
pytest.register_assert_rewrite("tests.conformance.units", "tests.conformance.dialects")

# On two shared cores, the duration of an example says nothing about the code.
settings.register_profile("retrofit", deadline=None)
settings.load_profile("retrofit")

# A shell that starts tests in the background ignores SIGINT, and so would all their children.
signal.signal(signal.SIGINT, signal.default_int_handler)

_MARK = "RETROFIT_TEST_SESSION"
_THRESHOLDS = gc.get_threshold()
_CLUSTER_FIXTURES = frozenset(
    {
        "control_plane",
        "installed_cluster",
        "live_programs",
        "module_namespace",
        "namespace",
        "own_control_plane",
    }
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that `make conformance` uses."""
    parser.addoption(
        "--conformance-report",
        action="store_true",
        help="also run the cases of stage.yaml, and print a table per folder",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugins here, as the process that leads the workers reads no other conftest."""
    config.addinivalue_line("markers", "conformance(folder): a counted case of this folder")
    # CPU is scarce in a run, memory is not: with fewer garbage collections a control plane and
    # kubectl need about a quarter less CPU. An API server whose live objects alone reach the
    # memory limit does nothing but collect.
    os.environ.setdefault("GOGC", "400")
    os.environ.setdefault("GOMEMLIMIT", "2GiB")
    # By default a traceback shows the local variables of each frame, which takes ten seconds.
    plain = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[*structlog.get_config()["processors"][:-1], plain])
    # Collected tests stay in memory, so garbage collection scans them in vain; it would take a
    # seventh of the CPU of collecting tests.
    gc.set_threshold(50_000, 50, 50)
    full = config.getoption("conformance_report")
    config.pluginmanager.register(ConformanceReport(full=full), "conformance-report")
    worker = getattr(config, "workerinput", None)
    if worker is None:
        config.pluginmanager.register(UsedRights.of(config), "used-rights")
    elif is_aside(worker["workerid"], worker["workercount"]):
        os.nice(ASIDE_NICENESS)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Distribution:
    """Keep tests that share a control plane on one worker."""
    return Distribution(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests that need a cluster; on workers, order the tests by the order of their groups."""
    for item in items:
        given = getattr(item, "callspec", None)
        fixtures = set(getattr(item, "fixturenames", ())) - set(given.params if given else ())
        if _CLUSTER_FIXTURES & fixtures:
            item.add_marker(pytest.mark.cluster)
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: place_of(item.nodeid))


def pytest_collection_finish() -> None:
    """Restore the default garbage collection, so that tests soon report what they left open."""
    gc.set_threshold(*_THRESHOLDS)


@pytest.fixture(scope="session", autouse=True)
def no_process_left_behind() -> Iterator[None]:
    """Fail if a process that a test started outlives all tests (on Linux, which has /proc)."""
    mark = f"{_MARK}={uuid.uuid4().hex}"
    os.environ[_MARK] = mark.partition("=")[2]
    yield
    if sys.platform != "linux":
        return
    with contextlib.suppress(Unavailable):
        wait_until(lambda: not _marked(mark), within=5.0, what="all processes of the tests ended")
    left = _marked(mark)
    assert not left, f"processes that tests left behind: {left}"


@pytest.fixture(scope="session")
def binaries() -> Binaries | Path:
    """The control plane's binaries, or the kubeconfig that RETROFIT_CONTROL_PLANE names."""
    try:
        found = locate(os.environ, read_source())
    except InvalidSetting as error:
        pytest.fail(str(error), pytrace=False)
    if found is None:
        # Downloading one takes minutes, more than the timeout of a test.
        pytest.fail("no control plane on this machine: run `make control-plane`", pytrace=False)
    return found


@pytest.fixture(scope="session")
def shared(no_process_left_behind: None) -> Iterator[Shared]:
    """The resources that the tests of one group share (`tests.distribution`)."""
    with Shared() as found:
        yield found


@pytest.fixture(scope="module", autouse=True)
def begun_group(request: pytest.FixtureRequest, shared: Shared) -> None:
    """Close the shared resources of another group before a module of this group starts."""
    shared.begin(group_of(request.node.nodeid))


@pytest.fixture(scope="module")
def control_plane(
    binaries: Binaries | Path, shared: Shared, tmp_path_factory: pytest.TempPathFactory
) -> Cluster:
    """One cluster for all tests of a group; each test keeps to its own namespaces."""
    return shared.get(_cluster, binaries, tmp_path_factory)


@pytest.fixture
def own_control_plane(binaries: Binaries | Path) -> Iterator[ControlPlane]:
    """A control plane that the test may break."""
    if isinstance(binaries, Path):
        pytest.skip("RETROFIT_CONTROL_PLANE names a cluster, which no test may break")
    with audited(binaries) as plane:
        yield plane


@pytest.fixture(scope="module")
def installed_cluster(control_plane: Cluster, shared: Shared) -> Cluster:
    """The shared cluster with CRDs, RBAC, ServiceAccounts and settings; no program runs in it."""
    return shared.get(_installed, control_plane)


@pytest.fixture(scope="module")
def live_programs(
    binaries: Binaries | Path, shared: Shared, tmp_path_factory: pytest.TempPathFactory
) -> Programs:
    """Both programs running in a cluster of their own (``live_programs.cluster``).

    Not in the shared cluster: other tests keep requests there that the programs must not process.
    Some tests break this one, and ``open_rig`` restarts the programs that they left dead.
    """
    return shared.get(_programs, binaries, tmp_path_factory)


@pytest.fixture
def namespace(control_plane: Cluster) -> Iterator[str]:
    """A namespace of this test's own, ready for pods."""
    with _new_namespace(control_plane) as name:
        yield name


@pytest.fixture(scope="module")
def module_namespace(control_plane: Cluster) -> Iterator[str]:
    """A namespace of this module's own, ready for pods."""
    with _new_namespace(control_plane) as name:
        yield name


@contextlib.contextmanager
def _cluster(
    binaries: Binaries | Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    if isinstance(binaries, Path):
        yield Cluster.connect(binaries, tmp_path_factory.mktemp("cluster"))
        return
    with audited(binaries) as plane:
        yield plane


@contextlib.contextmanager
def _installed(cluster: Cluster) -> Iterator[Cluster]:
    install(cluster, "demo")
    yield cluster


@contextlib.contextmanager
def _programs(
    binaries: Binaries | Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Programs]:
    with _cluster(binaries, tmp_path_factory) as cluster:
        settings = install(cluster, "demo")
        for name, more in ((CONTROLLER, (*SHORT_LEASE, *SHORT_WAR)), (ADMISSION, ())):
            audit = f"--audit-log={audit_log(cluster, name)}"
            shipped = settings[name]
            settings[name] = replace(shipped, flags=(*shipped.flags, *more, audit))
        with start_programs(cluster, settings=settings) as programs:
            yield programs


@contextlib.contextmanager
def _new_namespace(cluster: Cluster) -> Iterator[str]:
    name = f"test-{uuid.uuid4().hex[:10]}"
    cluster.kubectl("create", "namespace", name)
    cluster.kubectl("wait", "--for=create", "--timeout=20s", "serviceaccount/default", "-n", name)
    try:
        yield name
    finally:
        # Deleting takes a call per kind; a control plane of the tests ends soon anyway.
        if not isinstance(cluster, ControlPlane):
            cluster.kubectl("delete", "namespace", name, "--wait=false")


def _marked(mark: str) -> list[str]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            # The file holds the environment at the start of a process, so this one never matches.
            if mark.encode() in (folder / "environ").read_bytes():
                words = (folder / "cmdline").read_bytes().split(b"\0")
                found.append(f"{folder.name} {b' '.join(words[:3]).decode(errors='replace')}")
    return found
