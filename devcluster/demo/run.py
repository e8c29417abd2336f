"""The run of the demonstration: its cluster, the scenes, and the cleanup."""

import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.text import Text

from devcluster import sessions, state
from devcluster.binaries import VARIABLE, Binaries, read_source
from devcluster.cluster import Cluster, ControlPlane, Options
from devcluster.demo.scenes import SCENES
from devcluster.demo.stage import OBJECTS, Stage, heading
from devcluster.install import NAMESPACE, install
from devcluster.obtain import obtain
from devcluster.programs import start_programs
from reconciler.clock import SystemClock
from reconciler.errors import InvalidSetting, RetrofitError

_WIDTH = 100


def run(console: Console, environ: Mapping[str, str], keep: Path | None) -> None:
    """Run the demonstration.

    Args:
        environ: Environment variables, which may name a control plane.
        keep: Folder of a cluster that is kept; None for a temporary one.

    Raises:
        RetrofitError: Something did not start, or a scene's check failed; the message says
            where the logs are.
    """
    clock = SystemClock()
    began = clock.monotonic()
    if not console.is_terminal:
        console.width = _WIDTH
    binaries = _binaries(environ)
    heading(console, "kube-retrofit changes the objects that a cluster already has, by policy")
    console.print(
        "This is a real Kubernetes API on this machine, without a container engine or nodes."
        " Pods stay Pending; everything else works.\n",
        highlight=False,
    )
    opened = _kept(console, environ, keep, binaries) if keep else _own(console, binaries)
    with opened as cluster:
        stage = Stage(console, cluster)
        cluster.kubectl("apply", "-f", str(OBJECTS / "shop.yaml"))
        facts = [scene(stage) for scene in SCENES]
    _epilogue(console, facts)
    if keep:
        _how_to_use(console, keep, cluster, binaries)
    else:
        _how_to_go_on(console)
    console.print(f"\n{clock.monotonic() - began:.1f} s in all.", highlight=False)


def _binaries(environ: Mapping[str, str]) -> Binaries:
    found = obtain(environ, read_source())
    if isinstance(found, Binaries):
        return found
    raise InvalidSetting(
        f"{VARIABLE} names a cluster ({found}); the demonstration makes one of its own: "
        f"unset {VARIABLE}, or let it name the control plane's programs"
    )


@contextmanager
def _own(console: Console, binaries: Binaries) -> Iterator[Cluster]:
    """Run a temporary cluster with both programs; keep the logs of a failure."""
    with _step(console, "etcd, kube-apiserver, kube-controller-manager"):
        plane = ControlPlane.start(Options(binaries=binaries))
    with plane:
        try:
            with _step(console, "custom resources, roles and ServiceAccounts"):
                settings = install(plane)
            text = "retrofit-admission and retrofit-controller, each as its ServiceAccount"
            with _step(console, text):
                programs = start_programs(plane, settings=settings, log_format="console")
            with programs:
                yield plane
        except RetrofitError as error:
            logs = Path(tempfile.mkdtemp(prefix="retrofit-demo-logs-"))
            shutil.copytree(plane.layout.logs, logs, dirs_exist_ok=True)
            raise RetrofitError(f"{error}\nLogs of all programs: {logs}") from error


@contextmanager
def _kept(
    console: Console, environ: Mapping[str, str], folder: Path, binaries: Binaries
) -> Iterator[Cluster]:
    """Run a cluster with both programs that is kept, even after a failure."""
    there = state.load(folder)
    if there and there.running():
        raise InvalidSetting(
            f"a cluster runs in {folder} already: end it with `{_dev('down', folder)}`, "
            "or name another folder with --dir"
        )

    def note(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    try:
        there = sessions.up(sessions.Up(directory=folder), environ, note)
        kubectl = binaries.command("kubectl")
        yield Cluster.connect(Path(there.kubeconfig), folder, kubectl)
    except BaseException:
        down = _dev("down", folder)
        note(f"What has started stays; logs are in {folder / 'logs'}; `{down}` ends it")
        raise


@contextmanager
def _step(console: Console, text: str) -> Iterator[None]:
    clock = SystemClock()
    began = clock.monotonic()
    yield
    console.print(f"  {clock.monotonic() - began:5.1f} s  {text}", highlight=False)


def _epilogue(console: Console, facts: list[str]) -> None:
    heading(console, "What you have seen")
    for number, fact in enumerate(facts, 1):
        console.print(Text(f"  {number}  {fact}", style="green"))


def _how_to_go_on(console: Console) -> None:
    heading(console, "Next steps")
    _lines(
        console,
        (f"{_retrofit()} dev demo --keep", "the same, and the cluster stays"),
        (f'eval "$({_retrofit()} dev up)"', "an empty cluster to try your own policies in"),
        (f"ls {shlex.quote(str(OBJECTS))}", "the policies and objects of this demonstration"),
    )
    console.print("\nAll programs have stopped, and their files are removed.", highlight=False)


def _how_to_use(console: Console, folder: Path, cluster: Cluster, binaries: Binaries) -> None:
    heading(console, "Next steps: the cluster stays")
    if not shutil.which("kubectl"):
        command = shlex.join(binaries.command("kubectl"))
        _lines(console, (f"alias kubectl={shlex.quote(command)}", ""))
    _lines(
        console,
        (f"export KUBECONFIG={shlex.quote(str(cluster.kubeconfig))}", ""),
        (f"kubectl get ur -n {NAMESPACE} -o wide", "requests: messages, attempts"),
        ("kubectl get clusterpolicies -o wide", "policies, with their results"),
        ("kubectl get events -A", "failures, with the objects concerned"),
        (_dev("logs -f", folder), "the logs of the programs"),
        (f"ls {shlex.quote(str(OBJECTS))}", "the policies and objects to change and apply"),
        (_dev("down", folder), "stops and removes the cluster"),
    )


def _dev(command: str, folder: Path) -> str:
    return f"{_retrofit()} dev {command} --dir {shlex.quote(str(folder))}"


def _retrofit() -> str:
    # `make demo` runs the program of the checkout, which is not on the PATH of the user's shell.
    return "retrofit" if shutil.which("retrofit") else shlex.quote(sys.argv[0])


def _lines(console: Console, *lines: tuple[str, str]) -> None:
    short = (len(command) for command, _ in lines if len(command) < _WIDTH // 2)
    width = max(short, default=0)
    for command, meaning in lines:
        text = Text("  ").append(command.ljust(width), style="bold cyan")
        console.print(text.append(f"  {meaning}" if meaning else ""), soft_wrap=True)
