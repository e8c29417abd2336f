"""Reads a kubeconfig for an HTTP client."""

import base64
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Address, trust and identity of one user at one API server."""

    server: str
    trust: ssl.SSLContext
    headers: dict[str, str]


def read(path: Path) -> Access:
    """Return the access of the current context, with a token or a client certificate."""
    config = yaml.safe_load(path.read_text())
    context = _named(config["contexts"], config["current-context"])["context"]
    cluster = _named(config["clusters"], context["cluster"])["cluster"]
    user = _named(config["users"], context["user"])["user"]
    trust = ssl.create_default_context(
        cadata=_text(cluster, "certificate-authority", path.parent) or None
    )
    certificate = _text(user, "client-certificate", path.parent)
    if certificate:
        # OpenSSL loads client certificates only from files.
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as pair:
            pair.write(f"{certificate}\n{_text(user, 'client-key', path.parent)}")
            pair.flush()
            trust.load_cert_chain(pair.name)
    token = user.get("token")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return Access(server=cluster["server"], trust=trust, headers=headers)


def _named(entries: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(entry for entry in entries if entry["name"] == name)


def _text(entry: dict[str, Any], key: str, folder: Path) -> str:
    if f"{key}-data" in entry:
        return base64.b64decode(entry[f"{key}-data"]).decode()
    if key in entry:
        return folder.joinpath(str(entry[key])).read_text()
    return ""
