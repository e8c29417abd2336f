"""The admission server and the controller as local processes, for a cluster."""

import signal
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from devcluster.cluster import Cluster
from devcluster.install import ProgramSettings
from devcluster.parts import HOST, free_ports
from devcluster.supervision import Supervision, last_lines
from devcluster.waiting import wait_until
from reconciler.errors import Unavailable

ADMISSION = "retrofit-admission"
CONTROLLER = "retrofit-controller"
HOOKS = "retrofit-hooks"
_MODULES = {ADMISSION: "admission.main", CONTROLLER: "reconciler"}
_READY = 60.0
# Longer than the programs' own time to drain.
_GRACE = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Program:
    argv: tuple[str, ...]
    env: Mapping[str, str]
    log: Path
    metrics: int


class Programs:
    """Processes of the programs; they end with this process unless detached.

    Each uses a token of its ServiceAccount, so it has the rights that the manifests grant. Several
    of one kind may run as replicas under different names. Replicas of the admission server must
    take turns, because the API server has one address for them.

    Attributes:
        webhook_port: Port of the admission server.
        logs: Folder of the logs, ``NAME.log``.
    """

    def __init__(
        self, cluster: Cluster, *, log_format: str = "json", ask_callers: bool = True
    ) -> None:
        """Initialize without starting anything.

        Args:
            log_format: json or console.
            ask_callers: Whether callers of the webhooks have to present a client certificate, if
                the cluster's API server has one.
        """
        self.cluster = cluster
        self._callers = cluster.webhook_callers if ask_callers else None
        self._log_format = log_format
        self._programs: dict[str, _Program] = {}
        self.logs = cluster.directory / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)
        (self.webhook_port,) = free_ports(1)
        self.supervision = Supervision(self.logs / "programs-supervisor.log")

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End all programs."""
        self.stop()

    def start(
        self,
        program: str,
        settings: ProgramSettings | None = None,
        *,
        name: str | None = None,
        ready: bool = True,
    ) -> int:
        """Start a program and return its process id.

        Args:
            program: ADMISSION or CONTROLLER.
            settings: Further settings; those that this class sets take precedence.
            name: Name of this replica; by default the program's.
            ready: Whether to wait until it answers 200 on /readyz.

        Raises:
            Unavailable: It ended or is not ready in time; the message has the end of its log.
            ClusterError: Its ServiceAccount has no token; the manifests are not installed.
        """
        name = name or program
        settings = settings or ProgramSettings()
        (metrics,) = free_ports(1)
        installation = settings.installation
        account = installation.controller_account
        if program == ADMISSION:
            account = installation.admission_account
        kubeconfig = self.cluster.service_account_kubeconfig(installation.namespace, account)
        own = [
            f"--kubeconfig={kubeconfig}",
            f"--namespace={installation.namespace}",
            f"--bind-address={HOST}",
            f"--metrics-port={metrics}",
            f"--webhook-url=https://{HOST}:{self.webhook_port}",
            f"--log-format={self._log_format}",
        ]
        if program == ADMISSION:
            own.append(f"--port={self.webhook_port}")
            if self._callers is not None:
                own += [
                    f"--client-ca-file={self._callers[0]}",
                    f"--client-names={self._callers[1]}",
                ]
        self._programs[name] = _Program(
            argv=(sys.executable, "-m", _MODULES[program], *settings.flags, *own),
            env=settings.env,
            log=self.logs / f"{name}.log",
            metrics=metrics,
        )
        return self.restart(name, ready=ready)

    def start_hooks(
        self,
        namespace: str,
        folder: Path,
        *,
        flags: Sequence[str] = (),
        name: str = HOOKS,
        ready: bool = True,
    ) -> int:
        """Start a program that runs the executables of a folder, and return its process id.

        Args:
            namespace: Namespace with manifests/hooks.
            flags: Further flags; those that this class sets take precedence.
            ready: Whether to wait until it answers 200 on /readyz.

        Raises:
            Unavailable: It ended or is not ready in time; the message has the end of its log.
            ClusterError: Its ServiceAccount has no token; the manifests are not installed.
        """
        (metrics,) = free_ports(1)
        kubeconfig = self.cluster.service_account_kubeconfig(namespace, "retrofit-hooks")
        own = (
            f"--hooks-dir={folder}",
            f"--tmp-dir={self.cluster.directory / f'tmp-{name}'}",
            f"--kube-config={kubeconfig}",
            f"--namespace={namespace}",
            f"--listen-address={HOST}",
            f"--listen-port={metrics}",
            f"--log-type={'json' if self._log_format == 'json' else 'text'}",
        )
        self._programs[name] = _Program(
            argv=(sys.executable, "-m", "reconciler.runner.command", "start", *flags, *own),
            env={"KUBECONFIG": str(kubeconfig)},
            log=self.logs / f"{name}.log",
            metrics=metrics,
        )
        return self.restart(name, ready=ready)

    def restart(self, name: str, *, ready: bool = True) -> int:
        """Start a program that has ended again, with the same flags; return its process id.

        Raises:
            Unavailable: The program still runs, or one of the reasons of `start`.
        """
        if name in self.supervision.pids and self.supervision.exit_code(name) is None:
            raise Unavailable(f"{name} runs already")
        program = self._programs[name]
        pid = self.supervision.start(
            name, program.argv, log=program.log, env=program.env, grace=_GRACE
        )
        if ready:
            self.wait_ready(name)
        return pid

    def wait_ready(self, name: str, within: float = _READY) -> None:
        """Wait until a program answers 200 on /readyz.

        Raises:
            Unavailable: It ended or is not ready in time; the message has the end of its log.
        """
        log = self._programs[name].log

        def is_ready() -> bool:
            code = self.supervision.exit_code(name)
            if code is not None:
                raise Unavailable(f"{name} ended (code {code}); {log}:\n{last_lines(log, 10)}")
            return self.ready(name)

        try:
            wait_until(is_ready, within=within, every=0.1, what=f"{name} is ready")
        except Unavailable as error:
            if str(log) in str(error):
                raise
            raise Unavailable(f"{error}; {log}:\n{last_lines(log, 10)}") from error

    def ready(self, name: str) -> bool:
        """Return whether a program reports that it is ready."""
        return answers(self.health(name))

    def health(self, name: str) -> str:
        """Return the readiness URL of a program."""
        return f"{self.address(name)}/readyz"

    def address(self, name: str) -> str:
        """Return the base URL of a program's metrics and health endpoints."""
        return f"http://{HOST}:{self._programs[name].metrics}"

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to a program; after a terminating one, wait until it has exited.

        Raises:
            Unavailable: The program still runs.
        """
        self.supervision.kill(name, number)
        if number in {signal.SIGKILL, signal.SIGTERM, signal.SIGINT} and (
            self.supervision.wait_exit(name, _GRACE) is None
        ):
            raise Unavailable(f"{name} still runs {_GRACE:g} s after {number.name}")

    def detach(self) -> None:
        """Keep the programs running after this process ends."""
        self.supervision.detach()

    def stop(self) -> None:
        """End all programs; a second call does nothing."""
        self.supervision.close()


def start_programs(
    cluster: Cluster,
    *,
    settings: Mapping[str, ProgramSettings] | None = None,
    log_format: str = "json",
) -> Programs:
    """Start both programs for a cluster that has the manifests, and wait until they are ready.

    Args:
        settings: Settings of each program by name, as `install` returns them.
        log_format: json or console.

    Raises:
        Unavailable: A program did not become ready; both were ended.
    """
    settings = settings or {}
    programs = Programs(cluster, log_format=log_format)
    try:
        # The admission server becomes ready without the webhook configuration, into which the
        # controller writes the CA, so both can start at the same time.
        programs.start(ADMISSION, settings.get(ADMISSION), ready=False)
        programs.start(CONTROLLER, settings.get(CONTROLLER), ready=False)
        programs.wait_ready(ADMISSION)
        programs.wait_ready(CONTROLLER)
    except BaseException:
        programs.stop()
        raise
    return programs


def answers(address: str) -> bool:
    """Return whether a loopback URL answers 200."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(address, timeout=2.0) as response:
            return bool(response.status == 200)  # noqa: PLR2004
    except OSError:
        return False
