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


def test_files_report_a_problem_until_a_certificate_is_loaded(files: CertificateFiles) -> None:
    assert files.problem
    files.refresh()
    assert not files.problem
    assert files.bundle == files.ca.read_bytes()


def test_unchanged_files_are_not_loaded_again(files: CertificateFiles) -> None:
    files.refresh()
    before = files.context
    files.refresh()
    assert files.context is before


def test_a_renewed_certificate_replaces_the_loaded_one(
    files: CertificateFiles, tmp_path: Path
) -> None:
    files.refresh()
    before = files.context, files.bundle
    renew(files.ca.parent, tmp_path / "second", *NAMES)
    files.refresh()
    assert files.context is not before[0]
    assert files.bundle == files.ca.read_bytes() != before[1]


def test_a_partial_renewal_leaves_the_loaded_certificate(
    files: CertificateFiles, tmp_path: Path
) -> None:
    files.refresh()
    before = files.context, files.bundle
    renew(files.ca.parent, tmp_path / "second", "key", "ca")
    with pytest.raises(InvalidSetting, match="--webhook-server-key"):
        files.refresh()
    assert (files.context, files.bundle) == before


def test_a_new_ca_for_callers_is_loaded_although_another_file_was_missing(
    files: CertificateFiles, tmp_path: Path
) -> None:
    trusted = tmp_path / "callers.crt"
    shutil.copy(files.ca, trusted)
    files.callers.files = (trusted,)
    files.refresh()
    before = files.context.get_ca_certs()
    shutil.copy(create(tmp_path / "second", SystemClock()).ca, trusted)
    key = files.key.read_bytes()
    files.key.unlink()
    with pytest.raises(InvalidSetting):
        files.refresh()
    files.key.write_bytes(key)
    files.refresh()
    assert files.context.get_ca_certs() != before


def test_a_missing_file_is_named(files: CertificateFiles) -> None:
    files.key.unlink()
    with pytest.raises(InvalidSetting, match=str(files.key)):
        files.refresh()
    assert files.problem
