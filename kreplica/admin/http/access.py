"""Access rules of the admin API for all requests: checks of the host and the origin.

Browsers on this machine are not trusted, because any page can send requests to it. Writes must come from the dashboard
or from programs (checked by ``Origin``). ``Host`` must be a name of this listener, which prevents DNS rebinding.
``kreplica.admin.security`` authenticates and authorizes the caller.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from twisted.web.server import Request

from kreplica.admin.http.problems import Problem

HEALTH = "/health/"
"""Prefix of the health checks. They need no authentication, since they do not reveal the cluster's contents."""

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
READS = (b"GET", b"HEAD")

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Allows only content from this server, and forbids other pages to embed it in a frame."""


@dataclass(frozen=True, slots=True)
class Access:
    """Access rules of one listener.

    :param hosts: accepted host names in lower case, without ports; None accepts any host, if callers need a token,
        which pages that use DNS rebinding do not have.
    :param accepts_addresses: True to accept all IP addresses as well: DNS rebinding needs a name.
    """

    hosts: Collection[str] | None = LOOPBACK_NAMES
    accepts_addresses: bool = False

    def check(self, request: Request) -> None:
        """Set the headers of every response and check the host and the origin.

        :raise Problem: 403 or 421.
        """
        request.setHeader(b"content-security-policy", CONTENT_SECURITY_POLICY.encode())
        request.setHeader(b"x-content-type-options", b"nosniff")
        request.setHeader(b"referrer-policy", b"no-referrer")
        request.setHeader(b"server", b"kreplica")  # instead of Twisted's name and version
        self._check_host(request)
        if request.method not in READS:
            self._check_origin(request)

    def _check_host(self, request: Request) -> None:
        host = _name_of(request.getHeader("host") or "")
        if self.hosts is not None and host not in self.hosts and not (self.accepts_addresses and _is_address(host)):
            raise Problem(
                421,
                "MISDIRECTED_REQUEST",
                f"{host[:200]!r} is not a host name of this listener" if host else "the Host header is missing",
                what_to_do=f"Send the request to {' or '.join(self.hosts)}, or add the name to kreplica.admin.hosts.",
            )

    def _check_origin(self, request: Request) -> None:
        origin = request.getHeader("origin")
        # The scheme is ignored, because a proxy may terminate TLS.
        if origin is not None and _host_of_origin(origin) != (request.getHeader("host") or "").lower():
            raise Problem(
                403, "FORBIDDEN", f"pages from {origin[:200]!r} must not send writes", what_to_do="Use the dashboard."
            )
        if request.getHeader("sec-fetch-site") not in (None, "same-origin", "none"):
            detail = "pages from other sites must not send writes"
            raise Problem(403, "FORBIDDEN", detail, what_to_do="Use the dashboard.")


def _host_of_origin(origin: str) -> str | None:
    """Return the host of an origin, with a non-default port; None for ``null`` and malformed origins."""
    try:
        return urlsplit(origin.lower()).netloc or None
    except ValueError:
        return None


def _name_of(host: str) -> str:
    """Return a ``Host`` header without its port, in lower case."""
    name, colon, port = host.strip().lower().rpartition(":")
    if colon and port.isdigit():
        host = name
    return host.strip().lower().strip("[]")


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
