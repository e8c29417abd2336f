"""Downloads of releases, with a server on loopback in the place of the real one."""

import hashlib
import io
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from devcluster.binaries import NEEDED, Binaries, Source
from devcluster.download import fetch_releases
from devcluster.obtain import obtain
from devcluster.progress import Progress
from reconciler.errors import Unavailable

SOURCE = Source(
    kubernetes="v1.2.3", etcd="v4.5.6", go=(9, 0), digest="d" * 64, system="linux", machine="amd64"
)
PROGRAMS = "v1.2.3/bin/linux/amd64"
ARCHIVE = "v4.5.6/etcd-v4.5.6-linux-amd64.tar.gz"


class _Quiet(SimpleHTTPRequestHandler):
    @override
    def log_message(self, *_: Any) -> None:
        """Log nothing, so that the output of the test stays readable."""


@pytest.fixture
def releases(tmp_path: Path) -> Path:
    """The folder of a release server, with correct checksums."""
    root = tmp_path / "releases"
    (root / PROGRAMS).mkdir(parents=True)
    for name in NEEDED[1:]:
        content = f"program {name}".encode()
        (root / PROGRAMS / name).write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        (root / PROGRAMS / f"{name}.sha256").write_text(digest)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in (("etcdctl", b"another"), ("etcd", b"program etcd")):
            member = tarfile.TarInfo(f"etcd-v4.5.6-linux-amd64/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    (root / ARCHIVE).parent.mkdir()
    (root / ARCHIVE).write_bytes(buffer.getvalue())
    digest = hashlib.sha256(buffer.getvalue()).hexdigest()
    (root / "v4.5.6/SHA256SUMS").write_text(
        f"{'0' * 64}  etcd-v4.5.6-darwin-amd64.zip\n{digest}  {Path(ARCHIVE).name}\n"
    )
    return root


@pytest.fixture
def address(releases: Path) -> Iterator[str]:
    handler = partial(_Quiet, directory=str(releases))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def fetch(address: str, folder: Path) -> list[Path]:
    folder.mkdir()
    with Progress(stream=io.StringIO()) as progress:
        return fetch_releases(SOURCE, folder, {"RETROFIT_RELEASES": address}, progress)


def test_all_programs_are_downloaded_and_the_archive_is_deleted(
    address: str, tmp_path: Path
) -> None:
    files = fetch(address, tmp_path / "into")
    assert {file.name: file.read_text() for file in files} == {n: f"program {n}" for n in NEEDED}
    assert sorted(file.name for file in (tmp_path / "into").iterdir()) == sorted(NEEDED)


@pytest.mark.parametrize("name", [f"{PROGRAMS}/kube-apiserver", ARCHIVE])
def test_a_file_with_another_checksum_is_refused(
    releases: Path, address: str, tmp_path: Path, name: str
) -> None:
    (releases / name).write_bytes(b"something else")
    with pytest.raises(Unavailable, match=f"{Path(name).name} has not the checksum"):
        fetch(address, tmp_path / "into")


def test_a_missing_checksum_is_refused(releases: Path, address: str, tmp_path: Path) -> None:
    (releases / "v4.5.6/SHA256SUMS").write_text(f"{'0' * 64}  something-else\n")
    with pytest.raises(Unavailable, match=r"SHA256SUMS states no checksum of etcd-v4\.5\.6"):
        fetch(address, tmp_path / "into")


def test_a_missing_release_is_reported(releases: Path, address: str, tmp_path: Path) -> None:
    (releases / PROGRAMS / "kubectl").unlink()
    with pytest.raises(Unavailable, match=r"releases are not reachable .*404"):
        fetch(address, tmp_path / "into")


@pytest.mark.parametrize("address", ["http://192.0.2.1/x", "file:///etc", "ftp://127.0.0.1:1"])
def test_only_https_and_loopback_addresses_are_accepted(address: str, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"neither https nor on 127\.0\.0\.1"):
        fetch(address, tmp_path / "into")


def test_downloads_can_be_disabled(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="RETROFIT_RELEASES=off"):
        fetch("off", tmp_path / "into")


def test_downloaded_programs_are_cached_and_nothing_else_is_left(
    address: str, tmp_path: Path
) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "RETROFIT_RELEASES": address}
    first = obtain(environ, SOURCE)
    assert isinstance(first, Binaries)
    again = obtain({**environ, "RETROFIT_RELEASES": "off"}, SOURCE)
    assert again == first
    root = tmp_path / "cache/kube-retrofit/control-plane"
    assert sorted(path.name for path in root.iterdir()) == ["lock", SOURCE.key]
    assert sorted(path.name for path in (root / SOURCE.key).iterdir()) == sorted(NEEDED)
    assert all(path.stat().st_mode & 0o111 for path in (root / SOURCE.key).iterdir())
