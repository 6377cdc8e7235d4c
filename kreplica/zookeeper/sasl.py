"""Authenticates a client's connection with SASL DIGEST-MD5, ZooKeeper's only mechanism besides Kerberos."""

from __future__ import annotations

import random
from typing import Any

from twisted.internet.defer import Deferred

from kreplica.zookeeper.connection import Connection
from kreplica.zookeeper.digest_md5 import DigestExchange, SaslCredentials, parse_fields
from kreplica.zookeeper.errors import AuthFailed
from kreplica.zookeeper.records import Opcode
from kreplica.zookeeper.requests import Sasl
from kreplica.zookeeper.responses import decode_token


async def authenticate(connection: Connection, credentials: SaslCredentials, randomness: random.Random) -> None:
    """Authenticate the client to the server and the server to the client.

    :raise AuthFailed: if either side rejects the other.
    :raise ConnectionLoss: if the connection is lost before that.
    """
    challenge = await _step(connection, b"")
    if not challenge:
        raise AuthFailed(None, "the server has no SASL users")
    fields = parse_fields(challenge)
    if "nonce" not in fields:
        raise AuthFailed(None, "the server's challenge is not a DIGEST-MD5 challenge: it has no nonce")
    client_nonce = f"{randomness.getrandbits(128):032x}"
    exchange = DigestExchange(credentials, fields.get("realm", ""), fields["nonce"], client_nonce)
    proof = parse_fields(await _step(connection, exchange.response()))
    if proof.get("rspauth") != exchange.digest(from_client=False):
        raise AuthFailed(None, "the server did not prove that it knows the password")


async def _step(connection: Connection, token: bytes) -> bytes:
    result: Deferred[Any] = Deferred()
    connection.send(Opcode.SASL, Sasl(token).encode(), result, decode_token, None, None)
    token = await result
    return token
