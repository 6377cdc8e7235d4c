"""Access rules of the admin API: checks of the host, the origin and the token of a request.

Browsers on this machine are not trusted, because any page can send requests to it. Writes must come from the dashboard
or from programs (checked by ``Origin``). ``Host`` must be a name of this listener, which prevents DNS rebinding.
"""

from __future__ import annotations

import hmac
from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import urlsplit

from twisted.web.server import Request

from kreplica.admin.http.problems import Problem

HEALTH = "/health/"
"""Prefix of the health checks. They need no token, since they do not reveal the cluster's contents."""

OPEN_PATHS = ("/",)
OPEN_PREFIXES = (HEALTH, "/dashboard/")
"""Path prefixes that need no token: health checks, and the dashboard's files, which ask for the token themselves.

A browser cannot send a token with the first request for a page.
"""

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
READS = (b"GET", b"HEAD")

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Allows only content of this server, and forbids other pages to embed it in a frame."""


@dataclass(frozen=True, slots=True)
class Access:
    """Access rules of one listener.

    :param hosts: accepted host names in lower case, without ports; None to accept any, for a listener on all
        interfaces, which the token protects.
    :param token: the bearer token that callers must send; None if no token is required.
    """

    hosts: Collection[str] | None = LOOPBACK_NAMES
    token: bytes | None = None

    def check(self, request: Request) -> None:
        """Set the headers of every response and check the caller.

        :raise Problem: 401, 403 or 421.
        """
        request.setHeader(b"content-security-policy", CONTENT_SECURITY_POLICY.encode())
        request.setHeader(b"x-content-type-options", b"nosniff")
        request.setHeader(b"referrer-policy", b"no-referrer")
        self._check_host(request)
        if request.method not in READS:
            self._check_origin(request)
        if self.token is not None and not _is_open(request.path.decode(errors="replace")):
            self._check_token(request, self.token)

    def _check_host(self, request: Request) -> None:
        host = _name_of(request.getHeader("host") or "")
        if self.hosts is not None and host not in self.hosts:
            raise Problem(
                421,
                "MISDIRECTED_REQUEST",
                f"{host[:200]!r} is not a host name of this listener" if host else "the Host header is missing",
                what_to_do=f"Send the request to {' or '.join(self.hosts)}.",
            )

    def _check_origin(self, request: Request) -> None:
        origin = request.getHeader("origin")
        # The scheme is ignored, because a proxy may terminate TLS.
        if origin is not None and _host_of_origin(origin) != (request.getHeader("host") or "").lower():
            raise Problem(
                403, "FORBIDDEN", f"pages of {origin[:200]!r} must not write here", what_to_do="Use the dashboard."
            )
        if request.getHeader("sec-fetch-site") not in (None, "same-origin", "none"):
            raise Problem(403, "FORBIDDEN", "pages of other sites must not write here", what_to_do="Use the dashboard.")

    def _check_token(self, request: Request, token: bytes) -> None:
        scheme, _, given = (request.getHeader("authorization") or "").partition(" ")
        if scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), token):
            return
        request.setHeader(b"www-authenticate", b'Bearer realm="kreplica"')
        raise Problem(
            401,
            "UNAUTHORIZED",
            "the token is missing" if not given else "the token is wrong",
            what_to_do="Send Authorization: Bearer TOKEN with the content of the file in kreplica.admin.token.file.",
        )


def _is_open(path: str) -> bool:
    return path in OPEN_PATHS or path.startswith(OPEN_PREFIXES)


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
