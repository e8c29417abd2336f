"""A cluster for tests and demonstrations: an existing one, or a local control plane."""

import base64
import contextlib
import json
import os
import shutil
import signal
import ssl
import subprocess
import tempfile
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from typing_extensions import override

from devcluster import parts
from devcluster.binaries import VARIABLE, Binaries, locate, read_source
from devcluster.credentials import (
    ADMIN,
    CONTROLLER_MANAGER,
    SCHEDULER,
    WEBHOOK_CLIENT,
    create,
    write_kubeconfig,
)
from devcluster.supervision import Supervision, last_lines
from devcluster.waiting import wait_until
from reconciler.clock import SystemClock
from reconciler.errors import ClusterError, InvalidSetting, Unavailable

_ATTEMPTS = 5
_READY = 90.0
_PORT_TAKEN = "address already in use"


class Cluster:
    """A cluster accessed with its administrator's kubeconfig.

    Attributes:
        webhook_callers: CA and common name of the client certificate that the API server
            presents to webhooks; None if it may present none.
    """

    webhook_callers: tuple[Path, str] | None = None

    def __init__(
        self,
        *,
        kubeconfig: Path,
        directory: Path,
        kubectl: tuple[str, ...],
        address: Mapping[str, Any],
    ) -> None:
        self.kubeconfig = kubeconfig
        self.directory = directory
        self._kubectl = kubectl
        self._address = address
        self.server: str = address["server"]

    @classmethod
    def connect(
        cls, kubeconfig: Path, directory: Path, kubectl: tuple[str, ...] | None = None
    ) -> "Cluster":
        """Return the cluster that a kubeconfig names; kubectl is by default that on PATH.

        Raises:
            InvalidSetting: There is no kubectl, or it cannot read the kubeconfig.
        """
        kubectl = kubectl or (shutil.which("kubectl") or "",)
        if not all(kubectl):
            raise InvalidSetting("kubectl is not on PATH; an existing cluster needs it")
        view = ("config", "view", "--raw", "--flatten", "--minify", "--output=json")
        done = subprocess.run(  # noqa: S603 - the user's own kubectl
            [*kubectl, f"--kubeconfig={kubeconfig}", *view],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise InvalidSetting(f"kubeconfig {kubeconfig}: {done.stderr.strip()}")
        address = json.loads(done.stdout)["clusters"][0]["cluster"]
        return Cluster(
            kubeconfig=kubeconfig, directory=directory, kubectl=kubectl, address=address
        )

    def kubectl(
        self,
        *args: str,
        stdin: str | None = None,
        kubeconfig: Path | None = None,
        within: float = 60.0,
    ) -> str:
        """Run kubectl and return its output.

        Args:
            stdin: Standard input, as for ``-f -``.
            kubeconfig: Kubeconfig to use instead of the administrator's.
            within: Time limit in seconds.

        Raises:
            ClusterError: kubectl failed; the message contains its output.
        """
        command = [
            *self._kubectl,
            f"--kubeconfig={kubeconfig or self.kubeconfig}",
            # Discovery must not be cached for the next cluster on the same port.
            f"--cache-dir={self.directory / 'kubectl-cache'}",
            *args,
        ]
        try:
            done = subprocess.run(  # noqa: S603 - the caller's own kubectl
                command,
                input=stdin,
                stdin=subprocess.DEVNULL if stdin is None else None,
                capture_output=True,
                text=True,
                timeout=within,
                check=False,
                env={**os.environ, "KUBERC": "off"},
            )
        except subprocess.TimeoutExpired as error:
            raise ClusterError(f"kubectl {args[0]}: no end after {within:g} s") from error
        if done.returncode:
            said = done.stderr.strip() or done.stdout.strip()
            raise ClusterError(f"kubectl {' '.join(args[:3])}: {said}")
        return done.stdout

    def service_account_kubeconfig(
        self, namespace: str, name: str, *, duration: str = "24h"
    ) -> Path:
        """Write a kubeconfig with a fresh token of a ServiceAccount, which must exist.

        Raises:
            ClusterError: The token was refused.
        """
        token = self.kubectl("create", "token", name, "-n", namespace, f"--duration={duration}")
        user = f"system:serviceaccount:{namespace}:{name}"
        return write_kubeconfig(
            self.directory / "accounts" / f"{namespace}-{name}.kubeconfig",
            address=self._address,
            user=user,
            token=token.strip(),
        )

    def stop(self) -> None:
        """End the processes that were started for this cluster; an existing cluster has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a control plane.

    Attributes:
        directory: Folder of its files; by default a temporary one, removed at the end.
        audit_log: Write one audit event (level Metadata) per request.
        every_api: Serve alpha and beta APIs too, with all features.
        binaries: The programs; by default those found on this machine.
    """

    directory: Path | None = None
    audit_log: bool = False
    every_api: bool = False
    binaries: Binaries | None = None


class ControlPlane(Cluster):
    """etcd, kube-apiserver and kube-controller-manager on free loopback ports.

    Several control planes can run side by side. All processes end with the process that started
    them, unless `detach` was called.

    Attributes:
        audit_log: Path of the audit log, or None without one.
        start_seconds: Seconds until the API was usable.
    """

    def __init__(self, options: Options, binaries: Binaries) -> None:
        """Prepare the files and start the processes; call `start` instead."""
        clock = SystemClock()
        began = clock.monotonic()
        folder = options.directory or Path(tempfile.mkdtemp(prefix="retrofit-dev-"))
        self.layout = parts.Layout(directory=folder.absolute())
        self.layout.clear(logs=True)
        self.layout.logs.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.ports = parts.choose_ports()
        self.audit_log = self.layout.audit_log if options.audit_log else None
        self._every_api = options.every_api
        self._binaries = binaries
        self.credentials = create(self.layout.directory / "pki", clock)
        self.webhook_callers = self.credentials.ca, WEBHOOK_CLIENT
        self._trust = ssl.create_default_context(cafile=str(self.credentials.ca))
        ca = base64.b64encode(self.credentials.ca.read_bytes()).decode()
        server = f"https://{parts.HOST}:{self.ports.api_server}"
        super().__init__(
            kubeconfig=self.layout.kubeconfig,
            directory=self.layout.directory,
            kubectl=binaries.command("kubectl"),
            address={"server": server, "certificate-authority-data": ca},
        )
        self._write_kubeconfig(ADMIN, self.kubeconfig)
        self.supervision = Supervision(self.layout.log("supervisor"))
        if options.directory is None:
            self.supervision.own(self.directory)
        try:
            self._start_serving()
            self._start_controller_manager()
        except BaseException:
            self.stop()
            raise
        self.start_seconds = clock.monotonic() - began

    @classmethod
    def start(cls, options: Options | None = None) -> Self:
        """Start a control plane and return when its API is usable.

        Raises:
            InvalidSetting: There are no programs on this machine; the message names the remedy.
            Unavailable: A program ended or did not become ready.
        """
        options = options or Options()
        binaries = options.binaries or _binaries_here()
        for _ in range(_ATTEMPTS - 1):
            # A port may have been taken since it was chosen: retry with other ports.
            with contextlib.suppress(_PortTaken):
                return cls(options, binaries)
        return cls(options, binaries)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop all processes."""
        self.stop()

    def ready(self) -> bool:
        """Return whether the API server reports that it is ready."""
        return self._get("/readyz") is not None

    def kill_apiserver(self) -> None:
        """Kill the API server with SIGKILL, and return when it has exited."""
        self._end(parts.API_SERVER)

    def start_apiserver(self) -> None:
        """Start the API server again, on the same port and data, and wait until it is ready.

        Raises:
            Unavailable: The API server did not become ready.
        """
        self._run_api_server()
        self._wait_ready()

    @contextlib.contextmanager
    def offline(self) -> Iterator[Path]:
        """Yield the folder of etcd's data while neither etcd nor the API server runs.

        Raises:
            Unavailable: The control plane did not start again.
        """
        self.kill_apiserver()
        self._end(parts.ETCD, signal.SIGTERM)
        yield parts.etcd_data(self.layout)
        self._start_serving()
        # It would miss what changes, if the data is older now.
        self._end(parts.CONTROLLER_MANAGER)
        self._start_controller_manager()

    @contextlib.contextmanager
    def scheduler(self) -> Iterator[None]:
        """Run kube-scheduler temporarily; it binds pods to Ready nodes without taints.

        Raises:
            InvalidSetting: This control plane does not include a scheduler.
        """
        kubeconfig = self._write_kubeconfig(SCHEDULER, self.directory / "scheduler.kubeconfig")
        flags = parts.scheduler(self.layout, self.ports, kubeconfig)
        self._run(parts.SCHEDULER, flags)
        try:
            yield
        finally:
            self._end(parts.SCHEDULER)

    def detach(self) -> None:
        """Keep everything running when this process ends; SIGTERM to `supervision.pid` ends it."""
        self.supervision.detach()

    @override
    def stop(self) -> None:
        """End all processes and remove a temporary folder; a second call does nothing."""
        self.supervision.close()

    def _start_serving(self) -> None:
        self._run(parts.ETCD, parts.etcd(self.layout, self.ports))
        self._run_api_server()
        self._wait_ready()

    def _start_controller_manager(self) -> None:
        kubeconfig = self._write_kubeconfig(
            CONTROLLER_MANAGER, self.directory / "controller-manager.kubeconfig"
        )
        flags = parts.controller_manager(self.layout, self.ports, self.credentials, kubeconfig)
        self._run(parts.CONTROLLER_MANAGER, flags)
        # Its first visible result: from then on, pods and tokens can be created in namespaces.
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        self._wait(lambda: self._get(account) is not None, "the controller manager works")

    def _run_api_server(self) -> None:
        flags = parts.api_server(
            self.layout, self.ports, self.credentials, audit=self.audit_log is not None
        )
        if self._every_api:
            flags += parts.EVERY_API
        self._run(parts.API_SERVER, flags)

    def _run(self, part: str, flags: list[str]) -> None:
        self.supervision.start(
            part,
            [*self._binaries.command(part), *flags],
            log=self.layout.log(part),
            # Only etcd needs a graceful shutdown; the others would drain for seconds.
            stop_signal=signal.SIGTERM if part == parts.ETCD else signal.SIGKILL,
        )

    def _end(self, part: str, number: signal.Signals = signal.SIGKILL) -> None:
        self.supervision.kill(part, number)
        self.supervision.wait_exit(part, 10.0)

    def _wait_ready(self) -> None:
        self._wait(self.ready, "the API server is ready")

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        def met() -> bool:
            self._check_running()
            return condition()

        try:
            wait_until(met, within=_READY, what=what)
        except Unavailable as error:
            if isinstance(error, _PortTaken | _PartEnded):
                raise
            log = self.layout.log(parts.API_SERVER)
            raise Unavailable(f"{error}; last lines of {log}:\n{last_lines(log)}") from error

    def _check_running(self) -> None:
        for part in (parts.ETCD, parts.API_SERVER, parts.CONTROLLER_MANAGER):
            code = self.supervision.exit_code(part)
            if code is not None:
                log = self.layout.log(part)
                message = f"{part} ended (code {code}); last lines of {log}:\n{last_lines(log)}"
                taken = _PORT_TAKEN in last_lines(log, 40)
                raise _PortTaken(message) if taken else _PartEnded(message)

    def _get(self, path: str) -> bytes | None:
        request = urllib.request.Request(  # noqa: S310 - always https to loopback
            f"{self.server}{path}",
            headers={"Authorization": f"Bearer {self.credentials.token_of[ADMIN]}"},
        )
        # Proxies from the environment are not used.
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=self._trust)
        )
        try:
            with opener.open(request, timeout=2.0) as response:
                return bytes(response.read())
        except OSError:  # refused, timed out, or an HTTP status that is an error
            return None

    def _write_kubeconfig(self, user: str, path: Path) -> Path:
        token = self.credentials.token_of[user]
        return write_kubeconfig(path, address=self._address, user=user, token=token)


def _binaries_here() -> Binaries:
    found = locate(os.environ, read_source())
    if isinstance(found, Binaries):
        return found
    if found is None:
        raise InvalidSetting(
            "no control plane on this machine yet: run `retrofit dev control-plane` once"
        )
    raise InvalidSetting(f"{VARIABLE} names a cluster; here it must name programs")


class _PartEnded(Unavailable):
    pass


class _PortTaken(Unavailable):
    pass
