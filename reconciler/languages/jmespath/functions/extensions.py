"""Parses the extensions of certificates into the fields of Go's certificates."""

import base64
import ipaddress
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from reconciler.languages.jmespath.functions.der import (
    BOOLEAN,
    INTEGER,
    OCTET_STRING,
    SEQUENCE,
    Element,
    parse,
)
from reconciler.languages.jmespath.values import bounded

DEFAULTS: Mapping[str, Any] = {
    "AuthorityKeyId": None,
    "BasicConstraintsValid": False,
    "CRLDistributionPoints": None,
    "DNSNames": None,
    "EmailAddresses": None,
    "ExcludedDNSDomains": None,
    "ExcludedEmailAddresses": None,
    "ExcludedIPRanges": None,
    "ExcludedURIDomains": None,
    "ExtKeyUsage": None,
    "Extensions": None,
    "ExtraExtensions": None,
    "IPAddresses": None,
    "InhibitAnyPolicy": 0,
    "InhibitAnyPolicyZero": False,
    "InhibitPolicyMapping": 0,
    "InhibitPolicyMappingZero": False,
    "IsCA": False,
    "IssuingCertificateURL": None,
    "KeyUsage": 0,
    "MaxPathLen": 0,
    "MaxPathLenZero": False,
    "OCSPServer": None,
    "PermittedDNSDomains": None,
    "PermittedDNSDomainsCritical": False,
    "PermittedEmailAddresses": None,
    "PermittedIPRanges": None,
    "PermittedURIDomains": None,
    "Policies": None,
    "PolicyIdentifiers": None,
    "PolicyMappings": None,
    "RequireExplicitPolicy": 0,
    "RequireExplicitPolicyZero": False,
    "SubjectKeyId": None,
    "URIs": None,
    "UnhandledCriticalExtensions": None,
    "UnknownExtKeyUsage": None,
}
"""The fields of a certificate without extensions."""

OF_REQUESTS = (
    "DNSNames", "EmailAddresses", "Extensions", "ExtraExtensions", "IPAddresses", "URIs",
)  # fmt: skip
"""The fields that certificate requests have, too."""

_Fields = dict[str, Any]

_EMAIL, _DNS, _URI, _IP = 0x81, 0x82, 0x86, 0x87
_POINT_NAME, _FULL_NAME = 0xA0, 0xA0
_KEY_ID = 0x80
_NAME_CONSTRAINTS = (2, 5, 29, 30)
_OCSP = (1, 3, 6, 1, 5, 5, 7, 48, 1)
_ISSUERS = (1, 3, 6, 1, 5, 5, 7, 48, 2)
_PURPOSES: Mapping[tuple[int, ...], int] = {
    (2, 5, 29, 37, 0): 0,
    **{(1, 3, 6, 1, 5, 5, 7, 3, number): number for number in range(1, 10)},
    (1, 3, 6, 1, 4, 1, 311, 10, 3, 3): 10,
    (2, 16, 840, 1, 113730, 4, 1): 11,
    (1, 3, 6, 1, 4, 1, 311, 2, 1, 22): 12,
    (1, 3, 6, 1, 4, 1, 311, 61, 1, 1): 13,
}


def read(listed: list[Element]) -> _Fields:
    """Return the fields that the extensions of a certificate or request set.

    Raises:
        ValueError: An extension cannot be parsed.
    """
    fields: _Fields = {}
    shown: list[_Fields] = []
    unhandled: list[list[int]] = []
    for one in listed:
        kind, *flag, value = one.children(SEQUENCE)
        oid, raw = kind.oid(), value.expect(OCTET_STRING)
        critical = any(flag[0].expect(BOOLEAN)) if flag else False
        shown.append(
            {"Id": list(oid), "Critical": critical, "Value": base64.b64encode(raw).decode()}
        )
        reader = _READERS.get(oid)
        if reader is not None:
            fields |= reader(parse(raw))
        elif critical:
            unhandled.append(list(oid))
        if oid == _NAME_CONSTRAINTS:
            fields["PermittedDNSDomainsCritical"] = critical
    return fields | {"Extensions": shown or None, "UnhandledCriticalExtensions": unhandled or None}


def _key_usage(value: Element) -> _Fields:
    bits = value.bits()
    return {"KeyUsage": sum(1 << index for index in range(9) if _bit(bits, index))}


def _bit(bits: bytes, index: int) -> bool:
    return index // 8 < len(bits) and bool(bits[index // 8] >> (7 - index % 8) & 1)


def _basic_constraints(value: Element) -> _Fields:
    parts = value.children(SEQUENCE)
    authority = any(any(part.content) for part in parts if part.tag == BOOLEAN)
    lengths = [bounded(part.integer()) for part in parts if part.tag == INTEGER]
    length = lengths[0] if lengths else -1
    return {
        "BasicConstraintsValid": True,
        "IsCA": authority,
        "MaxPathLen": length,
        "MaxPathLenZero": length == 0,
    }


def _subject_key(value: Element) -> _Fields:
    return {"SubjectKeyId": base64.b64encode(value.expect(OCTET_STRING)).decode()}


def _authority_key(value: Element) -> _Fields:
    keys = [part.content for part in value.children(SEQUENCE) if part.tag == _KEY_ID]
    return {"AuthorityKeyId": base64.b64encode(keys[0]).decode() if keys else None}


def _alternative_names(value: Element) -> _Fields:
    names = value.children(SEQUENCE)
    found = {
        "DNSNames": _texts(names, _DNS),
        "EmailAddresses": _texts(names, _EMAIL),
        "IPAddresses": [str(ipaddress.ip_address(one.content)) for one in names if one.tag == _IP],
        "URIs": [_uri(text) for text in _texts(names, _URI)],
    }
    return {field: some or None for field, some in found.items()}


def _purposes(value: Element) -> _Fields:
    oids = [one.oid() for one in value.children(SEQUENCE)]
    known = [_PURPOSES[oid] for oid in oids if oid in _PURPOSES]
    unknown = [list(oid) for oid in oids if oid not in _PURPOSES]
    return {"ExtKeyUsage": known or None, "UnknownExtKeyUsage": unknown or None}


def _authority_access(value: Element) -> _Fields:
    pairs = [one.children(SEQUENCE) for one in value.children(SEQUENCE)]
    found = {
        field: [
            place.content.decode("ascii")
            for kind, place in pairs
            if kind.oid() == oid and place.tag == _URI
        ]
        for field, oid in (("OCSPServer", _OCSP), ("IssuingCertificateURL", _ISSUERS))
    }
    return {field: some or None for field, some in found.items()}


def _revocation_lists(value: Element) -> _Fields:
    points = [
        text
        for point in value.children(SEQUENCE)
        for name in point.children(SEQUENCE)
        if name.tag == _POINT_NAME
        for full in name.children()
        if full.tag == _FULL_NAME
        for text in _texts(full.children(), _URI)
    ]
    return {"CRLDistributionPoints": points or None}


def _policies(value: Element) -> _Fields:
    oids = [one.children(SEQUENCE)[0].oid() for one in value.children(SEQUENCE)]
    return {
        "PolicyIdentifiers": [list(oid) for oid in oids] or None,
        "Policies": [".".join(map(str, oid)) for oid in oids] or None,
    }


def _name_constraints(value: Element) -> _Fields:
    fields: _Fields = {}
    for part in value.children(SEQUENCE):
        word = "Permitted" if part.tag == 0xA0 else "Excluded"  # noqa: PLR2004 - the first of two
        bases = [one.children(SEQUENCE)[0] for one in part.children()]
        found = {
            "DNSDomains": _texts(bases, _DNS),
            "EmailAddresses": _texts(bases, _EMAIL),
            "URIDomains": _texts(bases, _URI),
            "IPRanges": [_network(one.content) for one in bases if one.tag == _IP],
        }
        fields |= {f"{word}{kind}": some or None for kind, some in found.items()}
    return fields


def _policy_constraints(value: Element) -> _Fields:
    names = {0x80: "RequireExplicitPolicy", 0x81: "InhibitPolicyMapping"}
    fields: _Fields = {}
    for part in value.children(SEQUENCE):
        if part.tag in names:
            fields |= _count(names[part.tag], int.from_bytes(part.content))
    return fields


def _any_policy(value: Element) -> _Fields:
    return _count("InhibitAnyPolicy", value.integer())


def _policy_mappings(value: Element) -> _Fields:
    pairs = [one.children(SEQUENCE) for one in value.children(SEQUENCE)]
    mappings = [
        {
            "IssuerDomainPolicy": ".".join(map(str, issuer.oid())),
            "SubjectDomainPolicy": ".".join(map(str, subject.oid())),
        }
        for issuer, subject in pairs
    ]
    return {"PolicyMappings": mappings or None}


def _count(field: str, number: int) -> _Fields:
    return {field: bounded(number), f"{field}Zero": number == 0}


def _texts(names: list[Element], tag: int) -> list[str]:
    return [one.content.decode("ascii") for one in names if one.tag == tag]


def _network(raw: bytes) -> _Fields:
    half = len(raw) // 2
    return {
        "IP": str(ipaddress.ip_address(raw[:half])),
        "Mask": base64.b64encode(raw[half:]).decode(),
    }


def _uri(text: str) -> _Fields:
    parts = urlsplit(text)
    return {
        "Scheme": parts.scheme,
        "Opaque": "" if parts.netloc or parts.path.startswith("/") else parts.path,
        "User": None,
        "Host": parts.netloc.rpartition("@")[2],
        "Path": parts.path if parts.netloc or parts.path.startswith("/") else "",
        "RawPath": "",
        "OmitHost": False,
        "ForceQuery": False,
        "RawQuery": parts.query,
        "Fragment": parts.fragment,
        "RawFragment": "",
    }


_READERS: Mapping[tuple[int, ...], Callable[[Element], _Fields]] = {
    (2, 5, 29, 14): _subject_key,
    (2, 5, 29, 15): _key_usage,
    (2, 5, 29, 17): _alternative_names,
    (2, 5, 29, 19): _basic_constraints,
    _NAME_CONSTRAINTS: _name_constraints,
    (2, 5, 29, 31): _revocation_lists,
    (2, 5, 29, 32): _policies,
    (2, 5, 29, 33): _policy_mappings,
    (2, 5, 29, 35): _authority_key,
    (2, 5, 29, 36): _policy_constraints,
    (2, 5, 29, 37): _purposes,
    (2, 5, 29, 54): _any_policy,
    (1, 3, 6, 1, 5, 5, 7, 1, 1): _authority_access,
}
