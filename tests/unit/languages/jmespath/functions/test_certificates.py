import base64
import ipaddress
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.x509.oid import (
    AuthorityInformationAccessOID,
    ExtendedKeyUsageOID,
    NameOID,
    ObjectIdentifier,
)

from reconciler.api.meta import Object
from reconciler.errors import EvaluationError

PEM = serialization.Encoding.PEM
DER = serialization.Encoding.DER
STARTS = datetime(2020, 1, 1, 1, 2, 3, tzinfo=UTC)
ENDS = datetime(2060, 1, 1, tzinfo=UTC)
NAME = x509.Name(
    [
        x509.NameAttribute(NameOID.COUNTRY_NAME, "DE"),
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Häuser"),
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, "two"),
        x509.NameAttribute(NameOID.SERIAL_NUMBER, "77"),
        x509.NameAttribute(NameOID.EMAIL_ADDRESS, "a@b.example"),
        x509.NameAttribute(NameOID.COMMON_NAME, "shop"),
    ]
)


@pytest.fixture(scope="module")
def key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=1024)


@pytest.fixture
def decode(run: Callable[..., Any], key: rsa.RSAPrivateKey) -> Callable[..., Object]:
    def make(*extensions, public=None, **signing):
        builder = (
            x509.CertificateBuilder()
            .subject_name(NAME)
            .issuer_name(NAME)
            .public_key(public or key.public_key())
            .serial_number(2**70)
            .not_valid_before(STARTS)
            .not_valid_after(ENDS)
        )
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical=critical)
        algorithm = signing.pop("algorithm", hashes.SHA256())
        certificate = builder.sign(key, algorithm, **signing)
        found = run("x509_decode(pem)", pem=certificate.public_bytes(PEM).decode())
        assert found["Raw"] == base64.b64encode(certificate.public_bytes(DER)).decode()
        return found

    return make


def test_the_fields_of_a_certificate_are_decoded(decode, key):
    found = decode()
    assert found["Version"] == 3
    assert found["SerialNumber"] == 2.0**70
    assert (found["NotBefore"], found["NotAfter"]) == (
        "2020-01-01T01:02:03Z",
        "2060-01-01T00:00:00Z",
    )
    assert found["PublicKey"] == {"N": str(key.public_key().public_numbers().n), "E": 65537}
    assert (found["PublicKeyAlgorithm"], found["SignatureAlgorithm"]) == (1, 4)
    assert found["Subject"] == found["Issuer"]
    assert found["Extensions"] is None
    assert (found["KeyUsage"], found["MaxPathLen"], found["IsCA"]) == (0, 0, False)


def test_the_parts_of_a_name_are_decoded(decode):
    name = decode()["Subject"]
    assert name["Country"] == ["DE"]
    assert name["Organization"] == ["Häuser", "two"]
    assert (name["Locality"], name["SerialNumber"], name["CommonName"]) == (None, "77", "shop")
    assert {"Type": [1, 2, 840, 113549, 1, 9, 1], "Value": "a@b.example"} in name["Names"]
    assert len(name["Names"]) == 6


def test_alternative_names_are_decoded(decode):
    names = x509.SubjectAlternativeName(
        [
            x509.DNSName("shop.example"),
            x509.RFC822Name("a@b.example"),
            x509.IPAddress(ipaddress.ip_address("10.0.0.1")),
            x509.IPAddress(ipaddress.ip_address("::1")),
            x509.UniformResourceIdentifier("spiffe://trust/ns?q=1#f"),
            x509.UniformResourceIdentifier("urn:a:b"),
        ]
    )
    found = decode((names, False))
    assert found["DNSNames"] == ["shop.example"]
    assert found["EmailAddresses"] == ["a@b.example"]
    assert found["IPAddresses"] == ["10.0.0.1", "::1"]
    uri, urn = found["URIs"]
    assert [uri[part] for part in ("Scheme", "Host", "Path", "RawQuery", "Fragment")] == [
        "spiffe", "trust", "/ns", "q=1", "f",
    ]  # fmt: skip
    assert (urn["Scheme"], urn["Opaque"], urn["Path"]) == ("urn", "a:b", "")
    assert found["Extensions"][0]["Id"] == [2, 5, 29, 17]


def test_key_usage_and_basic_constraints_are_decoded(decode):
    usage = x509.KeyUsage(
        digital_signature=True, content_commitment=False, key_encipherment=True,
        data_encipherment=False, key_agreement=True, key_cert_sign=True, crl_sign=False,
        encipher_only=False, decipher_only=True,
    )  # fmt: skip
    purposes = x509.ExtendedKeyUsage(
        [
            ExtendedKeyUsageOID.SERVER_AUTH,
            ExtendedKeyUsageOID.OCSP_SIGNING,
            ObjectIdentifier("1.2.3"),
        ]
    )
    found = decode(
        (usage, True), (purposes, False), (x509.BasicConstraints(ca=True, path_length=0), True)
    )
    assert found["KeyUsage"] == 1 + 4 + 16 + 32 + 256
    assert found["ExtKeyUsage"] == [1, 9]
    assert found["UnknownExtKeyUsage"] == [[1, 2, 3]]
    assert found["BasicConstraintsValid"] is found["IsCA"] is found["MaxPathLenZero"] is True


def test_service_locations_and_key_identifiers_are_decoded(decode):
    access = x509.AuthorityInformationAccess(
        [
            x509.AccessDescription(oid, x509.UniformResourceIdentifier(place))
            for oid, place in (
                (AuthorityInformationAccessOID.OCSP, "http://ocsp.example"),
                (AuthorityInformationAccessOID.CA_ISSUERS, "http://ca.example"),
            )
        ]
    )
    lists = x509.CRLDistributionPoints(
        [
            x509.DistributionPoint(
                [x509.UniformResourceIdentifier("http://crl.example")], None, None, None
            )
        ]
    )
    found = decode(
        (access, False),
        (lists, False),
        (x509.SubjectKeyIdentifier(b"abc"), False),
        (x509.AuthorityKeyIdentifier(b"xyz", None, None), False),
    )
    assert found["OCSPServer"] == ["http://ocsp.example"]
    assert found["IssuingCertificateURL"] == ["http://ca.example"]
    assert found["CRLDistributionPoints"] == ["http://crl.example"]
    assert (found["SubjectKeyId"], found["AuthorityKeyId"]) == ("YWJj", "eHl6")


def test_constraints_and_policies_are_decoded(decode):
    names = x509.NameConstraints(
        [x509.DNSName("in.example"), x509.IPAddress(ipaddress.ip_network("10.0.0.0/8"))],
        [x509.RFC822Name("out.example"), x509.UniformResourceIdentifier("uri.example")],
    )
    found = decode(
        (names, True),
        (
            x509.CertificatePolicies([x509.PolicyInformation(ObjectIdentifier("1.2.3"), None)]),
            False,
        ),
        (x509.PolicyConstraints(0, 2), True),
        (x509.InhibitAnyPolicy(0), True),
        (x509.UnrecognizedExtension(ObjectIdentifier("2.999.3"), b"\x05\x00"), True),
    )
    assert found["PermittedDNSDomainsCritical"] is True
    assert found["PermittedDNSDomains"] == ["in.example"]
    assert found["PermittedIPRanges"] == [{"IP": "10.0.0.0", "Mask": "/wAAAA=="}]
    assert found["ExcludedEmailAddresses"] == ["out.example"]
    assert found["ExcludedURIDomains"] == ["uri.example"]
    assert (found["Policies"], found["PolicyIdentifiers"]) == (["1.2.3"], [[1, 2, 3]])
    assert (found["RequireExplicitPolicy"], found["RequireExplicitPolicyZero"]) == (0, True)
    assert (found["InhibitPolicyMapping"], found["InhibitAnyPolicyZero"]) == (2, True)
    assert found["UnhandledCriticalExtensions"] == [[2, 999, 3]]


def test_a_signature_with_a_salt_is_recognized(decode):
    salted = padding.PSS(padding.MGF1(hashes.SHA384()), 48)
    found = decode(algorithm=hashes.SHA384(), rsa_padding=salted)
    assert found["SignatureAlgorithm"] == 14


@pytest.mark.parametrize(
    ("usual", "odd", "field", "value"),
    [
        (b"\x02\x01\x07", b"\x02\x01\x00", "SerialNumber", 0),
        (b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x01", "Version", 2),
    ],
)
def test_serial_numbers_and_versions_that_other_readers_refuse_are_read(
    run, key, usual, odd, field, value
):
    builder = x509.CertificateBuilder(NAME, NAME, key.public_key(), 7, STARTS, ENDS)
    raw = builder.sign(key, hashes.SHA256()).public_bytes(DER)
    assert raw.count(usual) == 1
    body = base64.encodebytes(raw.replace(usual, odd)).decode()
    pem = f"-----BEGIN CERTIFICATE-----\n{body}-----END CERTIFICATE-----\n"
    assert run("x509_decode(pem)", pem=pem)[field] == value


def test_a_certificate_request_is_decoded(run, key):
    builder = x509.CertificateSigningRequestBuilder().subject_name(NAME)
    builder = builder.add_extension(
        x509.SubjectAlternativeName([x509.DNSName("shop.example")]), critical=False
    ).add_attribute(ObjectIdentifier("1.2.840.113549.1.9.7"), b"word")
    pem = builder.sign(key, hashes.SHA256()).public_bytes(PEM).decode()
    found = run("x509_decode(pem)", pem=f"in front\n{pem}behind")
    assert found["DNSNames"] == ["shop.example"]
    assert found["Subject"]["CommonName"] == "shop"
    assert "NotAfter" not in found


def test_a_key_that_is_not_rsa_is_refused(decode):
    with pytest.raises(EvaluationError, match="the key is not an RSA key"):
        decode(public=ec.generate_private_key(ec.SECP256R1()).public_key())


@pytest.mark.parametrize(
    ("pem", "reason"),
    [
        ("", "holds no PEM block"),
        ("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----", "holds no PEM block"),
        ("-----BEGIN CERTIFICATE-----\nMA\n-----END CERTIFICATE-----", "failed to read"),
        ("-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----", "failed to read"),
        ("x" * 70_000, "longer than 65536 characters"),
    ],
)
def test_an_invalid_certificate_is_an_error(fails, pem, reason):
    assert reason in fails("x509_decode(pem)", pem=pem)
