"""Authentication of a client with SASL (KIP-43, KIP-152)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from kreplica.client_core.errors import AuthenticationFailed, ConnectionFailed
from kreplica.errors import AuthenticationError, ErrorCode
from kreplica.security.sasl.credentials import CredentialsUnavailable, SaslCredentials
from kreplica.security.sasl.exchange import ClientExchange
from kreplica.wire.messages import SASL_AUTHENTICATE, SASL_HANDSHAKE, Api

_VERSION = 1
"""Version of SaslHandshake and SaslAuthenticate; brokers have supported it since Kafka 2.2."""

RENEWAL_SHARE = 0.85
"""Fraction of a session's lifetime after which the client re-authenticates."""


async def authenticate(
    request: Callable[[Api, int, dict[str, Any]], Awaitable[dict[str, Any]]], credentials: SaslCredentials, peer: str
) -> int:
    """Authenticate a new connection.

    :param request: sends a request and returns its response.
    :param peer: the broker's address, for error messages.
    :return: time in milliseconds until the client must re-authenticate (KIP-368); 0 if it need not.
    :raise ConnectionFailed: the credentials could not be obtained but may be available later.
    :raise AuthenticationFailed: the broker rejected the client, or could not prove that it knows the password.
    """
    mechanism = credentials.mechanism
    response = await request(SASL_HANDSHAKE, _VERSION, {"mechanism": mechanism})
    if response["error_code"]:
        code = ErrorCode.of(response["error_code"]).name
        known = ", ".join(response["mechanisms"]) or "none"
        raise AuthenticationFailed(f"{peer}: {code} for {mechanism}; the broker's mechanisms: {known}")
    exchange = await _new_exchange(credentials, peer)
    token = b""
    while True:
        try:
            token = exchange.step(token)
        except AuthenticationError as error:
            raise AuthenticationFailed(f"{peer}: {error}") from error
        if exchange.is_complete and not token:
            return int(response.get("session_lifetime_ms", 0))
        response = await request(SASL_AUTHENTICATE, _VERSION, {"auth_bytes": token})
        if response["error_code"]:
            code = ErrorCode.of(response["error_code"]).name
            text = response["error_message"] or code
            raise AuthenticationFailed(f"{peer}: user {credentials.user!r} is rejected: {text}")
        token = bytes(response["auth_bytes"])
        if exchange.is_complete:
            return int(response.get("session_lifetime_ms", 0))


async def _new_exchange(credentials: SaslCredentials, peer: str) -> ClientExchange:
    try:
        return await credentials.new_exchange()
    except CredentialsUnavailable as error:
        kind = ConnectionFailed if error.retriable else AuthenticationFailed
        raise kind(f"{peer}: {error}") from error
