"""Protects one listener of the admin API: authenticates callers, and authorizes their calls.

Callers authenticate with the token, which makes them super users, with the password of a SCRAM user, with a client
certificate, with a bearer token of an authorization server, or with a session of the dashboard.
"""

from __future__ import annotations

import hmac
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any
from urllib.parse import unquote

from twisted.logger import Logger
from twisted.web.server import Request

from kreplica.admin.http.access import HEALTH, READS
from kreplica.admin.http.api import Call, Route
from kreplica.admin.http.callers import Authorizer, Caller
from kreplica.admin.http.openapi import BASIC, BEARER, CERTIFICATE, SESSION, TOKEN
from kreplica.admin.http.problems import Problem
from kreplica.admin.peers.forwarding import FORWARDED, PRINCIPAL, PRINCIPAL_HOST
from kreplica.admin.security.failures import FailureLimit
from kreplica.admin.security.passwords import PasswordVerifier
from kreplica.admin.security.route_rules import PUBLIC_ROUTES, authorize
from kreplica.admin.security.sessions import Login, Sessions
from kreplica.interfaces.authorization import ANONYMOUS
from kreplica.security.sasl.bearer_token import BearerToken, InvalidToken, TokenValidator

log = Logger()

TOKEN_USER = "User:admin-token"
"""User name, in responses and logs, of callers that have the token."""

DASHBOARD = b"x-kreplica-dashboard"
"""Header required for writes with a session: pages of other sites cannot send it."""

LOGIN = ("POST", "/v1/session")
_OPEN_PATHS = ("/",)
_OPEN_PREFIXES = (HEALTH, "/dashboard/")

CertificateUser = Callable[[Any], str | None]
"""Returns the user of a client certificate; None if it has none."""


class Guard:
    """Authenticates and authorizes the callers of one listener.

    :param token: makes a caller a super user; None if no caller needs to authenticate.
    :param limit: failed authentications by address.
    :param passwords: None without authentication by password.
    :param user_of_certificate: None without authentication by certificate.
    :param bearer_tokens: validates tokens of an authorization server; None if only ``token`` is valid.
    :param sessions: None without authentication.
    :param authorizer: None if each authenticated caller may do everything.
    """

    def __init__(
        self,
        *,
        token: bytes | None = None,
        limit: FailureLimit | None = None,
        passwords: PasswordVerifier | None = None,
        user_of_certificate: CertificateUser | None = None,
        bearer_tokens: TokenValidator | None = None,
        sessions: Sessions | None = None,
        authorizer: Authorizer | None = None,
    ) -> None:
        self._token = token
        self._limit = limit
        self._passwords = passwords
        self._user_of_certificate = user_of_certificate
        self._bearer_tokens = bearer_tokens
        self.sessions = sessions
        self._authorizer = authorizer

    @property
    def schemes(self) -> Sequence[str]:
        """Names of the OpenAPI security schemes; empty if callers need not authenticate."""
        if self._token is None:
            return ()
        enabled = (
            (TOKEN, True),
            (BASIC, self._passwords),
            (CERTIFICATE, self._user_of_certificate),
            (BEARER, self._bearer_tokens),
            (SESSION, self.sessions),
        )
        return [name for name, used in enabled if used]

    @property
    def public(self) -> Collection[str]:
        """Names of the routes that need no authentication."""
        return PUBLIC_ROUTES

    def authorize(self, route: Route, call: Call) -> None:
        """Check that the caller may use a route, and that the caller's session has not ended.

        :raise Problem: 401 or 403.
        """
        caller = call.caller
        if caller.session is not None and (self.sessions is None or self.sessions.get(caller.session) is None):
            raise Problem(401, "UNAUTHORIZED", "the session has ended", what_to_do="Log in again.")
        authorize(route, call)

    # --- authentication ----------------------------------------------------------------------------------------------

    def authenticate(self, request: Request) -> Caller | Awaitable[Caller]:
        """Return the caller of a request.

        :raise Problem: 401; 403 for a write with a session but without the header of the dashboard; 429 after too many
            failures.
        """
        host = getattr(request.getClientAddress(), "host", "")
        if self._token is None:
            return Caller(ANONYMOUS, host, authorizer=self._authorizer)
        if _is_open(request):
            return Caller(ANONYMOUS, host, authorizer=self._authorizer)
        scheme, _, credentials = (request.getHeader("authorization") or "").partition(" ")
        if scheme:
            return self._by_header(request, host, scheme.lower(), credentials.strip())
        caller = self._by_session(request, host) or self._by_certificate(request, host)
        if caller is None:
            raise self._rejection(request, "the request has no credentials")
        return caller

    def _by_header(self, request: Request, host: str, scheme: str, credentials: str) -> Caller | Awaitable[Caller]:
        if scheme == "bearer" and credentials and self.is_token(credentials):
            return self._by_token(request, host)
        if scheme == "bearer" and credentials and self._bearer_tokens is not None:
            return self._by_bearer_token(request, host, credentials)
        if scheme == "basic" and self._passwords is not None:
            return self._by_password(request, host, *self._read_basic(request, credentials))
        if scheme == "bearer":
            raise self._rejection(request, "the token is wrong" if credentials else "the token is missing")
        raise self._rejection(request, "this authentication scheme is not enabled")

    def is_token(self, text: str) -> bool:
        """Return True if a text is the token."""
        return self._token is not None and hmac.compare_digest(text.encode(errors="replace"), self._token)

    async def login_of_token(self, host: str, text: str) -> Login | None:
        """Return the login with a text that is the token, or a valid bearer token; otherwise count a failure.

        A failure may be an attempt to guess the token, so failures are limited by address.

        :raise Problem: 429 after too many failures.
        """
        self._check_failures(host)
        if self.is_token(text):
            return Login(TOKEN_USER, is_super=True)
        bearer_token = None if self._bearer_tokens is None else await self._validate(self._bearer_tokens, host, text)
        if bearer_token is None:
            self._record_failure(host)
            return None
        return Login(f"User:{bearer_token.user}", ends_ms=bearer_token.expires_ms)

    async def _validate(self, validator: TokenValidator, host: str, token: str) -> BearerToken | None:
        """Return the content of a bearer token; log the reason and return None if it is invalid."""
        try:
            return await validator.validate(token)
        except InvalidToken as error:
            log.info("admin API: the token from {address} is invalid: {reason}", address=host, reason=str(error))
            return None

    def _by_token(self, request: Request, host: str) -> Caller:
        """Return a super user, or the user on whose behalf another broker sends the request."""
        user = request.getHeader(PRINCIPAL)
        if user is None or request.getHeader(FORWARDED) is None:
            return Caller(TOKEN_USER, host, is_super=True, method=TOKEN, authorizer=self._authorizer)
        host = unquote(request.getHeader(PRINCIPAL_HOST) or "")
        return Caller(unquote(user), host, method=TOKEN, authorizer=self._authorizer)

    def _read_basic(self, request: Request, encoded: str) -> tuple[str, str]:
        try:
            user, colon, password = b64decode(encoded, validate=True).decode().partition(":")
        except (Base64Error, ValueError):
            colon = ""
        if not colon:
            raise self._rejection(request, "the user and password are not Base64 of UTF-8")
        return user, password

    def _by_password(self, request: Request, host: str, user: str, password: str) -> Caller | Awaitable[Caller]:
        passwords = self._passwords
        assert passwords is not None
        caller = Caller(f"User:{user}", host, method=BASIC, authorizer=self._authorizer)
        if passwords.is_remembered(user, password):
            return caller
        self._check_failures(host)

        async def verify() -> Caller:
            if not await self.is_password(host, user, password):
                raise self._rejection(request, "the user name or password is wrong")
            return caller

        return verify()

    async def is_password(self, host: str, user: str, password: str) -> bool:
        """Return True if the password is that of the user; failures are counted by address.

        :raise Problem: 429 after too many failures, 503 if too many passwords are being verified.
        """
        if self._passwords is None:
            return False
        self._check_failures(host)
        if await self._passwords.verify(user, password):
            return True
        self._record_failure(host)
        return False

    def _check_failures(self, host: str) -> None:
        if self._limit is not None:
            self._limit.check(host)

    def _record_failure(self, host: str) -> None:
        if self._limit is not None:
            self._limit.record(host)

    async def _by_bearer_token(self, request: Request, host: str, token: str) -> Caller:
        """Return the user of a token; failures are not limited, since a signature cannot be guessed."""
        assert self._bearer_tokens is not None
        bearer_token = await self._validate(self._bearer_tokens, host, token)
        if bearer_token is None:
            raise self._rejection(request, "the token is wrong", b', error="invalid_token"')
        return Caller(f"User:{bearer_token.user}", host, method=BEARER, authorizer=self._authorizer)

    def _by_session(self, request: Request, host: str) -> Caller | None:
        if self.sessions is None:
            return None
        session_id = request.getCookie(self.sessions.cookie.encode())
        key_and_session = self.sessions.find(session_id.decode(errors="replace")) if session_id else None
        if key_and_session is None:
            return None
        if request.method not in READS and request.getHeader(DASHBOARD) is None:
            raise Problem(
                403,
                "FORBIDDEN",
                "a write with a session requires the header X-Kreplica-Dashboard, which other sites' pages cannot send",
                what_to_do="Use the dashboard, or send credentials in the header Authorization.",
            )
        key, session = key_and_session
        return Caller(
            session.user,
            host,
            is_super=session.is_super,
            method=SESSION,
            session=key,
            authorizer=self._authorizer,
        )

    def _by_certificate(self, request: Request, host: str) -> Caller | None:
        if self._user_of_certificate is None:
            return None
        certificate_of = getattr(getattr(request.channel, "transport", None), "getPeerCertificate", None)
        certificate = certificate_of() if certificate_of is not None else None
        if certificate is None:
            return None
        user = self._user_of_certificate(certificate)
        if user is None:
            raise self._rejection(request, "no rule of ssl.principal.mapping.rules matches the client certificate")
        return Caller(f"User:{user}", host, method=CERTIFICATE, authorizer=self._authorizer)

    def _rejection(self, request: Request, detail: str, token_error: bytes = b"") -> Problem:
        """Return the problem of missing or wrong credentials, and set the header that names the valid schemes.

        :param token_error: parameters of the scheme Bearer (RFC 6750).
        """
        challenges = [b'Bearer realm="kreplica"' + token_error]
        # Otherwise a browser would show its own dialog before the dashboard's login page.
        if self._passwords is not None and request.getHeader("sec-fetch-mode") is None:
            challenges.append(b'Basic realm="kreplica", charset="UTF-8"')
        request.responseHeaders.setRawHeaders(b"www-authenticate", challenges)
        return Problem(
            401,
            "UNAUTHORIZED",
            detail,
            what_to_do=self._advice(),
            members={"accepts": [name for name in self.schemes if name != SESSION]},
        )

    def _advice(self) -> str:
        methods = ["Authorization: Bearer TOKEN with the content of the file in kreplica.admin.token.file"]
        if self._passwords is not None:
            methods.append("a user and password (HTTP basic)")
        if self._user_of_certificate is not None:
            methods.append("a client certificate")
        if self._bearer_tokens is not None:
            methods.append("Authorization: Bearer with a token of the authorization server")
        return f"Send {', or '.join(methods)}."


def _is_open(request: Request) -> bool:
    path = request.path.decode(errors="replace")
    is_login = (request.method.decode(errors="replace"), path) == LOGIN
    return is_login or path in _OPEN_PATHS or path.startswith(_OPEN_PREFIXES)
