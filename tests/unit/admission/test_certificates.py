"""The CA and the serving certificate, and how replicas share them."""

import asyncio
import ssl
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ed448, rsa
from cryptography.x509.oid import NameOID

from reconciler.errors import Conflict, InvalidSetting, NotFound
from reconciler.kube.authority import BUNDLE, CA_SECRET, TLS_SECRET
from reconciler.kube.secrets import StoredSecret
from reconciler.serving import pki
from reconciler.serving.certificates import Certificates, server_names

# The TLS library checks validity against the real time.
NOW = datetime.now(UTC).replace(microsecond=0)  # noqa: TID251
NAMES = frozenset({"kyverno-svc.kyverno.svc", "127.0.0.1"})


class Secrets:
    """The two Secrets that the manifests create, in memory, with resourceVersions."""

    def __init__(self):
        self.stored = {}
        self.writes = 0
        for name in (CA_SECRET, TLS_SECRET):
            self.restore(name)

    async def get(self, name):
        await asyncio.sleep(0)
        return self.stored.get(name)

    async def fill(self, secret):
        await asyncio.sleep(0)
        if self.stored[secret.name].resource_version != secret.resource_version:
            raise Conflict("it changed", status=409)
        self.writes += 1
        self.stored[secret.name] = replace(secret, resource_version=str(self.writes))
        return self.stored[secret.name]

    def restore(self, name):
        self.stored[name] = StoredSecret(name=name, data={}, resource_version="new")


class Clock:
    """A clock that tests set."""

    def __init__(self, now=NOW):
        self.time = now

    def now(self):
        return self.time

    def monotonic(self):
        return self.time.timestamp()


def leaf(secrets):
    return x509.load_pem_x509_certificate(secrets.stored[TLS_SECRET].data["tls.crt"])


def test_a_certificate_of_the_ca_is_valid_for_its_names():
    ca = pki.make_ca(NOW)
    serving = pki.make_serving(ca, NAMES, NOW)
    assert serving.names == NAMES
    assert not pki.serving_is_due(serving, ca, NAMES, NOW)
    assert not pki.ca_is_due(ca, NOW)


def test_a_certificate_is_due_before_it_expires_for_a_new_name_and_for_another_ca():
    ca = pki.make_ca(NOW)
    serving = pki.make_serving(ca, NAMES, NOW)
    assert pki.serving_is_due(serving, ca, NAMES, serving.until - timedelta(days=100))
    assert pki.serving_is_due(serving, ca, NAMES | {"other"}, NOW)
    assert pki.serving_is_due(serving, pki.make_ca(NOW), NAMES, NOW)


def test_certificates_of_the_old_ca_stay_valid_after_a_new_ca_is_made():
    old = pki.make_ca(NOW)
    serving = pki.make_serving(old, NAMES, NOW)
    later = old.until - timedelta(days=700)
    assert pki.ca_is_due(old, later)
    new = pki.make_ca(later, older=old.bundle)
    assert new.bundle.count(b"BEGIN CERTIFICATE") == 2
    assert not pki.serving_is_due(serving, new, NAMES, NOW)
    much_later = pki.make_ca(old.until + timedelta(days=1), older=new.bundle)
    assert much_later.bundle.count(b"BEGIN CERTIFICATE") == 2


def test_the_repr_of_a_pair_does_not_contain_the_key():
    ca = pki.make_ca(NOW)
    assert "PRIVATE" not in repr(ca)


@pytest.mark.parametrize("broken", ["certificate", "key", "bundle"])
def test_an_invalid_pair_is_read_as_none(broken):
    ca = pki.make_ca(NOW)
    parts = {"certificate": ca.certificate, "key": ca.key, "bundle": ca.bundle}
    assert pki.read_pair(**parts) == ca
    assert pki.read_pair(**parts | {broken: b"-----BEGIN nothing"}) is None
    assert pki.read_pair(**parts | {"key": pki.make_ca(NOW).key}) is None


OUTDATED_CURVE = b"""-----BEGIN PRIVATE KEY-----
ME4CAQAwEAYHKoZIzj0CAQYFK4EEAAYENzA1AgEBBA68qKzvICT89luoCWY4e6Eg
Ax4ABI67dYT3D7pwteF0GmiZRr1unfZAE7s5i8im6M4=
-----END PRIVATE KEY-----
"""
"""A key on secp112r1, which OpenSSL does not support any more."""


def own_ca(key, algorithm):
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "own CA")])
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, NOW, NOW + timedelta(300))
    text = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    made = builder.sign(key, algorithm).public_bytes(serialization.Encoding.PEM)
    return pki.read_pair(made, text, b"")


def test_a_pair_with_a_key_that_cannot_sign_is_read_as_none():
    ca = pki.make_ca(NOW)
    assert pki.read_pair(ca.certificate, OUTDATED_CURVE, b"") is None
    assert own_ca(ed448.Ed448PrivateKey.generate(), None) is None


def test_a_ca_with_an_rsa_key_signs_certificates():
    ca = own_ca(rsa.generate_private_key(65537, 2048), hashes.SHA256())
    serving = pki.make_serving(ca, NAMES, NOW)
    assert not pki.serving_is_due(serving, ca, NAMES, NOW)


async def test_the_first_replica_makes_ca_and_certificate_and_others_read_them():
    secrets = Secrets()
    first, second = (Certificates(secrets, NAMES, Clock()) for _ in range(2))
    await first.refresh()
    await second.refresh()
    assert secrets.writes == 2
    assert first.bundle == second.bundle == secrets.stored[CA_SECRET].data[BUNDLE]
    assert (first.problem, second.problem) == ("", "")


async def test_replicas_that_start_together_end_with_one_ca():
    secrets = Secrets()
    replicas = [Certificates(secrets, NAMES, Clock()) for _ in range(5)]
    await asyncio.gather(*(item.refresh() for item in replicas))
    assert secrets.writes == 2
    assert len({item.bundle for item in replicas}) == 1


async def test_one_replica_renews_a_certificate_before_it_expires_and_all_load_it():
    secrets, clock = Secrets(), Clock()
    loaded = []
    replicas = [Certificates(secrets, NAMES, clock, loaded.append) for _ in range(2)]
    for item in replicas:
        await item.refresh()
    first = leaf(secrets)
    clock.time = NOW + timedelta(days=300)
    await asyncio.gather(*(item.refresh() for item in replicas))
    assert leaf(secrets).not_valid_after_utc > first.not_valid_after_utc
    assert secrets.writes == 3
    assert len(loaded) == 4


async def test_replicas_with_different_names_share_one_certificate_for_all_names():
    secrets = Secrets()
    one = Certificates(secrets, frozenset({"one"}), Clock())
    two = Certificates(secrets, frozenset({"two"}), Clock())
    for item in (one, two, one, two):
        await item.refresh()
    assert secrets.writes == 3
    pair = secrets.stored[TLS_SECRET].data
    read = pki.read_pair(pair["tls.crt"], pair["tls.key"], pair["ca.crt"])
    assert read.names == {"one", "two"}


async def test_a_damaged_certificate_secret_is_replaced():
    secrets = Secrets()
    certificates = Certificates(secrets, NAMES, Clock())
    await certificates.refresh()
    stored = secrets.stored[TLS_SECRET]
    secrets.stored[TLS_SECRET] = replace(stored, data={"tls.crt": b"rubbish"})
    await certificates.refresh()
    assert leaf(secrets).subject.rfc4514_string() == "CN=kube-retrofit"


async def _handshake(port, bundle):
    context = ssl.create_default_context(cadata=bundle.decode())
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    serial = x509.load_der_x509_certificate(
        writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    ).serial_number
    return reader, writer, serial


async def test_a_new_certificate_is_served_while_open_connections_continue():
    async def echo(reader, writer):
        while line := await reader.readline():
            writer.write(line)
        writer.close()

    secrets, clock = Secrets(), Clock(NOW - timedelta(days=300))
    certificates = Certificates(secrets, NAMES, clock)
    await certificates.refresh()
    server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=certificates.context)
    port = server.sockets[0].getsockname()[1]
    reader, writer, before = await _handshake(port, certificates.bundle)
    clock.time = NOW
    await certificates.refresh()
    _, other, after = await _handshake(port, certificates.bundle)
    writer.write(b"still here\n")
    assert await reader.readline() == b"still here\n"
    assert before != after
    for item in (writer, other):
        item.close()
        await item.wait_closed()
    server.close()
    await server.wait_closed()


def test_server_names_contain_the_service_names_and_the_host_of_the_url():
    names = server_names("svc", "ns", "https://127.0.0.1:9443/base")
    assert names == {"svc", "svc.ns", "svc.ns.svc", "svc.ns.svc.cluster.local", "127.0.0.1"}
    assert "host.example" in server_names("svc", "ns", "https://host.example")


@pytest.mark.parametrize("url", ["http://host", "host:9443", "https://", "https:///x"])
def test_a_webhook_url_that_is_not_https_is_refused(url):
    with pytest.raises(InvalidSetting, match="--webhook-url"):
        server_names("svc", "ns", url)


@pytest.mark.parametrize("name", [CA_SECRET, TLS_SECRET])
async def test_a_missing_secret_is_left_to_the_controller_to_create(name):
    secrets = Secrets()
    del secrets.stored[name]
    with pytest.raises(NotFound, match=f"{name} does not exist: retrofit-controller recreates it"):
        await Certificates(secrets, NAMES, Clock()).refresh()


async def test_a_deleted_ca_is_made_again_after_a_notification():
    secrets, loaded = Secrets(), asyncio.Event()
    certificates = Certificates(secrets, NAMES, Clock(), lambda _pair: loaded.set())
    await certificates.refresh()
    loaded.clear()
    first = secrets.stored[CA_SECRET]
    secrets.restore(CA_SECRET)
    running = asyncio.create_task(certificates.run())
    try:
        certificates.look()
        await asyncio.wait_for(loaded.wait(), 5)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    made = secrets.stored[CA_SECRET].data["tls.crt"]
    assert made != first.data["tls.crt"]
    assert leaf(secrets).issuer == x509.load_pem_x509_certificate(made).subject
