"""Helm, which renders and installs the chart: found on this machine, or built.

``python -m devcluster.helm`` obtains Helm and prints its path.
"""

import hashlib
import os
import platform
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from devcluster.binaries import cache_root
from devcluster.build import Module, build_module
from devcluster.lock import locked
from devcluster.progress import Progress
from reconciler.errors import InvalidSetting, RetrofitError, Unavailable

_SOURCES = Path(__file__).with_name("helmsource")
_PACKAGE = "helm.sh/helm/v4/cmd/helm"
_PACKAGES = 1200


@dataclass(frozen=True, slots=True, kw_only=True)
class HelmSource:
    """The version of Helm to build, and its cache key."""

    version: str
    go: tuple[int, int]
    key: str


def read_helm_source() -> HelmSource:
    """Read Helm's version from its Go module."""
    text = (_SOURCES / "go.mod").read_text()
    go = re.search(r"^go (\d+)\.(\d+)", text, re.MULTILINE)
    version = re.search(r"^\s*helm\.sh/helm/v4 (v\S+)", text, re.MULTILINE)
    if not go or not version:
        raise InvalidSetting(f"{_SOURCES}/go.mod names no version of Go or of Helm")
    digest = hashlib.sha256((_SOURCES / "go.sum").read_bytes()).hexdigest()[:12]
    machine = f"{platform.system()}-{platform.machine()}".lower()
    return HelmSource(
        version=version[1],
        go=(int(go[1]), int(go[2])),
        key=f"{version[1]}-{digest}-{machine}",
    )


def locate_helm(environ: Mapping[str, str]) -> Path | None:
    """Return the built Helm, else the one on PATH, or None if there is neither."""
    built = _folder(environ) / read_helm_source().key / "helm"
    if built.is_file():
        return built
    found = shutil.which("helm", path=environ.get("PATH"))
    return Path(found) if found else None


def obtain_helm(environ: Mapping[str, str]) -> Path:
    """Return Helm's path; the first use builds it, which takes some minutes.

    Raises:
        Unavailable: There is no Helm, and the build failed; the message states the reason.
    """
    found = locate_helm(environ)
    if found:
        return found
    root, source = _folder(environ), read_helm_source()
    with Progress() as progress, locked(root / "lock", wait=True):
        # Another process may have finished the build meanwhile.
        found = locate_helm(environ)
        return found or _build(root, source, environ, progress)


def _build(root: Path, source: HelmSource, environ: Mapping[str, str], progress: Progress) -> Path:
    part = root / f"{source.key}.part"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(mode=0o700)
    module = Module(
        sources=_SOURCES,
        package=_PACKAGE,
        go=source.go,
        ldflags=f"-X helm.sh/helm/v4/internal/version.version={source.version}",
        packages=_PACKAGES,
    )
    progress.say(f"Building Helm {source.version}: the first time takes about 2 minutes")
    try:
        built = build_module(module, part / "helm", environ, progress)
        target = root / source.key / "helm"
        target.parent.mkdir(mode=0o700, exist_ok=True)
        return built.replace(target)
    except OSError as error:
        raise Unavailable(f"Helm was not built: {error}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _folder(environ: Mapping[str, str]) -> Path:
    return cache_root(environ).with_name("helm")


@click.command()
def main() -> None:
    """Get Helm, and print where it is."""
    try:
        click.echo(obtain_helm(os.environ))
    except RetrofitError as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
