"""Creation of a CA and of the certificates that it signs, without any I/O."""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from typing_extensions import override

_CA_LIFE, _CA_RENEWAL = timedelta(days=3650), timedelta(days=730)
_LIFE, _RENEWAL = timedelta(days=365), timedelta(days=120)
_SKEW = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A certificate and its key in PEM, with the CA bundle that vouches for it."""

    certificate: bytes
    key: bytes
    bundle: bytes

    @override
    def __repr__(self) -> str:
        """Leave out the key."""
        return f"Pair(until={self.until.isoformat()})"

    @property
    def until(self) -> datetime:
        """Return the end of its validity."""
        return x509.load_pem_x509_certificate(self.certificate).not_valid_after_utc

    @property
    def names(self) -> frozenset[str]:
        """Return the DNS names and addresses that it is valid for."""
        parsed = x509.load_pem_x509_certificate(self.certificate)
        try:
            found = parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except x509.ExtensionNotFound:
            return frozenset()
        addresses = (str(item) for item in found.get_values_for_type(x509.IPAddress))
        return frozenset((*found.get_values_for_type(x509.DNSName), *addresses))


def read_pair(certificate: bytes, key: bytes, bundle: bytes) -> Pair | None:
    """Return a pair from PEM texts, or None if invalid; the bundle defaults to the certificate."""
    try:
        public = x509.load_pem_x509_certificate(certificate).public_key()
        private = _private_key(key)
        _certificates(bundle)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None
    if public != private.public_key():
        return None
    return Pair(certificate=certificate, key=key, bundle=bundle or certificate)


def make_ca(now: datetime, *, older: bytes = b"") -> Pair:
    """Return a new CA; its bundle also holds the older certificates that are still valid."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("kube-retrofit CA")
    builder = _builder(name, name, key.public_key(), now, _CA_LIFE)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs=True), critical=True)
    certificate = _pem(builder.sign(key, hashes.SHA256()))
    still_valid = (_pem(item) for item in _certificates(older) if item.not_valid_after_utc > now)
    return Pair(
        certificate=certificate,
        key=_key_pem(key),
        bundle=b"".join((certificate, *still_valid)),
    )


def make_serving(ca: Pair, names: Iterable[str], now: datetime) -> Pair:
    """Return a serving certificate for names and addresses."""
    key = ec.generate_private_key(ec.SECP256R1())
    ca_key = _private_key(ca.key)
    issuer = x509.load_pem_x509_certificate(ca.certificate)
    wanted = sorted(names)
    builder = _builder(_name("kube-retrofit"), issuer.subject, key.public_key(), now, _LIFE)
    builder = builder.add_extension(
        x509.SubjectAlternativeName([_general_name(name) for name in wanted]), critical=False
    )
    builder = builder.add_extension(
        x509.BasicConstraints(ca=False, path_length=None), critical=True
    )
    builder = builder.add_extension(_usage(signs=False), critical=True)
    builder = builder.add_extension(
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False
    )
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False
    )
    return Pair(
        certificate=_pem(builder.sign(ca_key, hashes.SHA256())),
        key=_key_pem(key),
        bundle=ca.bundle,
    )


def ca_is_due(ca: Pair, now: datetime) -> bool:
    """Return whether the CA has to be renewed."""
    return ca.until - now < _CA_RENEWAL


def serving_is_due(serving: Pair, ca: Pair, names: frozenset[str], now: datetime) -> bool:
    """Return whether the certificate ends soon, lacks a name or is not of a bundled CA."""
    return (
        serving.until - now < _RENEWAL
        or not names <= serving.names
        or not _vouches(ca.bundle, serving.certificate)
    )


def _vouches(bundle: bytes, certificate: bytes) -> bool:
    parsed = x509.load_pem_x509_certificate(certificate)
    return any(_signed(parsed, issuer) for issuer in _certificates(bundle))


def _signed(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _private_key(text: bytes) -> ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey:
    """Return a key from PEM.

    Raises:
        ValueError: It is no private key, or neither an EC nor an RSA key.
        TypeError: It is encrypted.
        UnsupportedAlgorithm: OpenSSL does not support its curve.
    """
    key = serialization.load_pem_private_key(text, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        raise ValueError(f"{type(key).__name__} instead of an EC or RSA key")  # noqa: TRY004
    return key


def _certificates(bundle: bytes) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(bundle) if bundle else []


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: datetime,
    life: timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + life)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
