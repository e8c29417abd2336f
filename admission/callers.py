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
        file: Holds the CA in PEM; None: nothing is asked.
        names: Common names or DNS names of which the certificate has one; empty: any.
    """

    file: Path | None = None
    names: frozenset[str] = frozenset()
    _bundle: str = field(default="", repr=False)

    @classmethod
    def of(cls, settings: AdmissionSettings) -> Self:
        """Return what the settings say."""
        file = Path(settings.client_ca_file) if settings.client_ca_file else None
        names = (name.strip() for name in settings.client_names.split(","))
        return cls(file=file, names=frozenset(names) - {""})

    @property
    def authenticated(self) -> bool:
        """Return whether callers show a certificate, and are believed."""
        return self.file is not None

    def reload(self) -> bool:
        """Read the file; tell whether it holds another CA than before.

        Raises:
            InvalidSetting: It cannot be read or holds no certificate; the CA before it counts on.
        """
        if self.file is None:
            return False
        try:
            found = x509.load_pem_x509_certificates(self.file.read_bytes())
        except (OSError, ValueError) as error:
            reason = (error.strerror or "") if isinstance(error, OSError) else str(error)
            msg = (
                f"--client-ca-file {self.file}: {reason}; write there, in PEM, the certificate of"
                " the CA that signed the API server's client certificate"
            )
            raise InvalidSetting(msg) from error
        pem = (item.public_bytes(serialization.Encoding.PEM).decode() for item in found)
        before, self._bundle = self._bundle, "".join(pem)
        return before != self._bundle

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
        if self.file is None:
            return None
        if not certificate:
            return 401, (
                "no client certificate was shown, and --client-ca-file asks for one: give the API"
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
