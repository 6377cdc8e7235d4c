"""Delegation tokens on brokers with SASL: requests for tokens, and clients that authenticate with them."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sasl_scene import SCRAM_LOGIN, Brokers, Scenario, with_brokers

from kreplica.client import secured_endpoints
from kreplica.client.connection import connect
from kreplica.runtime.pause import pause
from kreplica.wire.messages import (
    CREATE_DELEGATION_TOKEN,
    DESCRIBE_DELEGATION_TOKEN,
    EXPIRE_DELEGATION_TOKEN,
    RENEW_DELEGATION_TOKEN,
)

Row = dict[str, Any]

KEY = "planted-token-key"
DAY_MS = 24 * 3600 * 1000
ENABLED = f"delegation.token.secret.key={KEY}"
WITH_ACLS = "authorizer.class.name=kafka.security.authorizer.AclAuthorizer\nsuper.users=User:admin"
DISABLED_CODE, NOT_FOUND, OWNER_MISMATCH, NOT_ALLOWED, UNAUTHORIZED, EXPIRED, INVALID_TYPE = 61, 62, 63, 64, 65, 66, 67


def principal(name: str) -> Row:
    return {"principal_type": "User", "principal_name": name}


async def create(connection: Any, *renewers: str, max_ms: int = -1, owner: str | None = None, version: int = 3) -> Row:
    """Send CreateDelegationToken."""
    body: Row = {"renewers": [principal(each) for each in renewers], "max_lifetime_ms": max_ms}
    if version >= 3:
        body |= {"owner_principal_type": "User" if owner else None, "owner_principal_name": owner}
    response: Row = await connection.request(CREATE_DELEGATION_TOKEN, version, body)
    return response


async def renew(connection: Any, hmac: bytes, period_ms: int = -1) -> tuple[int, int]:
    """Send RenewDelegationToken; return the error code and the expiry time."""
    response = await connection.request(RENEW_DELEGATION_TOKEN, 2, {"hmac": hmac, "renew_period_ms": period_ms})
    return response["error_code"], response["expiry_timestamp_ms"]


async def expire(connection: Any, hmac: bytes, period_ms: int = -1) -> tuple[int, int]:
    """Send ExpireDelegationToken; return the error code and the expiry time."""
    body = {"hmac": hmac, "expiry_time_period_ms": period_ms}
    response = await connection.request(EXPIRE_DELEGATION_TOKEN, 2, body)
    return response["error_code"], response["expiry_timestamp_ms"]


async def describe(connection: Any, *owners: str, every: bool = False) -> tuple[int, dict[str, Row]]:
    """Send DescribeDelegationToken; return the error code and the tokens by ID.

    :param every: True to request the tokens of all owners.
    """
    rows = None if every else [principal(each) for each in owners]
    response = await connection.request(DESCRIBE_DELEGATION_TOKEN, 3, {"owners": rows})
    return response["error_code"], {row["token_id"]: row for row in response["tokens"]}


def password_of(token: Row) -> str:
    return b64encode(bytes(token["hmac"])).decode()


def token_config(scene: Brokers, listener: str, token: Row, mechanism: str = "SCRAM-SHA-512") -> dict[str, str]:
    """Return the configuration of a client with a token, as for a Java client."""
    user, password = token["token_id"], password_of(token)
    jaas = f'{SCRAM_LOGIN} required username="{user}" password="{password}" tokenauth="true";'
    return {**scene.config(listener, mechanism, user, password), "sasl.jaas.config": jaas}


async def token_connection(scene: Brokers, token: Row, mechanism: str = "SCRAM-SHA-512", broker: int = 0) -> Any:
    """Return a connection that is authenticated with a token.

    :raise ClientError: the token is rejected.
    """
    endpoint = secured_endpoints(token_config(scene, "LOCAL", token, mechanism))
    port = scene.brokers[broker]._ports["LOCAL"]
    return await connect(scene.reactor, "127.0.0.1", port, client_id="token", endpoint=endpoint)


async def until(scene: Brokers, condition: Callable[[], bool]) -> None:
    """Wait until a condition is true; the test's timeout limits the wait."""
    while not condition():
        await pause(scene.reactor, 0.02)


def with_tokens(
    directory: Path,
    certificates: Path,
    connect_string: str,
    scenario: Scenario,
    *more: str,
    brokers: int = 1,
    **changes: Any,
) -> None:
    """Run brokers with delegation tokens, and a test coroutine with them."""
    with_brokers(brokers, directory, certificates, connect_string, scenario, "\n".join([ENABLED, *more]), **changes)
