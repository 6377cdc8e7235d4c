"""Who may use the admin API: whoever is on this machine, and whoever has the token.

A browser on this machine is not to be trusted: any page that it shows can send requests here.  So writes come from our
own pages or from programs (``Origin``), and the ``Host`` that is asked for must be one of ours: a page's own name that
was made to lead here (DNS rebinding) is not.
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
"""What needs no token: whether the process is well, and the dashboard's own files, which ask for the token themselves.

A browser cannot send a token with the first page that it asks for.
"""

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
READS = (b"GET", b"HEAD")

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Of every answer: only what comes from here is run, shown or asked, and no other page can show it in a frame."""


@dataclass(frozen=True, slots=True)
class Access:
    """:param hosts: by which this listener may be asked for, in lower case, without ports; None where the name that
        others have for it is not known (all interfaces): then the token is what protects it.
    :param token: that a caller must have; None where everybody may.
    """

    hosts: Collection[str] | None = LOOPBACK_NAMES
    token: bytes | None = None

    def check(self, request: Request) -> None:
        """Set the headers that every answer has, and see who asks.

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
                f"this is not {host[:200] or 'a host without a name'}",
                what_to_do=f"Ask for it as {' or '.join(self.hosts)}.",
            )

    def _check_origin(self, request: Request) -> None:
        origin = request.getHeader("origin")
        # Without the scheme: whoever ends TLS before us leaves the name as it was.
        if origin is not None and _place_of(origin) != (request.getHeader("host") or "").lower():
            raise Problem(
                403, "FORBIDDEN", f"pages of {origin[:200]!r} may not write here", what_to_do="Use our own pages."
            )
        if request.getHeader("sec-fetch-site") not in (None, "same-origin", "none"):
            raise Problem(403, "FORBIDDEN", "other sites' pages may not write here", what_to_do="Use our own pages.")

    def _check_token(self, request: Request, token: bytes) -> None:
        scheme, _, given = (request.getHeader("authorization") or "").partition(" ")
        if scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), token):
            return
        request.setHeader(b"www-authenticate", b'Bearer realm="kreplica"')
        raise Problem(
            401,
            "UNAUTHORIZED",
            "the token is missing" if not given else "the token is another",
            what_to_do="Send Authorization: Bearer TOKEN, with what the file of kreplica.admin.token.file holds.",
        )


def _is_open(path: str) -> bool:
    return path in OPEN_PATHS or path.startswith(OPEN_PREFIXES)


def _place_of(origin: str) -> str | None:
    """An origin's host, with its port where that is not the scheme's own; None where it is none (``null``)."""
    try:
        return urlsplit(origin.lower()).netloc or None
    except ValueError:
        return None


def _name_of(host: str) -> str:
    """A ``Host`` header without its port, in lower case."""
    name, colon, port = host.strip().lower().rpartition(":")
    if colon and port.isdigit():
        host = name
    return host.strip().lower().strip("[]")
