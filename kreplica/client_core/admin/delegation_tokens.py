"""Delegation tokens (KIP-48, KIP-373): temporary credentials with the permissions of a user."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kreplica.client_core.admin.request_routing import RequestRouter, require_version
from kreplica.client_core.cluster import BrokerConnection
from kreplica.client_core.errors import check
from kreplica.security.tokens.token import client_config
from kreplica.wire.messages import (
    CREATE_DELEGATION_TOKEN,
    DESCRIBE_DELEGATION_TOKEN,
    EXPIRE_DELEGATION_TOKEN,
    RENEW_DELEGATION_TOKEN,
)

BROKERS_PERIOD = -1
"""Value that requests the broker's default for a period."""

_OWNERS_FROM = 3
"""First version with an owner in CreateDelegationToken requests and a requester in responses (KIP-373)."""


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A token and its secret.

    :param token_id: user name of clients that authenticate with the token.
    :param owner: principal that these clients act as, such as ``User:alice``.
    :param requester: principal that created the token; the owner if the broker does not report it.
    :param renewers: other principals that may renew and expire the token.
    :param issued_ms: creation time in milliseconds since 1970.
    :param expires_ms: time after which the token is invalid unless it is renewed before then.
    :param max_ms: time after which the token cannot be renewed.
    :param hmac: the secret.
    """

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int
    hmac: bytes = field(repr=False)

    @property
    def password(self) -> str:
        """Password of clients that authenticate with the token."""
        return b64encode(self.hmac).decode()

    def client_config(self, mechanism: str = "SCRAM-SHA-512") -> dict[str, str]:
        """Return client settings, also valid for Java clients, for authenticating with the token."""
        return client_config(self.token_id, self.password, mechanism)


class DelegationTokens(RequestRouter):
    """Requests for delegation tokens; the client must have authenticated, but not with a token."""

    async def create_delegation_token(
        self,
        *,
        renewers: Iterable[str] = (),
        max_lifetime_ms: int | None = None,
        owner: str | None = None,
        timeout_s: float | None = None,
    ) -> DelegationToken:
        """Create a token.

        If the response is lost, the request is retried, and the first token remains valid until it expires.

        :param renewers: principals that may renew and expire the token, such as ``User:scheduler``.
        :param max_lifetime_ms: at most ``delegation.token.max.lifetime.ms``, the default.
        :param owner: principal that clients with the token act as; by default, the client's own principal.
        :raise ClientError: the request was rejected, or no broker responded.
        """
        body: dict[str, Any] = {
            "owner_principal_type": None,
            "owner_principal_name": None,
            "renewers": [_principal_row(each) for each in renewers],
            "max_lifetime_ms": BROKERS_PERIOD if max_lifetime_ms is None else max_lifetime_ms,
        }
        if owner is not None:
            body |= {f"owner_{name}": value for name, value in _principal_row(owner).items()}

        async def send(connection: BrokerConnection) -> dict[str, Any]:
            if owner is not None:
                require_version(connection, CREATE_DELEGATION_TOKEN, _OWNERS_FROM, "owners (KIP-373)")
            return await self._cluster.request(connection, CREATE_DELEGATION_TOKEN, body)

        async def once() -> DelegationToken:
            response = await self._cluster.at_any(send)
            check(response, "delegation token")
            own, requester = _principal(response), _principal(response, "token_requester_principal")
            return DelegationToken(
                response["token_id"],
                own,
                requester or own,
                tuple(f"{row['principal_type']}:{row['principal_name']}" for row in body["renewers"]),
                response["issue_timestamp_ms"],
                response["expiry_timestamp_ms"],
                response["max_timestamp_ms"],
                bytes(response["hmac"]),
            )

        return await self._cluster.retrying(once, timeout_s)

    async def renew_delegation_token(
        self, hmac: bytes, period_ms: int | None = None, *, timeout_s: float | None = None
    ) -> int:
        """Extend the validity of a token; the client must be its owner or one of its renewers.

        :param period_ms: time from now; by default, ``delegation.token.expiry.time.ms``.
        :return: the new expiry time, in milliseconds since 1970.
        :raise ClientError: the request was rejected, or no broker responded.
        """
        body = {"hmac": hmac, "renew_period_ms": BROKERS_PERIOD if period_ms is None else period_ms}

        async def once() -> int:
            response = await self._cluster.request_any(RENEW_DELEGATION_TOKEN, body)
            check(response, "renewal of a delegation token")
            return int(response["expiry_timestamp_ms"])

        return await self._cluster.retrying(once, timeout_s)

    async def expire_delegation_token(
        self, hmac: bytes, period_ms: int | None = None, *, timeout_s: float | None = None
    ) -> int:
        """Delete a token or set its expiry time.

        :param period_ms: time from now; None deletes the token.
        :return: the new expiry time, in milliseconds since 1970.
        :raise ClientError: the request was rejected, or no broker responded.
        """
        body = {"hmac": hmac, "expiry_time_period_ms": BROKERS_PERIOD if period_ms is None else period_ms}

        async def once() -> int:
            response = await self._cluster.request_any(EXPIRE_DELEGATION_TOKEN, body)
            check(response, "expiry of a delegation token")
            return int(response["expiry_timestamp_ms"])

        return await self._cluster.retrying(once, timeout_s)

    async def describe_delegation_tokens(
        self, owners: Iterable[str] | None = None, *, timeout_s: float | None = None
    ) -> Sequence[DelegationToken]:
        """Return the tokens that the client is allowed to see, with their secrets.

        :param owners: principals; only tokens that they own or may renew are returned.  None returns all tokens.
        :raise ClientError: the request was rejected, or no broker responded.
        """
        body = {"owners": None if owners is None else [_principal_row(each) for each in owners]}

        async def once() -> Sequence[DelegationToken]:
            response = await self._cluster.request_any(DESCRIBE_DELEGATION_TOKEN, body)
            check(response, "delegation tokens")
            return [_parse_token(row) for row in response["tokens"]]

        return await self._cluster.retrying(once, timeout_s)


def _parse_token(row: dict[str, Any]) -> DelegationToken:
    owner = _principal(row)
    return DelegationToken(
        row["token_id"],
        owner,
        _principal(row, "token_requester_principal") or owner,
        tuple(_principal(each) for each in row["renewers"]),
        row["issue_timestamp"],
        row["expiry_timestamp"],
        row["max_timestamp"],
        bytes(row["hmac"]),
    )


def _principal(row: dict[str, Any], name: str = "principal") -> str:
    """Return the principal in a response row; empty if this version of the response does not contain it."""
    return f"{row[f'{name}_type']}:{row[f'{name}_name']}" if row.get(f"{name}_name") else ""


def _principal_row(principal: str) -> dict[str, str]:
    kind, colon, name = principal.partition(":")
    if not colon:
        raise ValueError(f"{principal!r} is not a principal such as User:alice")
    return {"principal_type": kind, "principal_name": name}
