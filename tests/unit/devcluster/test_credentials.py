"""The keys and kubeconfigs of a local control plane."""

from pathlib import Path

import yaml
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from devcluster.credentials import (
    ADMIN,
    WEBHOOK_CLIENT,
    create,
    write_kubeconfig,
)
from reconciler.clock import SystemClock


def test_only_the_current_user_can_read_the_credentials(tmp_path: Path) -> None:
    create(tmp_path / "pki", SystemClock())
    assert (tmp_path / "pki").stat().st_mode & 0o077 == 0
    assert all(path.stat().st_mode & 0o077 == 0 for path in (tmp_path / "pki").iterdir())


def test_the_server_certificate_is_signed_by_the_ca_for_the_loopback_address(
    tmp_path: Path,
) -> None:
    made = create(tmp_path, SystemClock())
    ca = x509.load_pem_x509_certificate(made.ca.read_bytes())
    server = x509.load_pem_x509_certificate(made.certificate.read_bytes())
    server.verify_directly_issued_by(ca)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    assert server.not_valid_before_utc < SystemClock().now() < server.not_valid_after_utc


def test_every_control_plane_has_its_own_tokens(tmp_path: Path) -> None:
    first, second = (create(tmp_path / name, SystemClock()) for name in "ab")
    assert first.token_of[ADMIN] != second.token_of[ADMIN]
    rows = first.tokens.read_text().splitlines()
    assert f'{first.token_of[ADMIN]},{ADMIN},{ADMIN},"system:masters"' in rows


def test_a_kubeconfig_contains_all_that_it_needs(tmp_path: Path) -> None:
    address = {"server": "https://127.0.0.1:1", "certificate-authority-data": "Y2E="}
    path = write_kubeconfig(tmp_path / "a/b", address=address, user="me", token="secret")
    config = yaml.safe_load(path.read_text())
    assert config["clusters"][0]["cluster"] == address
    assert config["users"] == [{"name": "me", "user": {"token": "secret"}}]
    assert path.stat().st_mode & 0o077 == 0


def test_the_api_server_has_a_client_certificate_for_webhooks(tmp_path: Path) -> None:
    made = create(tmp_path, SystemClock())
    ca = x509.load_pem_x509_certificate(made.ca.read_bytes())
    shown = x509.load_pem_x509_certificate(made.webhook_client.read_bytes())
    shown.verify_directly_issued_by(ca)
    purposes = shown.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(purposes) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    assert shown.subject.rfc4514_string() == f"CN={WEBHOOK_CLIENT}"
