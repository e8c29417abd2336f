"""The start and the end of a cluster that outlives the command that started it."""

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from devcluster import parts, state
from devcluster.binaries import Binaries, read_source
from devcluster.cluster import Cluster, ControlPlane, Options
from devcluster.install import install
from devcluster.lock import locked
from devcluster.obtain import obtain
from devcluster.programs import start_programs
from devcluster.shell import link_programs
from devcluster.supervision import Supervision
from reconciler.errors import InvalidSetting

_STOP = 30.0
_OVERLAY = "demo"
Note = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Up:
    """The options of `up`.

    Attributes:
        cluster_only: Whether to install nothing and start no programs.
        overlay: Overlay of the manifests to install; empty for that of the last time, or ``demo``.
    """

    directory: Path
    audit_log: bool = False
    cluster_only: bool = False
    overlay: str = ""


def up(wanted: Up, environ: Mapping[str, str], note: Note) -> state.State:
    """Start the processes that do not run yet, detach them, and return the state.

    A cluster that has started is kept, even if the installation into it fails.

    Raises:
        RetrofitError: A process did not start, or the installation failed, or what runs has
            other options.
    """
    with locked(wanted.directory / "lock", wait=False):
        wanted = _settled(wanted, state.load(wanted.directory))
        there = _what_is_left(wanted.directory, note)
        programs = obtain(environ, read_source())
        if there:
            note(f"A cluster runs in {wanted.directory} already")
        else:
            there = _start_cluster(wanted, programs, note)
        link_programs(wanted.directory, programs)
        if not wanted.cluster_only and not there.programs:
            kubectl = programs.command("kubectl") if isinstance(programs, Binaries) else None
            cluster = Cluster.connect(Path(there.kubeconfig), wanted.directory, kubectl)
            started = _start_programs(cluster, wanted, note)
            there = replace(there, programs=started, overlay=wanted.overlay)
            state.save(wanted.directory, there)
        return there


def down(directory: Path) -> state.State | None:
    """End the processes of a folder and remove its data; return the state, or None.

    Raises:
        InvalidSetting: Another command holds the folder's lock.
        Unavailable: A process does not end.
    """
    if not directory.is_dir():
        return None
    with locked(directory / "lock", wait=False):
        there = state.load(directory)
        if there:
            _end(directory, there)
        return there


def _settled(wanted: Up, known: state.State | None) -> Up:
    """Return the options with those of the last time where none are given.

    Raises:
        InvalidSetting: What runs has other options.
    """
    if known is None:
        return replace(wanted, overlay=wanted.overlay or _OVERLAY)
    if known.cluster is None or known.cluster.complete():
        fault = ""
        if known.overlay and wanted.overlay not in ("", known.overlay):
            fault = f"with the overlay {known.overlay}, not {wanted.overlay}"
        elif wanted.audit_log and known.cluster and not known.audit_log:
            fault = "without an audit log"
        if fault:
            down = f"retrofit dev down --dir {shlex.quote(str(wanted.directory))}"
            msg = f"the cluster in {wanted.directory} runs {fault}: end it with `{down}` first"
            raise InvalidSetting(msg)
    return replace(
        wanted,
        overlay=wanted.overlay or known.overlay or _OVERLAY,
        audit_log=wanted.audit_log or known.audit_log,
    )


def _start_cluster(wanted: Up, programs: Binaries | Path, note: Note) -> state.State:
    if isinstance(programs, Path):
        there = state.State(
            kubeconfig=str(programs), server=f"as in {programs}", cluster=None, programs=None
        )
        state.save(wanted.directory, there)
        return there
    note(f"Starting a control plane in {wanted.directory} (programs: {programs.origin})")
    options = Options(directory=wanted.directory, audit_log=wanted.audit_log, binaries=programs)
    with ControlPlane.start(options) as plane:
        there = state.State(
            kubeconfig=str(plane.kubeconfig),
            server=plane.server,
            cluster=_group(plane.supervision, {}),
            programs=None,
            audit_log=wanted.audit_log,
        )
        state.save(wanted.directory, there)
        plane.detach()
    note(f"{plane.server} is ready after {plane.start_seconds:.1f} s")
    return there


def _start_programs(cluster: Cluster, wanted: Up, note: Note) -> state.Group:
    note(f"Installing CRDs and manifests (overlay {wanted.overlay})")
    settings = install(cluster, wanted.overlay)
    note("Starting the admission server and the controller")
    with start_programs(cluster, settings=settings, log_format="console") as running:
        health = {name: running.health(name) for name in running.supervision.pids}
        group = _group(running.supervision, health)
        running.detach()
    note(f"Both are ready; logs are in {running.logs}")
    return group


def _group(supervision: Supervision, health: Mapping[str, str]) -> state.Group:
    return state.Group(
        supervisor=state.Process.of("supervisor", supervision.pid),
        members=tuple(
            state.Process.of(name, pid, health.get(name, ""))
            for name, pid in supervision.pids.items()
        ),
    )


def _what_is_left(directory: Path, note: Note) -> state.State | None:
    """End the groups of a folder that are incomplete, and return the state without them."""
    there = state.load(directory)
    if not there:
        return None
    if there.cluster and not there.cluster.complete():
        note(f"The cluster in {directory} has ended, wholly or in part: a new one replaces it")
        _end(directory, there)
        return None
    if there.programs and not there.programs.complete():
        note(f"A program has ended: both are started again; logs are in {directory / 'logs'}")
        there.programs.stop(_STOP)
        there = replace(there, programs=None)
        state.save(directory, there)
    return there


def _end(directory: Path, there: state.State) -> None:
    for group in there.groups():
        group.stop(_STOP)
    if there.programs and not there.cluster:
        _unregister(directory, Path(there.kubeconfig))
    parts.Layout(directory=directory).clear(logs=False)
    state.forget(directory)


def _unregister(directory: Path, kubeconfig: Path) -> None:
    """Remove the webhook configurations: without their server, writes would be refused."""
    cluster = Cluster.connect(kubeconfig, directory)
    cluster.kubectl(
        "delete",
        "validatingwebhookconfigurations,mutatingwebhookconfigurations",
        "--selector=app.kubernetes.io/managed-by=kube-retrofit",
    )
