"""URLs as Go's net/url parses and writes them."""

import re
from typing import Any, Final
from urllib.parse import quote

from reconciler.languages.gotemplate.signature import MAP, STRING, Failure, Family, family, plain
from reconciler.languages.gotemplate.values import decode, encode, kind

_IN_HOST: Final = "!$&'()*+,;=:[]<>\""
_SAFE: Final = {
    "path": "$&+,/:;=@",
    "host": _IN_HOST,
    "user": "$&+,;=",
    "fragment": "$&+,/:;=?@!()*",
}
"""The characters that are not escaped, beside letters, digits and ``-_.~``."""
_CONTROLS: Final = re.compile("[\x00-\x1f\x7f]")
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_NO_SCHEME: Final = re.compile(r":")
_PORT: Final = re.compile(r"(?::[0-9]*)?")
_USER: Final = re.compile(r"[A-Za-z0-9._:~!$&'()*+,;=%@-]*")
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9a-fA-F]{2})")
_HOST_ESCAPE: Final = re.compile(r"%(?!25)[0-7][0-9a-fA-F]")
_ESCAPE: Final = re.compile(rb"%([0-9a-fA-F]{2})")
_UNREADABLE: Final = "a URL cannot be read"


def _unescaped(text: str) -> str:
    if _BAD_ESCAPE.search(text):
        raise Failure(_UNREADABLE)
    return decode(_ESCAPE.sub(lambda found: bytes([int(found[1], 16)]), encode(text)))


def _unescaped_host(host: str) -> str:
    if _HOST_ESCAPE.search(host):
        raise Failure(_UNREADABLE)
    bare = _ESCAPE.sub(b"", encode(host))
    if any(byte < 128 and not _stands_in_host(chr(byte)) for byte in bare):  # noqa: PLR2004
        raise Failure(_UNREADABLE)
    return _unescaped(host)


def _stands_in_host(character: str) -> bool:
    return character.isalnum() or character in "-_.~%" or character in _IN_HOST


def _escaped(text: str, part: str) -> str:
    return quote(encode(text), safe=_SAFE[part] + "~")


def _parse(text: str) -> dict[str, Any]:
    text, _, fragment = text.partition("#")
    if _CONTROLS.search(text) or _NO_SCHEME.match(text):
        raise Failure(_UNREADABLE)
    found = _SCHEME.match(text)
    scheme = found[1].lower() if found else ""
    rest = text[found.end() :] if found else text
    rest, _, query = rest.partition("?")
    user = host = opaque = ""
    if not rest.startswith("/"):
        if scheme:
            opaque, rest = rest, ""
        elif ":" in rest.partition("/")[0]:
            raise Failure(_UNREADABLE)
    elif rest.startswith("//") and (scheme or not rest.startswith("///")):
        authority, slash, path = rest[2:].partition("/")
        rest = slash + path
        user, host = _authority(authority)
    return {
        "scheme": scheme,
        "host": host,
        "hostname": _hostname(host),
        "path": _unescaped(rest),
        "query": query,
        "opaque": opaque,
        "fragment": _unescaped(fragment),
        "userinfo": user,
    }


def _authority(authority: str) -> tuple[str, str]:
    user, at, host = authority.rpartition("@")
    host = _host(host)
    if not at:
        return "", host
    if not _USER.fullmatch(user):
        raise Failure(_UNREADABLE)
    name, colon, password = user.partition(":")
    name, password = (_escaped(_unescaped(part), "user") for part in (name, password))
    return name + colon + password, host


def _host(host: str) -> str:
    if host.startswith("["):
        closing = host.rfind("]")
        if closing < 0:
            raise Failure(_UNREADABLE)
        inner, port = host[1:closing], host[closing + 1 :]
        address, zone_mark, zone = inner.partition("%25")
        inner = _unescaped_host(address) + _unescaped(zone_mark + zone)
        if not _PORT.fullmatch(port):
            raise Failure(_UNREADABLE)
        return f"[{inner}]{port}"
    colon = host.rfind(":")
    if colon >= 0 and not _PORT.fullmatch(host[colon:]):
        raise Failure(_UNREADABLE)
    return _unescaped_host(host)


def _hostname(host: str) -> str:
    colon = host.rfind(":")
    if colon >= 0 and _PORT.fullmatch(host[colon:]):
        host = host[:colon]
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def _join(parts: dict[str, Any]) -> str:
    scheme, host, path, query, opaque, fragment, user = (
        _part(parts, name)
        for name in ("scheme", "host", "path", "query", "opaque", "fragment", "userinfo")
    )
    if user:
        user = _parse(f"proto://{user}@host")["userinfo"]  # the original parses it again
    text = f"{scheme}:" if scheme else ""
    text += opaque or _located(text, user, host, path)
    text += f"?{query}" if query else ""
    return text + (f"#{_escaped(fragment, 'fragment')}" if fragment else "")


def _located(start: str, user: str, host: str, path: str) -> str:
    text = ""
    if start or host or user:
        text = "//" if host or path or user else ""
        text += f"{user}@" if user else ""
        text += _escaped(host, "host")
    escaped = path if path == "*" else _escaped(path, "path")
    if escaped and not escaped.startswith("/") and host:
        text += "/"
    if not start and not text and ":" in escaped.partition("/")[0]:
        text = "./"
    return text + escaped


def _part(parts: dict[str, Any], name: str) -> str:
    value = parts.get(name, "")
    if not isinstance(value, str):
        raise Failure(f"the part {name} is a string, not {kind(value)}")
    return value


FUNCTIONS: Family = family({"urlParse": plain(_parse, STRING), "urlJoin": plain(_join, MAP)})
