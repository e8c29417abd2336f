"""Authentication of callers: with a CA configured, by a client certificate that it signed.

The API server presents one if its AdmissionConfiguration says so. Without a CA, any caller that
reaches the port is trusted, because the API server has no other way to authenticate itself.
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
    """The requirements on a caller's certificate.

    Attributes:
        files: Files with the CAs in PEM; empty if no certificate is required.
        flag: Flag that names the files, for messages.
        names: Accepted common names and DNS names; empty for any.
        bundle: The CAs in PEM as the last `reload` read them.
    """

    files: tuple[Path, ...] = ()
    flag: str = "--client-ca-file"
    names: frozenset[str] = frozenset()
    bundle: str = field(default="", repr=False)

    @classmethod
    def of(cls, settings: AdmissionSettings) -> Self:
        """Return the requirements of the settings."""
        files = (Path(settings.client_ca_file),) if settings.client_ca_file else ()
        names = (name.strip() for name in settings.client_names.split(","))
        return cls(files=files, names=frozenset(names) - {""})

    @property
    def authenticated(self) -> bool:
        """Return whether callers have to present a certificate."""
        return bool(self.files)

    def reload(self) -> None:
        """Read the files.

        Raises:
            InvalidSetting: A file cannot be read or has no certificate; the previous CAs stay.
        """
        self.bundle = "".join(self._read(file) for file in self.files)

    def _read(self, file: Path) -> str:
        try:
            found = x509.load_pem_x509_certificates(file.read_bytes())
        except (OSError, ValueError) as error:
            known = isinstance(error, OSError) and error.strerror
            reason = known or "it has no certificate"
            raise InvalidSetting(
                f"{self.flag} {file}: {reason}; write there, in PEM, the certificate of"
                " the CA that signed the API server's client certificate"
            ) from error
        pem = (item.public_bytes(serialization.Encoding.PEM).decode() for item in found)
        return "".join(pem)

    def demand(self, context: ssl.SSLContext) -> None:
        """Configure a new TLS context to request a certificate from callers.

        A caller without one completes the handshake and then receives an error with the reason; a
        certificate that has expired or that the CA did not sign fails the handshake.
        """
        if self.bundle:
            context.verify_mode = ssl.CERT_OPTIONAL
            context.load_verify_locations(cadata=self.bundle)

    def refusal(self, certificate: Mapping[str, Any] | None) -> tuple[int, str] | None:
        """Return status and text for a caller that is refused, or None if it is accepted.

        Args:
            certificate: Verified certificate in the form of `ssl`, or None without one.
        """
        if not self.files:
            return None
        if not certificate:
            return 401, (
                f"no client certificate was presented, but {self.flag} requires one: configure"
                " one in the API server's AdmissionConfiguration"
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
