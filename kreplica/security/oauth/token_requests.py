"""Requests to a token endpoint for the client credentials grant (RFC 6749), and their responses; without I/O."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import BytesIO
from json import loads
from typing import Any
from urllib.parse import quote_plus, urlencode, urlsplit

from kreplica.security.sasl.credentials import CredentialsUnavailable

RESPONSE_BYTES_MAX = 1 << 20
"""Maximum size of a response of an authorization server."""

_FINAL = frozenset({400, 401, 402, 403, 404, 405, 406, 407, 409, 410, 411, 412, 413, 414, 415, 501, 505})
"""Status codes after which Kafka's clients do not retry."""

_TEXT_CHARACTERS_MAX = 200


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request; its headers and body may contain secrets."""

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes | None = field(default=None, repr=False)

    @property
    def place(self) -> str:
        """The URL without its query, for error messages."""
        return urlsplit(self.url)._replace(query="").geturl()

    def open_body(self) -> BytesIO:
        """Return the body as a file."""
        return BytesIO(self.body or b"")


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A response; its body may contain a secret."""

    status: int
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ClientSecret:
    """The client's credentials at the authorization server.

    :param urlencode: ``sasl.oauthbearer.header.urlencode``: URL-encode the ID and the secret, as RFC 6749 requires;
        many servers expect them unencoded.
    """

    client_id: str
    secret: str = field(repr=False)
    scope: str | None = None
    urlencode: bool = False


def token_request(url: str, client: ClientSecret) -> HttpRequest:
    """Return the HTTP request for a token."""
    values = (client.client_id, client.secret)
    user, secret = (quote_plus(value) for value in values) if client.urlencode else values
    form = {"grant_type": "client_credentials", **({"scope": client.scope} if client.scope else {})}
    headers = {
        "Authorization": "Basic " + b64encode(f"{user}:{secret}".encode()).decode(),
        "Accept": "application/json",
        "Cache-Control": "no-cache",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    return HttpRequest("POST", url, headers, urlencode(form).encode())


def parse_token_response(request: HttpRequest, response: HttpResponse) -> str:
    """Return the access token in a response.

    :raise CredentialsUnavailable: the response is an error, or contains no token. The message contains the error code
        of RFC 6749, and nothing else from the response.
    """
    document = _json(response.body)
    if response.status not in (200, 201):
        is_final = response.status in _FINAL
        raise CredentialsUnavailable(
            f"{request.place} rejected the token request with status {response.status}{_error(document)}",
            retriable=not is_final,
        )
    token = document.get("access_token")
    if not isinstance(token, str) or not token.strip():
        raise CredentialsUnavailable(f"the response of {request.place} contains no access_token")
    return token.strip()


def _json(body: bytes) -> Mapping[str, Any]:
    try:
        document = loads(body)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _error(document: Mapping[str, Any]) -> str:
    code = document.get("error")
    if not isinstance(code, str):
        return ""
    shown = code[:_TEXT_CHARACTERS_MAX]
    return f" ({shown})" if shown.isascii() and shown.isprintable() else ""
