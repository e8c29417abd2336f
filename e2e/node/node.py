"""A cluster with one real node, in its own Linux namespaces; it ends with its parent process."""

import contextlib
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from string import Template

from devcluster import parts
from devcluster.binaries import Binaries
from devcluster.cluster import Cluster
from devcluster.credentials import (
    ADMIN,
    CONTROLLER_MANAGER,
    LOOPBACK,
    SCHEDULER,
    create,
    write_kubeconfig,
)
from devcluster.supervision import Supervision, last_lines
from devcluster.waiting import wait_until
from e2e.node.images import PAUSE, Image
from e2e.node.machine import hierarchies, mounted
from e2e.node.running import RigError, Running
from reconciler.clock import SystemClock
from reconciler.errors import RetrofitError

NAME = "node-1"
CGROUP = "kube-retrofit-node"
_ADDRESS = "10.245.0.1"
_SERVICES = "10.96.0.0/16"
_FIRST_SERVICE = "10.96.0.1"
_PODS = "10.244.0.0/24"
_KUBELET = f"system:node:{NAME}"
_PROXY = "system:kube-proxy"
_CONFIG = Path(__file__).with_name("config")
_PORTS = parts.Ports(
    etcd=2379, etcd_peer=2380, api_server=6443, controller_manager=10257, scheduler=10259
)
_READY = 120.0
_HOLDER = "namespaces"
# Seconds to end everything; removing the files of the images takes most of them.
_REMOVAL = 60.0
# Machine-wide settings that a kubelet requires; files with these values are mounted over them.
_WANTED = {
    "vm/overcommit_memory": "1",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
# Runs as the first process of the namespaces. Its mounts stay there, as none was shared before.
_BEGIN = """
hostname $name
mount --make-rshared /
for place in /run /var/lib /var/log; do mount -t tmpfs node $$place; done
$binds
ip link set lo up
# Addresses of services are reached from here by the default route, which leads nowhere.
ip link add node0 type veth peer name node1
ip link set node0 up
ip link set node1 up
ip addr add $address/24 dev node0
ip route add default dev node0
echo 1 > /proc/sys/net/ipv4/ip_forward
touch $folder/begun
# The first process of a namespace inherits whose parents have ended, and has to bury them.
while :; do sleep 3600 & wait; done
"""


class Node:
    """The running cluster.

    Attributes:
        kubeconfig: The administrator's kubeconfig, which works inside the network namespace.
        socket: The socket of containerd.
        service_account_key: The key that signs ServiceAccount tokens.
    """

    def __init__(self, folder: Path, binaries: Binaries, running: Running) -> None:
        """Prepare the files and start everything; call `started` instead."""
        self.socket = folder / "containerd.sock"
        self.logs = folder / "logs"
        self._folder = folder
        self._binaries = binaries
        self._running = running
        self.logs.mkdir(parents=True)
        self._layout = parts.Layout(directory=folder / "control-plane")
        self._credentials = create(
            self._layout.directory / "pki",
            SystemClock(),
            addresses=(LOOPBACK, _ADDRESS, _FIRST_SERVICE),
            more={_KUBELET: "system:nodes", _PROXY: ""},
        )
        self.service_account_key = self._credentials.account_key
        self.kubeconfig = self._kubeconfig(ADMIN)
        self._supervision = Supervision(self.logs / "supervisor.log")
        self._supervision.own(folder)
        try:
            self.holder = self._begin()
            self.cluster = Cluster.connect(
                self.kubeconfig, folder, (*self.inside("--net"), *binaries.command("kubectl"))
            )
            self._control_plane()
            self._machine()
        except BaseException:
            self.close()
            raise

    def inside(self, *namespaces: str) -> tuple[str, ...]:
        """Return the prefix of a command line that runs a command in namespaces of the node."""
        return ("nsenter", f"--target={self.holder}", *namespaces, "--")

    def load(self, images: Iterable[Image]) -> None:
        """Import images into containerd under all of their names."""
        for image in images:
            self._ctr("images", "import", "--no-unpack", str(image.file))
            for name in image.names[1:]:
                self._ctr("images", "tag", image.names[0], name)

    def wait_ready(self) -> None:
        """Wait until the node is Ready."""
        self._wait(
            lambda: "True" in self._asked("get", "node", NAME, "-o", _IS_READY),
            "the node is Ready",
        )

    def close(self) -> None:
        """End all processes, and remove the folder and the cgroups."""
        self._supervision.close()
        remove_cgroups()

    def _asked(self, *args: str) -> str:
        try:
            return self.cluster.kubectl(*args)
        except RetrofitError:
            return ""

    def _ctr(self, *args: str) -> None:
        self._running.run("ctr", "--address", self.socket, "--namespace", "k8s.io", *args)

    def _begin(self) -> int:
        """Create the namespaces and cgroups, and return the process that holds the namespaces."""
        make_cgroups()
        binds = []
        for number, (setting, value) in enumerate(_WANTED.items()):
            file = self._folder / f"setting-{number}"
            file.write_text(f"{value}\n")
            binds.append(f"mount --bind {file} /proc/sys/{setting}")
        script = Template(_BEGIN).substitute(
            name=NAME, binds="\n".join(binds), address=_ADDRESS, folder=self._folder
        )
        parent = self._start(
            _HOLDER,
            *("unshare", "--mount", "--net", "--pid", "--uts", "--fork", "--kill-child"),
            *("--mount-proc", "sh", "-ec", script),
        )
        self._wait((self._folder / "begun").exists, "the namespaces are made")
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        return int(children[0])

    def _control_plane(self) -> None:
        command = self._binaries.command
        layout, credentials = self._layout, self._credentials
        self._join(parts.ETCD, *command(parts.ETCD), *parts.etcd(layout, _PORTS))
        self._join(
            parts.API_SERVER,
            *command(parts.API_SERVER),
            *parts.api_server(layout, _PORTS, credentials, audit=False),
            # If a flag occurs twice, the last one counts.
            f"--advertise-address={_ADDRESS}",
            "--bind-address=0.0.0.0",
            "--endpoint-reconciler-type=lease",
            f"--service-cluster-ip-range={_SERVICES}",
            "--enable-admission-plugins=NodeRestriction",
            "--kubelet-preferred-address-types=InternalIP",
        )
        self._wait(
            lambda: self._asked("get", "--raw", "/readyz") == "ok", "the API server is ready"
        )
        manager = parts.controller_manager(
            layout, _PORTS, credentials, self._kubeconfig(CONTROLLER_MANAGER)
        )
        # `parts` leaves out the node controllers, as it has no nodes; here they are needed.
        flags = [flag for flag in manager if not flag.startswith("--controllers=")]
        self._join(parts.CONTROLLER_MANAGER, *command(parts.CONTROLLER_MANAGER), *flags)
        self._join(
            parts.SCHEDULER,
            *command(parts.SCHEDULER),
            *parts.scheduler(layout, _PORTS, self._kubeconfig(SCHEDULER)),
        )

    def _machine(self) -> None:
        values = {
            "folder": str(self._folder),
            "socket": str(self.socket),
            "pause": PAUSE,
            "pods": _PODS,
            "cgroup": CGROUP,
            "proxy_kubeconfig": str(self._kubeconfig(_PROXY)),
        }
        config = self._folder / "config"
        (config / "cni").mkdir(parents=True)
        for file in _CONFIG.iterdir():
            text = Template(file.read_text()).substitute(values)
            place = config / "cni" if file.suffix == ".conflist" else config
            (place / file.name).write_text(text)
        self._join("containerd", "containerd", "--config", str(config / "containerd.toml"))
        self._wait(self.socket.exists, "containerd listens")
        self._join(
            "kube-proxy",
            *self._binaries.command("kube-proxy"),
            *(f"--config={config / 'kube-proxy.yaml'}", f"--hostname-override={NAME}"),
        )
        self._join(
            "kubelet",
            *self._binaries.command("kubelet"),
            f"--config={config / 'kubelet.yaml'}",
            f"--kubeconfig={self._kubeconfig(_KUBELET)}",
            f"--root-dir={self._folder / 'kubelet'}",
            f"--cert-dir={self._folder / 'kubelet-pki'}",
            *(f"--hostname-override={NAME}", f"--node-ip={_ADDRESS}"),
        )

    def _join(self, name: str, *argv: str) -> None:
        self._start(name, *self.inside("--mount", "--net", "--pid", "--uts"), *argv)

    def _start(self, name: str, *argv: str) -> int:
        # SIGKILL, because nothing of the node is used after its end.
        return self._supervision.start(
            name,
            argv,
            log=self.logs / f"{name}.log",
            stop_signal=signal.SIGKILL,
            grace=_REMOVAL,
        )

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        def met() -> bool:
            for name in (*self._supervision.pids,):
                code = self._supervision.exit_code(name)
                if code is not None:
                    log = self.logs / f"{name}.log"
                    raise RigError(f"{name} ended (code {code}):\n{last_lines(log, 15)}")
            return condition()

        wait_until(met, within=_READY, what=what)

    def _kubeconfig(self, user: str) -> Path:
        address = {
            "server": f"https://{LOOPBACK}:{_PORTS.api_server}",
            "certificate-authority": str(self._credentials.ca),
        }
        name = user.replace(":", "-")
        return write_kubeconfig(
            self._layout.directory / f"{name}.kubeconfig",
            address=address,
            user=user,
            token=self._credentials.token_of[user],
        )


_IS_READY = 'jsonpath={.status.conditions[?(@.type=="Ready")].status}'


@contextlib.contextmanager
def started(
    folder: Path, binaries: Binaries, images: Iterable[Image], running: Running
) -> Iterator[Node]:
    """Run a node with images, and remove all that belongs to it at the end."""
    remove_cgroups()
    with running.step("starting the cluster"):
        node = Node(folder, binaries, running)
    try:
        with running.step("giving it the images"):
            node.load(images)
        with running.step("waiting for the node"):
            node.wait_ready()
        yield node
    finally:
        with running.step("ending the cluster"):
            node.close()


def make_cgroups() -> None:
    """Create the node's cgroup in every hierarchy, without any change to its parents."""
    for name, place in hierarchies().items():
        own = place / CGROUP
        own.mkdir(exist_ok=True)
        if name == "cpuset":
            # These are empty in a new cgroup, in which no process may run until they are set.
            for setting in ("cpuset.cpus", "cpuset.mems"):
                (own / setting).write_text((place / setting).read_text())


def remove_cgroups() -> None:
    """Remove the node's cgroups, which are empty a moment after the last process has ended."""

    def gone() -> bool:
        for place in cgroups():
            for folder in sorted(place.rglob("*/"), reverse=True):
                with contextlib.suppress(OSError):
                    folder.rmdir()
            with contextlib.suppress(OSError):
                place.rmdir()
        return not cgroups()

    wait_until(gone, within=15.0, what="the node's cgroups are empty")


def cgroups() -> list[Path]:
    """Return the node's cgroups that exist.

    runc also creates its containers' cgroups in a hierarchy of version 2, if there is one.
    """
    places = mounted("cgroup", "cgroup2")
    return [place / CGROUP for place in places if (place / CGROUP).is_dir()]


def left_behind(folder: Path, store: Path) -> Mapping[str, object]:
    """Return the processes, mounts, cgroups and folder that a node left behind; empty if none.

    Args:
        folder: The folder of the node.
        store: The store of its images, which stays, but without mounts.
    """
    processes = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if any(str(folder) in word for word in words):
                processes.append(" ".join(words)[:120])
    mounts = [
        line
        for line in Path("/proc/mounts").read_text().splitlines()
        if str(folder) in line or str(store) in line
    ]
    found = {
        "processes": processes,
        "mounts": mounts,
        "cgroups": cgroups(),
        "folder": [folder] if folder.exists() else [],
    }
    return {name: value for name, value in found.items() if value}
