"""The requirements of a node: the checks of this machine, and the Debian packages."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from e2e.node.running import Running

PACKAGES = (
    *("containerd", "runc", "containernetworking-plugins", "nftables", "iptables", "conntrack"),
    *("debootstrap", "buildah"),
)
_NAMESPACES = ("--mount", "--net", "--pid", "--uts", "--fork")
# The cgroup controllers that a kubelet requires, each in a hierarchy of its own.
_CONTROLLERS = frozenset({"cpu", "cpuacct", "cpuset", "memory", "pids"})


def obstacle() -> str:
    """Return in one line why no node can run on this machine, or "" if one can."""
    if not sys.platform.startswith("linux"):
        return "a node needs Linux"
    if os.geteuid() != 0:
        return "a node needs root: namespaces, mounts and cgroups"
    if "ID=debian" not in Path("/etc/os-release").read_text().splitlines():
        return "the programs and the image's base are Debian packages, and this is no Debian"
    missing = _CONTROLLERS - set(hierarchies())
    if missing:
        return (
            f"it is tried with cgroups of version 1, and {', '.join(sorted(missing))} is not one"
        )
    tried = subprocess.run(
        ["unshare", *_NAMESPACES, "true"], capture_output=True, text=True, check=False
    )
    if tried.returncode:
        return f"no namespaces of its own: {tried.stderr.strip()}"
    return ""


def hierarchies() -> dict[str, Path]:
    """Return the mounted cgroup hierarchies of version 1 by the name of their folder."""
    return {place.name: place for place in mounted("cgroup")}


def mounted(*kinds: str) -> list[Path]:
    """Return the mount points of file systems of some types."""
    lines = (line.split() for line in Path("/proc/mounts").read_text().splitlines())
    return [Path(place) for _, place, kind, *_ in lines if kind in kinds]


def process_of(container: str) -> int:
    """Return the process id of a container's first process."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if container in (entry / "cgroup").read_text():
                found.append(int(entry.name))
        except OSError:
            continue
    assert found, f"container {container} has no process"
    return min(found)


def install_packages(running: Running) -> None:
    """Install the missing Debian packages with apt-get."""
    if not any(shutil.which("dpkg-query") and _absent(name) for name in PACKAGES):
        return
    with running.step("installing Debian packages"):
        running.run("apt-get", "update", "-qq")
        running.run(
            *("apt-get", "install", "-y", "-qq", "--no-install-recommends", *PACKAGES),
            env={"DEBIAN_FRONTEND": "noninteractive"},
        )


def _absent(package: str) -> bool:
    asked = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Status}", package],
        capture_output=True,
        text=True,
        check=False,
    )
    return not asked.stdout.endswith(" installed")
