"""CreateDelegationToken (38), RenewDelegationToken (39), ExpireDelegationToken (40) and DescribeDelegationToken (41).

Any broker handles them. The checks, and their order, are those of Apache Kafka 3.9.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kreplica.errors import ErrorCode, KafkaError
from kreplica.interfaces import Operation, Resource, ResourceType
from kreplica.interfaces.authorization import ANONYMOUS
from kreplica.runtime.slices import Steps
from kreplica.security.tokens.token import USER_TYPE, DelegationToken
from kreplica.server.authentication.sasl_session import session_of
from kreplica.server.authorization.permissions import Permissions
from kreplica.server.protocol.request import Request
from kreplica.server.protocol.responses import in_slices, respond_with_result

if TYPE_CHECKING:
    from kreplica.membership.delegation_tokens.token_store import TokenStore
    from kreplica.security.tokens.token_cache import TokenCache

Row = dict[str, Any]

NO_TIME = -1
"""Timestamp in responses with an error."""

STEP_TOKENS = 20
"""Number of tokens that are described between two yields; the secret of each takes microseconds."""


class DelegationTokenHandler:
    """Base of the handlers.

    :param store: None if tokens are disabled, because ``delegation.token.secret.key`` is not set.
    :param permissions: None if every client may do everything.
    """

    def __init__(self, store: TokenStore | None, permissions: Permissions | None) -> None:
        self._store = store
        self._permissions = permissions

    def _enabled_store(self, request: Request) -> TokenStore:
        """Return the store.

        :raise KafkaError: tokens are disabled, or the client did not authenticate with its own credentials.
        """
        _check_channel(request)
        if self._store is None:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
        return self._store

    def _allows(self, request: Request, operation: Operation, resource: Resource) -> bool:
        return self._permissions is None or self._permissions.allows(request, operation, resource)

    def _would_allow(self, request: Request, operation: Operation, resource: Resource) -> bool:
        return self._permissions is None or self._permissions.would_allow(request, operation, resource)


class CreateDelegationToken(DelegationTokenHandler):
    """Creates a token for the client, or for another owner (KIP-373)."""

    def __call__(self, request: Request) -> None:
        respond_with_result(request, self._response(request))

    async def _response(self, request: Request) -> Row:
        body, requester = request.body, request.connection.user
        name = body.get("owner_principal_name")
        owner = f"{body['owner_principal_type']}:{name}" if name else requester
        names = {**_principal(owner), **_principal(requester, "token_requester_principal")}
        try:
            _check_channel(request)
            if owner != requester and not self._allows(request, Operation.CREATE_TOKENS, user_resource(owner)):
                raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
            if any(row["principal_type"] != USER_TYPE for row in body["renewers"]):
                raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE)
            store = self._enabled_store(request)
            renewers = [_principal_text(row) for row in body["renewers"]]
            token, _ = await store.create(owner, requester, renewers, body["max_lifetime_ms"])
        except KafkaError as error:
            times = dict.fromkeys(("issue_timestamp_ms", "expiry_timestamp_ms", "max_timestamp_ms"), NO_TIME)
            return {"error_code": int(error.code), **names, **times, "token_id": "", "hmac": b""}
        return {
            "error_code": 0,
            **names,
            "issue_timestamp_ms": token.issued_ms,
            "expiry_timestamp_ms": token.expires_ms,
            "max_timestamp_ms": token.max_ms,
            "token_id": token.token_id,
            "hmac": store.cache.hmac_of(token),
        }


class RenewDelegationToken(DelegationTokenHandler):
    """Extends the lifetime of a token."""

    def __call__(self, request: Request) -> None:
        hmac = bytes(request.body["hmac"])  # copied, because the request's buffer is reused
        respond_with_result(request, self._response(request, hmac))

    async def _response(self, request: Request, hmac: bytes) -> Row:
        try:
            store = self._enabled_store(request)
            token = await store.find_by_hmac(hmac)
            renewed, _ = await store.renew(request.connection.user, token.token_id, request.body["renew_period_ms"])
        except KafkaError as error:
            return {"error_code": int(error.code), "expiry_timestamp_ms": NO_TIME}
        return {"error_code": 0, "expiry_timestamp_ms": renewed.expires_ms}


class ExpireDelegationToken(DelegationTokenHandler):
    """Deletes a token, or changes its expiry time."""

    def __call__(self, request: Request) -> None:
        hmac = bytes(request.body["hmac"])  # copied, because the request's buffer is reused
        respond_with_result(request, self._response(request, hmac))

    async def _response(self, request: Request, hmac: bytes) -> Row:
        try:
            store = self._enabled_store(request)
            token = await store.find_by_hmac(hmac)
            period_ms = request.body["expiry_time_period_ms"]
            changed, _ = await store.expire(request.connection.user, token.token_id, period_ms)
        except KafkaError as error:
            return {"error_code": int(error.code), "expiry_timestamp_ms": NO_TIME}
        return {"error_code": 0, "expiry_timestamp_ms": changed.expires_ms}


class DescribeDelegationToken(DelegationTokenHandler):
    """Lists the tokens that the client may see, with their secrets."""

    def __call__(self, request: Request) -> None:
        respond_with_result(request, self._response(request))

    async def _response(self, request: Request) -> Row:
        rows = request.body["owners"]
        owners = None if rows is None else {_principal_text(row) for row in rows}

        def may_describe(token: DelegationToken) -> bool:
            of_token = Resource(ResourceType.DELEGATION_TOKEN, token.token_id)
            return self._would_allow(request, Operation.DESCRIBE, of_token) or self._would_allow(
                request, Operation.DESCRIBE_TOKENS, user_resource(token.owner)
            )

        try:
            store = self._enabled_store(request)
            if owners is not None and not owners:
                return {"error_code": 0, "tokens": []}
            tokens = await store.visible_tokens(request.connection.user, owners, may_describe)
        except KafkaError as error:
            return {"error_code": int(error.code), "tokens": []}
        return {"error_code": 0, "tokens": await in_slices(request, _token_rows(tokens, store.cache))}


def user_resource(principal: str) -> Resource:
    """Return a user as the resource of an ACL."""
    return Resource(ResourceType.USER, principal)


def _check_channel(request: Request) -> None:
    """Check that the client authenticated with its own credentials.

    :raise KafkaError: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
    """
    session = session_of(request.connection)
    if session is None:
        is_allowed = request.connection.user != ANONYMOUS  # the client has a certificate
    else:
        is_allowed = not session.uses_token
    if not is_allowed:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


def _principal(principal: str, field: str = "principal") -> Row:
    """Return the fields of a principal in a response."""
    kind, _, name = principal.partition(":")
    return {f"{field}_type": kind, f"{field}_name": name}


def _principal_text(row: Row) -> str:
    return f"{row['principal_type']}:{row['principal_name']}"


def _token_rows(tokens: Sequence[DelegationToken], cache: TokenCache) -> Steps[list[Row]]:
    rows = []
    for number, token in enumerate(tokens, 1):
        rows.append(_token_row(token, cache.hmac_of(token)))
        if number % STEP_TOKENS == 0:
            yield
    return rows


def _token_row(token: DelegationToken, hmac: bytes) -> Row:
    return {
        **_principal(token.owner),
        **_principal(token.requester, "token_requester_principal"),
        "issue_timestamp": token.issued_ms,
        "expiry_timestamp": token.expires_ms,
        "max_timestamp": token.max_ms,
        "token_id": token.token_id,
        "hmac": hmac,
        "renewers": [_principal(each) for each in token.renewers],
    }
