"""Official release binaries, each verified against the checksum of its release."""

import hashlib
import tarfile
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path

from devcluster.binaries import NEEDED, Source
from devcluster.progress import Progress
from reconciler.errors import Unavailable

VARIABLE = "RETROFIT_RELEASES"
_OFF = "off"
_RELEASES = {
    "kubernetes": "https://dl.k8s.io/release",
    "etcd": "https://github.com/etcd-io/etcd/releases/download",
}
# Seconds until the first answer; a host without internet access must fail fast.
_CONNECT = 2.0
_STALL = 30.0
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class _Item:
    name: str
    address: str
    checksums: str
    file: str


def fetch_releases(
    source: Source, folder: Path, environ: Mapping[str, str], progress: Progress
) -> list[Path]:
    """Download the programs into a folder and return their paths.

    RETROFIT_RELEASES names another server with the same paths, or is ``off``.

    Raises:
        Unavailable: There are no releases, the server is not reachable, or a checksum differs.
    """
    base = environ.get(VARIABLE, "")
    if base == _OFF:
        raise Unavailable(f"releases are not loaded ({VARIABLE}={_OFF})")
    if source.system != "linux":
        raise Unavailable("there are no releases of the API server for this system")
    items = _items(source, base.rstrip("/"))
    try:
        # Checksums first: they are small, and show early whether the server is reachable.
        sums = {item.name: _checksum(item) for item in items}
        for item in items:
            _load(item, folder / item.file, sums[item.name], progress)
    except (OSError, HTTPException) as error:
        raise Unavailable(f"releases are not reachable ({error})") from error
    archive = folder / items[-1].file
    _extract(archive, folder / "etcd")
    archive.unlink()
    return [folder / name for name in NEEDED]


def _items(source: Source, base: str) -> list[_Item]:
    """Return the files to download; the last one is etcd's archive."""
    programs = f"{base or _RELEASES['kubernetes']}/{source.kubernetes}/bin/linux/{source.machine}"
    items = [
        _Item(
            name=name,
            address=f"{programs}/{name}",
            checksums=f"{programs}/{name}.sha256",
            file=name,
        )
        for name in NEEDED
        if name != "etcd"
    ]
    etcd = f"{base or _RELEASES['etcd']}/{source.etcd}"
    archive = f"etcd-{source.etcd}-linux-{source.machine}.tar.gz"
    items.append(
        _Item(
            name="etcd", address=f"{etcd}/{archive}", checksums=f"{etcd}/SHA256SUMS", file=archive
        )
    )
    return items


def _checksum(item: _Item) -> str:
    """Return the published SHA-256: alone in its file, or in the line of the file's name."""
    with _open(item.checksums, _CONNECT) as answer:
        lines = [
            line.split() for line in answer.read(_BLOCK).decode(errors="replace").splitlines()
        ]
    for words in lines:
        if len(words) == 1 or (words[1:] and words[1].lstrip("*") == item.file):
            return words[0].lower()
    raise Unavailable(f"{item.checksums} states no checksum of {item.file}")


def _load(item: _Item, target: Path, expected: str, progress: Progress) -> None:
    digest = hashlib.sha256()
    done = 0
    with _open(item.address, _STALL) as answer, target.open("wb") as file:
        total = int(answer.headers.get("Content-Length") or 0)
        while block := answer.read(_BLOCK):
            file.write(block)
            digest.update(block)
            done += len(block)
            share = f" of {total >> 20}" if total else ""
            progress.update(f"loading {item.name}, {done >> 20}{share} MiB")
    if digest.hexdigest() != expected:
        raise Unavailable(
            f"{item.address} has not the checksum that its release states; it was not used"
        )


def _open(address: str, timeout: float) -> HTTPResponse:
    local = address.startswith("http://127.0.0.1:")
    if not local and not address.startswith("https://"):
        raise Unavailable(f"{VARIABLE}: {address} is neither https nor on 127.0.0.1")
    # Proxies from the environment are for remote hosts, not for this machine.
    proxies = urllib.request.ProxyHandler({} if local else None)
    answer = urllib.request.build_opener(proxies).open(address, timeout=timeout)
    assert isinstance(answer, HTTPResponse)  # noqa: S101 - the type for http and https
    return answer


def _extract(archive: Path, target: Path) -> None:
    """Extract etcd from the archive, and nothing else."""
    with tarfile.open(archive) as tar:
        for member in tar:
            if member.isfile() and Path(member.name).name == "etcd":
                content = tar.extractfile(member)
                if content:
                    with content, target.open("wb") as file:
                        while block := content.read(_BLOCK):
                            file.write(block)
                    return
    raise Unavailable(f"{archive.name} holds no etcd")
