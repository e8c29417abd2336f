"""``x509_decode``: decodes a certificate or certificate request, with the field names of Go.

``Attributes`` of a request is always null: Go keeps the field for old programs only.
"""

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any

from reconciler.engine.values.gotime.layout import parse_time
from reconciler.languages.jmespath.functions import extensions
from reconciler.languages.jmespath.functions.der import (
    GENERALIZED_TIME,
    SEQUENCE,
    SET,
    UTC_TIME,
    Element,
    parse,
)
from reconciler.languages.jmespath.functions.signature import TEXT, Function, Refused, extension
from reconciler.languages.jmespath.limits import Run
from reconciler.languages.jmespath.values import bounded

_PEM = re.compile(
    r"-----BEGIN (CERTIFICATE(?: REQUEST)?)-----\s([A-Za-z0-9+/=\s]*)-----END \1-----"
)
_LONGEST = 65_536
_PACE = 16
_RSA = (1, 2, 840, 113549, 1, 1)
_RSA_KEY_ALGORITHM = 1
_NAMES = {
    (2, 5, 4, 6): "Country",
    (2, 5, 4, 10): "Organization",
    (2, 5, 4, 11): "OrganizationalUnit",
    (2, 5, 4, 7): "Locality",
    (2, 5, 4, 8): "Province",
    (2, 5, 4, 9): "StreetAddress",
    (2, 5, 4, 17): "PostalCode",
}
_SINGLE_NAMES = {(2, 5, 4, 5): "SerialNumber", (2, 5, 4, 3): "CommonName"}
_PSS = 10
_PSS_HASHES = {1: 13, 2: 14, 3: 15}
_SIGNATURES = {
    (*_RSA, 2): 1,
    (*_RSA, 4): 2,
    (*_RSA, 5): 3,
    (*_RSA, 11): 4,
    (*_RSA, 12): 5,
    (*_RSA, 13): 6,
    (1, 2, 840, 10040, 4, 3): 7,
    (2, 16, 840, 1, 101, 3, 4, 3, 2): 8,
    (1, 2, 840, 10045, 4, 1): 9,
    (1, 2, 840, 10045, 4, 3, 2): 10,
    (1, 2, 840, 10045, 4, 3, 3): 11,
    (1, 2, 840, 10045, 4, 3, 4): 12,
    (1, 3, 101, 112): 16,
}
_EXTENSION_REQUEST = (1, 2, 840, 113549, 1, 9, 14)
_VERSION, _EXTENSIONS, _ATTRIBUTES = 0xA0, 0xA3, 0xA0


def _x509_decode(run: Run, pem: str) -> dict[str, Any]:
    if len(pem) > _LONGEST:
        raise Refused(f"argument #1 is longer than {_LONGEST} characters")
    run.read(len(pem) * _PACE)
    found = _PEM.search(pem)
    if found is None:
        raise Refused("argument #1 holds no PEM block of a certificate or request")
    try:
        raw = parse(base64.b64decode("".join(found[2].split()), validate=True))
        return _certificate(raw) if found[1] == "CERTIFICATE" else _request(raw)
    except (ValueError, IndexError, binascii.Error) as error:
        raise Refused(f"failed to read the {found[1].lower()}: {error}") from None


def _certificate(raw: Element) -> dict[str, Any]:
    body, algorithm, signature = raw.children(SEQUENCE)
    fields = body.children(SEQUENCE)
    version = fields.pop(0).children()[0].integer() if fields[0].tag == _VERSION else 0
    serial, _, issuer, validity, subject, key, *rest = fields
    starts, ends = validity.children(SEQUENCE)
    listed = [one.children()[0] for one in rest if one.tag == _EXTENSIONS]
    known = extensions.read(listed[0].children(SEQUENCE) if listed else [])
    return {
        **extensions.DEFAULTS,
        **known,
        **_common(raw, subject, key, signature, algorithm),
        "RawTBSCertificate": encoded(body.raw),
        "RawIssuer": encoded(issuer.raw),
        "Version": version + 1,
        "SerialNumber": bounded(serial.integer()),
        "Issuer": _name(issuer),
        "NotBefore": _time(starts),
        "NotAfter": _time(ends),
    }


def _request(raw: Element) -> dict[str, Any]:
    body, algorithm, signature = raw.children(SEQUENCE)
    version, subject, key, *attributes = body.children(SEQUENCE)
    asked = [
        values.children(SET)[0].children(SEQUENCE)
        for one in attributes
        if one.tag == _ATTRIBUTES
        for kind, values in (attribute.children(SEQUENCE) for attribute in one.children())
        if kind.oid() == _EXTENSION_REQUEST
    ]
    known = extensions.read(asked[0] if asked else [])
    return {
        **{field: known.get(field) for field in extensions.OF_REQUESTS},
        **_common(raw, subject, key, signature, algorithm),
        "Attributes": None,
        "RawTBSCertificateRequest": encoded(body.raw),
        "Version": version.integer(),
    }


def _common(
    raw: Element, subject: Element, key: Element, signature: Element, algorithm: Element
) -> dict[str, Any]:
    return {
        "Raw": encoded(raw.raw),
        "RawSubject": encoded(subject.raw),
        "RawSubjectPublicKeyInfo": encoded(key.raw),
        "Signature": encoded(signature.bits()),
        "SignatureAlgorithm": _signature(algorithm),
        "PublicKeyAlgorithm": _RSA_KEY_ALGORITHM,
        "PublicKey": _public_key(key),
        "Subject": _name(subject),
    }


def _public_key(key: Element) -> dict[str, Any]:
    algorithm, bits = key.children(SEQUENCE)
    if algorithm.children(SEQUENCE)[0].oid() != (*_RSA, 1):
        raise ValueError("the key is not an RSA key")
    modulus, exponent = parse(bits.bits()).children(SEQUENCE)
    # Written as text: too long for a JSON number. A forged one may exceed Python's digit limit.
    if len(modulus.content) > 2048:  # noqa: PLR2004 - 16384 bits
        raise ValueError("the key is too long")
    return {"N": str(modulus.integer()), "E": bounded(exponent.integer())}


def _signature(algorithm: Element) -> int:
    parts = algorithm.children(SEQUENCE)
    oid = parts[0].oid()
    if oid != (*_RSA, _PSS):
        return _SIGNATURES.get(oid, 0)
    # The hash is the last part of its identifier: SHA-256, 384 or 512.
    hashes = [one.children()[0] for one in parts[1].children(SEQUENCE) if one.tag == _VERSION]
    return _PSS_HASHES.get(hashes[0].children(SEQUENCE)[0].oid()[-1], 0) if hashes else 0


def _name(name: Element) -> dict[str, Any]:
    pairs = [
        (kind.oid(), value.text())
        for group in name.children(SEQUENCE)
        for kind, value in (pair.children(SEQUENCE) for pair in group.children(SET))
    ]
    parts: dict[str, Any] = dict.fromkeys(_NAMES.values())
    parts |= dict.fromkeys(_SINGLE_NAMES.values(), "")
    for oid, text in pairs:
        if oid in _NAMES:
            field = _NAMES[oid]
            parts[field] = [*(parts[field] or []), text]
        elif oid in _SINGLE_NAMES:
            parts[_SINGLE_NAMES[oid]] = text
    names = [{"Type": list(oid), "Value": text} for oid, text in pairs]
    return {**parts, "Names": names or None, "ExtraNames": None}


def _time(time: Element) -> str:
    if time.tag not in {UTC_TIME, GENERALIZED_TIME}:
        raise ValueError("a time that is none")
    text = time.content.decode("ascii")
    year = "2006" if time.tag == GENERALIZED_TIME else "06"
    instant = parse_time(f"{year}0102150405Z0700", text)
    return instant.rfc3339()


def encoded(raw: bytes) -> str:
    """Return bytes as Go writes them in JSON, which is base64."""
    return base64.b64encode(raw).decode()


FUNCTIONS: Mapping[str, Function] = {"x509_decode": extension(_x509_decode, TEXT)}
