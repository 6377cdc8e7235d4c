"""Time until the certificates of listeners expire.  Imports no OpenSSL, so that brokers without TLS do not load it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography import x509

DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class CertificateExpiry:
    """The certificate in a listener's chain that expires first.

    :param subject: its distinguished name.
    :param expires_at_ms: milliseconds since 1970.
    :param days: remaining days; negative if it has expired.
    """

    listener: str
    subject: str
    expires_at_ms: int
    days: float

    @property
    def text(self) -> str:
        """A sentence that says when the certificate expires."""
        days = int(abs(self.days))
        count = {0: "less than a day", 1: "1 day"}.get(days, f"{days} days")
        when = f"expires in {count}" if self.days >= 0 else f"expired {count} ago"
        return f"The certificate {self.subject} of the listener {self.listener} {when}."


def expiry_of(listener: str, certificates: Sequence[x509.Certificate], now_ms: int) -> CertificateExpiry:
    """Return the certificate in a chain that expires first.

    :param certificates: the chain; not empty.
    """
    from kreplica.security.tls.distinguished_names import rfc2253

    first = min(certificates, key=lambda each: each.not_valid_after_utc)
    at_ms = round(first.not_valid_after_utc.timestamp() * 1000)
    return CertificateExpiry(listener, rfc2253(first.subject), at_ms, (at_ms - now_ms) / DAY_MS)
