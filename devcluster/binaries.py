"""The programs of a control plane as files on this machine, and where they are found."""

import hashlib
import os
import platform
import pwd
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from reconciler.errors import InvalidSetting

VARIABLE = "RETROFIT_CONTROL_PLANE"
BUNDLE = "controlplane"
NEEDED = ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl")
OPTIONAL = ("kube-scheduler", "kubelet", "kube-proxy")
GO_SOURCES = Path(__file__).with_name("controlplane")
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Binaries:
    """The commands of the control plane's programs.

    Attributes:
        origin: Where the programs come from, for messages.
        commands: First words of the command line by program name.
    """

    origin: str
    commands: Mapping[str, tuple[str, ...]]

    def command(self, program: str) -> tuple[str, ...]:
        """Return the first words of a program's command line.

        Raises:
            InvalidSetting: This control plane does not include the program.
        """
        if program not in self.commands:
            raise InvalidSetting(f"{program} is not part of the control plane from {self.origin}")
        return self.commands[program]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Versions in the Go sources, and the cache key of everything built from them."""

    kubernetes: str
    etcd: str
    go: tuple[int, int]
    digest: str
    system: str
    machine: str

    @property
    def key(self) -> str:
        """Return the name in the cache, which depends on version, source and platform."""
        return f"{self.kubernetes}-{self.digest[:12]}-{self.system}-{self.machine}"


def read_source(folder: Path = GO_SOURCES) -> Source:
    """Read the Go sources of the control plane."""
    module = (folder / "go.mod").read_text()
    digest = hashlib.sha256()
    for file in (folder / "go.mod", folder / "go.sum", *sorted(folder.glob("*.go"))):
        digest.update(file.read_bytes())
    major, minor = _found(r"^go (\d+\.\d+)", module).split(".")
    return Source(
        kubernetes=_found(r"^\s*k8s\.io/kubernetes (v\S+)", module),
        etcd=_found(r"^\s*go\.etcd\.io/etcd/server/v3 (v\S+)", module),
        go=(int(major), int(minor)),
        digest=digest.hexdigest(),
        system=platform.system().lower(),
        machine=_ARCHITECTURES.get(platform.machine(), platform.machine()),
    )


def _found(pattern: str, text: str) -> str:
    match = re.search(pattern, text, re.MULTILINE)
    if not match:
        raise InvalidSetting(f"go.mod of the control plane has no line like {pattern}")
    return match[1]


def cache_root(environ: Mapping[str, str]) -> Path:
    """Return the folder for built and downloaded programs, the same on every system.

    Raises:
        InvalidSetting: Neither a variable nor an account says where it is.
    """
    base = environ.get("XDG_CACHE_HOME")
    if not base:
        try:
            home = environ.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir
        except KeyError:
            raise InvalidSetting("this user has no home: set HOME, or XDG_CACHE_HOME") from None
        base = f"{home}/.cache"
    # Programs that are built there run in other folders.
    return Path(base).absolute() / "kube-retrofit" / "control-plane"


def in_folder(folder: Path, origin: str) -> Binaries | None:
    """Return the programs of a folder, as a bundle or one file each, or None if one is missing."""
    bundle = folder / BUNDLE
    if _runs(bundle):
        return in_bundle(bundle, origin)
    files = {name: folder / name for name in (*NEEDED, *OPTIONAL) if _runs(folder / name)}
    if not set(NEEDED) <= set(files):
        return None
    return Binaries(origin=origin, commands={name: (str(file),) for name, file in files.items()})


def in_bundle(bundle: Path, origin: str) -> Binaries:
    """Return the programs that are linked into one file."""
    commands = {name: (str(bundle), name) for name in (*NEEDED, *OPTIONAL)}
    return Binaries(origin=origin, commands=commands)


def named(environ: Mapping[str, str]) -> Binaries | Path | None:
    """Return the target of RETROFIT_CONTROL_PLANE: programs, or the kubeconfig of a cluster.

    Raises:
        InvalidSetting: The path is neither of the two.
    """
    value = environ.get(VARIABLE)
    if not value:
        return None
    # Programs are started from other folders too, and linked there.
    path = Path(value).expanduser().absolute()
    if path.is_dir():
        found = in_folder(path, f"{VARIABLE}={value}")
        if found:
            return found
        needed = ", ".join(NEEDED)
        raise InvalidSetting(f"{VARIABLE}: {value} holds neither {BUNDLE} nor all of {needed}")
    if not path.is_file():
        raise InvalidSetting(f"{VARIABLE}: {value} does not exist")
    if os.access(path, os.X_OK):
        return in_bundle(path, f"{VARIABLE}={value}")
    return path


def installed(environ: Mapping[str, str]) -> Binaries | None:
    """Return the programs of KUBEBUILDER_ASSETS and PATH, or None if one is missing."""
    folders = [environ.get("KUBEBUILDER_ASSETS", ""), *environ.get("PATH", "").split(os.pathsep)]
    path = os.pathsep.join(filter(None, folders))
    files = {name: shutil.which(name, path=path) for name in (*NEEDED, *OPTIONAL)}
    commands = {name: (str(Path(file).absolute()),) for name, file in files.items() if file}
    if not set(NEEDED) <= set(commands):
        return None
    return Binaries(origin="KUBEBUILDER_ASSETS and PATH", commands=commands)


def locate(environ: Mapping[str, str], source: Source) -> Binaries | Path | None:
    """Return a control plane that is on this machine already, or None.

    If the result is a path, it is the kubeconfig of a cluster that runs elsewhere.

    Raises:
        InvalidSetting: RETROFIT_CONTROL_PLANE names something unusable, or there is no home.
    """
    there = named(environ)
    if there:
        return there
    cached = cache_root(environ) / source.key
    return in_folder(cached, str(cached)) or installed(environ)


def _runs(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
