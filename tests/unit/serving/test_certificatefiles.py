"""Certificates in files that an external tool renews."""

import shutil
from pathlib import Path

import pytest

from devcluster.credentials import create
from reconciler.clock import SystemClock
from reconciler.errors import InvalidSetting
from reconciler.serving.callers import Callers
from reconciler.serving.certificatefiles import CertificateFiles

NAMES = ("certificate", "key", "ca")


def renew(folder: Path, source: Path, *names: str) -> None:
    made = create(source, SystemClock())
    for name in names:
        shutil.copy(getattr(made, name), folder / name)


@pytest.fixture
def files(tmp_path: Path) -> CertificateFiles:
    """Certificate files that exist but have not been loaded yet."""
    folder = tmp_path / "mounted"
    folder.mkdir()
    renew(folder, tmp_path / "first", *NAMES)
    certificate, key, ca = (folder / name for name in NAMES)
    return CertificateFiles(
        certificate=certificate, key=key, ca=ca, callers=Callers(), flags="--webhook"
    )


def test_nobody_is_served_before_a_certificate_is_loaded(files: CertificateFiles) -> None:
    assert files.problem
    files.refresh()
    assert not files.problem
    assert files.bundle == files.ca.read_bytes()


def test_what_has_not_changed_is_not_loaded_again(files: CertificateFiles) -> None:
    files.refresh()
    before = files.context
    files.refresh()
    assert files.context is before


def test_a_renewed_certificate_serves_the_next_connection(
    files: CertificateFiles, tmp_path: Path
) -> None:
    files.refresh()
    before = files.context, files.bundle
    renew(files.ca.parent, tmp_path / "second", *NAMES)
    files.refresh()
    assert files.context is not before[0]
    assert files.bundle == files.ca.read_bytes() != before[1]


def test_half_a_renewal_leaves_what_was_loaded(files: CertificateFiles, tmp_path: Path) -> None:
    files.refresh()
    before = files.context, files.bundle
    renew(files.ca.parent, tmp_path / "second", "key", "ca")
    with pytest.raises(InvalidSetting, match="--webhook-server-key"):
        files.refresh()
    assert (files.context, files.bundle) == before


def test_a_file_that_is_not_there_is_named(files: CertificateFiles) -> None:
    files.key.unlink()
    with pytest.raises(InvalidSetting, match=str(files.key)):
        files.refresh()
    assert files.problem
