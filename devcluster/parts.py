"""Command lines of the control plane's programs; everything listens on loopback only."""

import shutil
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from errno import EADDRINUSE
from pathlib import Path
from secrets import choice

import yaml

from devcluster.credentials import Credentials

ETCD = "etcd"
API_SERVER = "kube-apiserver"
CONTROLLER_MANAGER = "kube-controller-manager"
SCHEDULER = "kube-scheduler"
HOST = "127.0.0.1"
# Below the ports that Linux (from 32768) and macOS (from 49152) give to outgoing connections, so
# that none of these takes the port of a program that starts again.
_PORTS = range(12_000, 30_000)
# Controllers for clouds or nodes, which do not exist here.
_LEFT_OUT = (
    "nodeipam",
    "nodelifecycle",
    "cloud-node-lifecycle",
    "route",
    "service-lb-controller",
)
_AUDIT_POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: Metadata
"""


@dataclass(frozen=True, slots=True)
class Ports:
    """One loopback port for each listener."""

    etcd: int
    etcd_peer: int
    api_server: int
    controller_manager: int
    scheduler: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The paths of a control plane's files."""

    directory: Path

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.directory / "kubeconfig"

    @property
    def audit_log(self) -> Path:
        """The audit log, with one JSON event per line, if enabled."""
        return self.directory / "audit.log"

    @property
    def audit_policy(self) -> Path:
        """The audit policy of the API server."""
        return self.directory / "audit-policy.yaml"

    @property
    def admission_configuration(self) -> Path:
        """The admission configuration, with the client certificate for webhooks."""
        return self.directory / "admission-configuration.yaml"

    @property
    def webhook_kubeconfig(self) -> Path:
        """The kubeconfig in the admission configuration, with the client certificate."""
        return self.directory / "webhook.kubeconfig"

    @property
    def logs(self) -> Path:
        """The folder of the programs' output."""
        return self.directory / "logs"

    @property
    def bin(self) -> Path:
        """The folder of the programs for the user's shell."""
        return self.directory / "bin"

    def log(self, part: str) -> Path:
        """Return the path of a program's log."""
        return self.logs / f"{part}.log"

    def clear(self, *, logs: bool) -> None:
        """Remove data, credentials and optionally logs of a control plane that has ended."""
        for folder in ("etcd", "certs", "pki", "accounts", "kubectl-cache", "bin"):
            shutil.rmtree(self.directory / folder, ignore_errors=True)
        made = (self.audit_policy, self.admission_configuration)
        for file in (*self.directory.glob("*kubeconfig"), *made):
            file.unlink(missing_ok=True)
        if logs:
            for log in (*self.directory.glob("audit*.log"), *self.logs.glob("*.log")):
                log.unlink()


def free_ports(count: int) -> Iterator[int]:
    """Yield a number of ports that were free a moment ago, none of them twice."""
    with ExitStack() as stack:
        for _ in range(count):
            yield _bound(stack.enter_context(socket.socket()))


def _bound(listener: socket.socket) -> int:
    while True:
        port = choice(_PORTS)
        try:
            listener.bind((HOST, port))
        except OSError as error:
            if error.errno != EADDRINUSE:
                raise
        else:
            return port


def choose_ports() -> Ports:
    """Return ports that were free a moment ago; another process may take one meanwhile."""
    return Ports(*free_ports(5))


def etcd_data(layout: Layout) -> Path:
    """Return the folder of all that the cluster stores."""
    return layout.directory / "etcd"


def etcd(layout: Layout, ports: Ports) -> list[str]:
    """Return etcd's flags; without fsync, a power failure may lose the data."""
    client, peer = (f"http://{HOST}:{port}" for port in (ports.etcd, ports.etcd_peer))
    return [
        f"--data-dir={etcd_data(layout)}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
        "--log-level=error",
    ]


EVERY_API = ("--runtime-config=api/all=true", "--feature-gates=AllAlpha=true,AllBeta=true")
"""Further flags of the API server, with which it serves every API that it has."""


def api_server(
    layout: Layout, ports: Ports, credentials: Credentials, *, audit: bool
) -> list[str]:
    """Return the API server's flags."""
    flags = [
        f"--etcd-servers=http://{HOST}:{ports.etcd}",
        f"--secure-port={ports.api_server}",
        f"--bind-address={HOST}",
        # Without these two, it looks for an address that other machines reach, and may find none.
        f"--advertise-address={HOST}",
        "--endpoint-reconciler-type=none",
        f"--cert-dir={layout.directory / 'certs'}",
        f"--tls-cert-file={credentials.certificate}",
        f"--tls-private-key-file={credentials.key}",
        f"--service-account-key-file={credentials.account_public}",
        f"--service-account-signing-key-file={credentials.account_key}",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--api-audiences=https://kubernetes.default.svc,api",
        "--service-cluster-ip-range=10.0.0.0/24",
        f"--token-auth-file={credentials.tokens}",
        f"--client-ca-file={credentials.people}",
        "--authorization-mode=Node,RBAC",
        "--allow-privileged",
        _show_webhooks(layout, credentials),
    ]
    if audit:
        layout.audit_policy.write_text(_AUDIT_POLICY)
        flags += [
            f"--audit-policy-file={layout.audit_policy}",
            f"--audit-log-path={layout.audit_log}",
            "--audit-log-mode=batch",
            # With the default of 30 s, programs that read the log would have to wait.
            "--audit-log-batch-max-wait=200ms",
        ]
    return flags


def _show_webhooks(layout: Layout, credentials: Credentials) -> str:
    """Return the flag that makes the API server present a client certificate to webhooks."""
    file = str(credentials.webhook_client)
    # A webhook outside the cluster has an address of its own, so the entry covers all names.
    user = {"name": "*", "user": {"client-certificate": file, "client-key": file}}
    shown = {"apiVersion": "v1", "kind": "Config", "users": [user]}
    layout.webhook_kubeconfig.write_text(yaml.safe_dump(shown))
    group = "apiserver.config.k8s.io/v1"
    webhooks = {
        "apiVersion": group,
        "kind": "WebhookAdmissionConfiguration",
        "kubeConfigFile": str(layout.webhook_kubeconfig),
    }
    plugins = [
        {"name": f"{kind}AdmissionWebhook", "configuration": webhooks}
        for kind in ("Validating", "Mutating")
    ]
    document = {"apiVersion": group, "kind": "AdmissionConfiguration", "plugins": plugins}
    layout.admission_configuration.write_text(yaml.safe_dump(document))
    return f"--admission-control-config-file={layout.admission_configuration}"


def controller_manager(
    layout: Layout, ports: Ports, credentials: Credentials, kubeconfig: Path
) -> list[str]:
    """Return the controller manager's flags."""
    return [
        f"--kubeconfig={kubeconfig}",
        f"--service-account-private-key-file={credentials.account_key}",
        f"--root-ca-file={credentials.ca}",
        f"--cluster-signing-kube-apiserver-client-cert-file={credentials.people}",
        f"--cluster-signing-kube-apiserver-client-key-file={credentials.people_key}",
        "--leader-elect=false",
        f"--secure-port={ports.controller_manager}",
        f"--bind-address={HOST}",
        f"--cert-dir={layout.directory / 'certs'}",
        "--controllers=" + ",".join(["*", *(f"-{name}" for name in _LEFT_OUT)]),
        # Namespaces are often created and emptied; the defaults are 20 and 30.
        "--kube-api-qps=200",
        "--kube-api-burst=400",
    ]


def scheduler(layout: Layout, ports: Ports, kubeconfig: Path) -> list[str]:
    """Return the scheduler's flags."""
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--leader-elect=false",
        f"--secure-port={ports.scheduler}",
        f"--bind-address={HOST}",
        f"--cert-dir={layout.directory / 'certs'}",
    ]
