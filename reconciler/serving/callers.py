"""Who may call the webhooks: where a CA is configured, whoever has a certificate of it.

The API server shows one when its AdmissionConfiguration says so. Without a CA whoever reaches the
port is believed, because the API server has no other way to say who it is.
"""

import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from reconciler.config import AdmissionSettings
from reconciler.errors import InvalidSetting


@dataclass(slots=True, kw_only=True)
class Callers:
    """What is asked of a caller.

    Attributes:
        files: Hold the CAs in PEM; none: nothing is asked.
        flag: That names them, for people.
        names: Common names or DNS names of which the certificate has one; empty: any.
    """

    files: tuple[Path, ...] = ()
    flag: str = "--client-ca-file"
    names: frozenset[str] = frozenset()
    _bundle: str = field(default="", repr=False)

    @classmethod
    def of(cls, settings: AdmissionSettings) -> Self:
        """Return what the settings say."""
        files = (Path(settings.client_ca_file),) if settings.client_ca_file else ()
        names = (name.strip() for name in settings.client_names.split(","))
        return cls(files=files, names=frozenset(names) - {""})

    @property
    def authenticated(self) -> bool:
        """Return whether callers show a certificate, and are believed."""
        return bool(self.files)

    def reload(self) -> bool:
        """Read the files; tell whether they hold other CAs than before.

        Raises:
            InvalidSetting: One cannot be read or holds no certificate; those before it count on.
        """
        before, found = self._bundle, "".join(self._read(file) for file in self.files)
        self._bundle = found
        return before != found

    def _read(self, file: Path) -> str:
        try:
            found = x509.load_pem_x509_certificates(file.read_bytes())
        except (OSError, ValueError) as error:
            reason = (error.strerror or "") if isinstance(error, OSError) else str(error)
            msg = (
                f"{self.flag} {file}: {reason}; write there, in PEM, the certificate of"
                " the CA that signed the API server's client certificate"
            )
            raise InvalidSetting(msg) from error
        pem = (item.public_bytes(serialization.Encoding.PEM).decode() for item in found)
        return "".join(pem)

    def demand(self, context: ssl.SSLContext) -> None:
        """Have a new TLS context ask callers for a certificate.

        Who has none gets through the handshake, and then an answer that says what is missing;
        one that the CA did not sign, or that has ended, ends the handshake.
        """
        if self._bundle:
            context.verify_mode = ssl.CERT_OPTIONAL
            context.load_verify_locations(cadata=self._bundle)

    def refusal(self, certificate: Mapping[str, Any] | None) -> tuple[int, str] | None:
        """Return status and text for a caller that is refused, None for one that is not.

        Args:
            certificate: Its own as `ssl` describes one that was verified, None without one.
        """
        if not self.files:
            return None
        if not certificate:
            return 401, (
                f"no client certificate was shown, and {self.flag} asks for one: give the API"
                " server one by its AdmissionConfiguration"
                " (docs/how-to/ask-the-caller-for-a-certificate.md)"
            )
        names = sorted(set(_names(certificate)))
        if self.names and self.names.isdisjoint(names):
            return 403, (
                f"the client certificate is for {', '.join(names) or 'nobody'}, which is not among"
                " --client-names"
            )
        return None


def _names(certificate: Mapping[str, Any]) -> Iterable[str]:
    for part in certificate.get("subject", ()):
        for key, value in part:
            if key == "commonName":
                yield str(value)
    for key, value in certificate.get("subjectAltName", ()):
        if key == "DNS":
            yield str(value)
