"""Keys, certificates, tokens and kubeconfigs of a temporary control plane."""

import datetime as dt
import ipaddress
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from reconciler.clock import Clock

ADMIN = "kubernetes-admin"
CONTROLLER_MANAGER = "system:kube-controller-manager"
SCHEDULER = "system:kube-scheduler"
WEBHOOK_CLIENT = "kube-apiserver-webhooks"
"""The common name of the API server's client certificate for webhooks."""
LOOPBACK = "127.0.0.1"
_MASTERS = "system:masters"
_LIFETIME = dt.timedelta(days=365)
_LEEWAY = dt.timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """The credential files of the API server and its clients, and one token per user.

    Attributes:
        ca: CA certificate that clients trust.
        certificate: The API server's serving certificate, for loopback.
        webhook_client: Client certificate for webhooks, with its key in the same file.
        people: CA of client certificates that the cluster signs on request; webhooks do not
            accept these.
        account_key: Signs ServiceAccount tokens.
        account_public: Verifies ServiceAccount tokens.
        tokens: The API server's token file.
        token_of: Token by user name.
    """

    ca: Path
    certificate: Path
    key: Path
    webhook_client: Path
    people: Path
    people_key: Path
    account_key: Path
    account_public: Path
    tokens: Path
    token_of: dict[str, str]


def create(
    folder: Path,
    clock: Clock,
    *,
    addresses: Sequence[str] = (LOOPBACK,),
    more: Mapping[str, str] | None = None,
) -> Credentials:
    """Create new credentials in a folder that only this user can read.

    Args:
        more: Further users, each with a group or an empty string.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    authority, people = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    server, client, account = (ec.generate_private_key(ec.SECP256R1()) for _ in range(3))
    issuer, people_name = _name("retrofit dev CA"), _name("retrofit dev people")
    group_of = {ADMIN: _MASTERS, CONTROLLER_MANAGER: _MASTERS, SCHEDULER: "", **(more or {})}
    token_of = {user: secrets.token_urlsafe(32) for user in group_of}
    rows = [f'{token},{user},{user},"{group_of[user]}"' for user, token in token_of.items()]
    signed = _server(issuer, server.public_key(), authority, clock, addresses)
    shown = _sign(
        _builder(_name(WEBHOOK_CLIENT), issuer, client.public_key(), clock),
        authority,
        ExtendedKeyUsageOID.CLIENT_AUTH,
    )
    return Credentials(
        ca=_write(folder / "ca.crt", _pem(_authority(issuer, authority, clock))),
        certificate=_write(folder / "apiserver.crt", _pem(signed)),
        key=_write(folder / "apiserver.key", _private(server)),
        webhook_client=_write(folder / "webhook-client.pem", _pem(shown) + _private(client)),
        people=_write(folder / "people.crt", _pem(_authority(people_name, people, clock))),
        people_key=_write(folder / "people.key", _private(people)),
        account_key=_write(folder / "service-accounts.key", _private(account)),
        account_public=_write(
            folder / "service-accounts.pub",
            account.public_key().public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            ),
        ),
        tokens=_write(folder / "tokens.csv", ("\n".join(rows) + "\n").encode()),
        token_of=token_of,
    )


def write_kubeconfig(path: Path, *, address: Mapping[str, Any], user: str, token: str) -> Path:
    """Write a kubeconfig that only this user can read.

    Args:
        address: The ``cluster`` of a kubeconfig, with its certificate authority as data.
    """
    context = {"cluster": "retrofit-dev", "user": user, "namespace": "default"}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "retrofit-dev", "cluster": dict(address)}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "retrofit-dev", "context": context}],
        "current-context": "retrofit-dev",
    }
    return _write(path, yaml.safe_dump(config, sort_keys=False).encode())


def _write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(content)
    return path


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _authority(name: x509.Name, key: ec.EllipticCurvePrivateKey, clock: Clock) -> x509.Certificate:
    return _builder(name, name, key.public_key(), clock, ca=True).sign(key, hashes.SHA256())


def _server(
    issuer: x509.Name,
    public: ec.EllipticCurvePublicKey,
    authority: ec.EllipticCurvePrivateKey,
    clock: Clock,
    addresses: Sequence[str],
) -> x509.Certificate:
    names: list[x509.GeneralName] = [
        x509.IPAddress(ipaddress.ip_address(address)) for address in addresses
    ]
    names += [
        x509.DNSName(text)
        for text in ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
    ]
    builder = _builder(_name("kube-apiserver"), issuer, public, clock)
    builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return _sign(builder, authority, ExtendedKeyUsageOID.SERVER_AUTH)


def _sign(
    builder: x509.CertificateBuilder,
    authority: ec.EllipticCurvePrivateKey,
    purpose: x509.ObjectIdentifier,
) -> x509.Certificate:
    builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), critical=False
    )
    return builder.sign(authority, hashes.SHA256())


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public: ec.EllipticCurvePublicKey,
    clock: Clock,
    *,
    ca: bool = False,
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder(
        subject_name=subject,
        issuer_name=issuer,
        public_key=public,
        serial_number=x509.random_serial_number(),
        not_valid_before=clock.now() - _LEEWAY,
        not_valid_after=clock.now() + _LIFETIME,
    )
    builder = builder.add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=ca), critical=True)
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
