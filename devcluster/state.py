"""The state of `retrofit dev up` in its folder, by which later commands find the processes."""

import contextlib
import json
import os
import signal
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path

from devcluster.supervisor import signal_group
from devcluster.waiting import wait_until
from reconciler.errors import InvalidSetting, Unavailable

_FILE = "state.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process that outlives the command that started it.

    Attributes:
        mark: Start time in the system's format; detects a reused process id.
        health: URL that answers 200 when the process is ready; empty if there is none.
    """

    name: str
    pid: int
    mark: str
    health: str = ""

    @classmethod
    def of(cls, name: str, pid: int, health: str = "") -> "Process":
        """Return the description of a running process."""
        return cls(name=name, pid=pid, mark=process_mark(pid), health=health)

    def running(self) -> bool:
        """Return whether exactly this process is still running."""
        return bool(self.mark) and process_mark(self.pid) == self.mark


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A supervisor and its children."""

    supervisor: Process
    members: tuple[Process, ...]

    def complete(self) -> bool:
        """Return whether all processes of the group are running."""
        return all(process.running() for process in (self.supervisor, *self.members))

    def stop(self, within: float) -> None:
        """End all processes; those without a running supervisor are killed.

        Raises:
            Unavailable: A process is still running after the limit in seconds.
        """
        if self.supervisor.running():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.supervisor.pid, signal.SIGTERM)
            with contextlib.suppress(Unavailable):
                wait_until(
                    lambda: not self.supervisor.running(),
                    within=within,
                    what="the supervisor ends",
                )
        for process in (*self.members, self.supervisor):
            if process.running():
                signal_group(process.pid, signal.SIGKILL)
        wait_until(
            lambda: not any(process.running() for process in (*self.members, self.supervisor)),
            within=5.0,
            what="all processes are gone",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The state of one `retrofit dev up`.

    Attributes:
        cluster: The control plane; None for an existing cluster.
        programs: The admission server and the controller; None with --cluster-only.
        overlay: Overlay of the manifests that are installed; empty where none is.
    """

    kubeconfig: str
    server: str
    cluster: Group | None
    programs: Group | None
    overlay: str = ""
    audit_log: bool = False

    def groups(self) -> tuple[Group, ...]:
        """Return the groups in the order in which they must end."""
        return tuple(group for group in (self.programs, self.cluster) if group)

    def running(self) -> bool:
        """Return whether any group is running."""
        return any(group.supervisor.running() for group in self.groups())


def save(folder: Path, state: State) -> None:
    """Write the state atomically."""
    new = folder / f"{_FILE}.new"
    new.write_text(json.dumps(asdict(state), indent=2) + "\n")
    new.replace(folder / _FILE)


def load(folder: Path) -> State | None:
    """Return the state of a folder, or None if no cluster was started there.

    Raises:
        InvalidSetting: The file was not written by kube-retrofit.
    """
    try:
        raw = json.loads((folder / _FILE).read_text())
        return State(
            kubeconfig=raw["kubeconfig"],
            server=raw["server"],
            cluster=_group(raw["cluster"]),
            programs=_group(raw["programs"]),
            # Older versions did not store these.
            overlay=raw.get("overlay", ""),
            audit_log=raw.get("audit_log", False),
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidSetting(
            f"{folder / _FILE} is not a state of `retrofit dev`: remove it ({error!r})"
        ) from error


def forget(folder: Path) -> None:
    """Remove the state."""
    (folder / _FILE).unlink(missing_ok=True)


def process_mark(pid: int) -> str:
    """Return the start time of a process in the system's format, or "" if it has ended."""
    status = Path(f"/proc/{pid}/stat")
    if status.parent.parent.joinpath("self").exists():
        try:
            # The name, in parentheses, may contain any character.
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            return ""
        return "" if fields[0] == "Z" else fields[19]
    return mark_by_ps(pid)


def mark_by_ps(pid: int) -> str:
    """Return the same on systems without /proc, such as macOS."""
    # Two options, because macOS takes all that follows the first "=" for the title of one column.
    command = ["ps", "-o", "stat=", "-o", "lstart=", "-p", str(pid)]
    # Otherwise language and time zone of the shell decide how the time is written.
    env = {**os.environ, "LC_ALL": "C", "TZ": "UTC"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)  # noqa: S603
    state, _, started = done.stdout.strip().partition(" ")
    return "" if state.startswith("Z") else started.strip()


def _group(raw: dict[str, object] | None) -> Group | None:
    if raw is None:
        return None
    supervisor, members = raw["supervisor"], raw["members"]
    if not isinstance(supervisor, dict) or not isinstance(members, list):
        raise TypeError("a group is a supervisor and its members")
    return Group(
        supervisor=Process(**supervisor), members=tuple(Process(**member) for member in members)
    )
