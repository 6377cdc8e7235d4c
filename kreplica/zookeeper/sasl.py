"""SASL DIGEST-MD5 (RFC 2831), the only SASL mechanism of ZooKeeper servers besides Kerberos."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field
from hashlib import md5
from typing import Any

from twisted.internet.defer import Deferred

from kreplica.zookeeper.connection import Connection
from kreplica.zookeeper.errors import AuthFailed
from kreplica.zookeeper.records import Opcode
from kreplica.zookeeper.requests import Sasl
from kreplica.zookeeper.responses import decode_token

DIGEST_URI = "zookeeper/zk-sasl-md5"
_FIELD = re.compile(r'([a-z-]+)=(?:"((?:[^"\\]|\\.)*)"|([^,]*))')


@dataclass(frozen=True, slots=True)
class SaslCredentials:
    """A user of the server's ``DigestLoginModule``."""

    username: str
    password: str = field(repr=False)


async def authenticate(connection: Connection, credentials: SaslCredentials, randomness: random.Random) -> None:
    """Authenticate the client to the server and the server to the client.

    :raise AuthFailed: if either fails.
    :raise ConnectionLoss: if the connection is lost first.
    """
    fields = _fields(await _step(connection, b""))
    if "nonce" not in fields:
        raise AuthFailed(None, "the server's challenge is not a DIGEST-MD5 challenge: it has no nonce")
    client_nonce = f"{randomness.getrandbits(128):032x}"
    exchange = DigestExchange(credentials, fields.get("realm", ""), fields["nonce"], client_nonce)
    proof = _fields(await _step(connection, exchange.response()))
    if proof.get("rspauth") != exchange.digest(from_client=False):
        raise AuthFailed(None, "the server did not prove that it knows the password")


async def _step(connection: Connection, token: bytes) -> bytes:
    result: Deferred[Any] = Deferred()
    connection.send(Opcode.SASL, Sasl(token).encode(), result, decode_token, None, None)
    token = await result
    return token


def _fields(token: bytes) -> dict[str, str]:
    found = _FIELD.findall(token.decode(errors="replace"))
    return {name: re.sub(r"\\(.)", r"\1", quoted) or plain for name, quoted, plain in found}


@dataclass(frozen=True, slots=True)
class DigestExchange:
    """Computation of both sides' proofs from the password and the two nonces."""

    credentials: SaslCredentials
    realm: str
    nonce: str
    client_nonce: str
    digest_uri: str = DIGEST_URI

    def response(self) -> bytes:
        """Return the client's response to the challenge."""
        quoted = {
            "username": self.credentials.username,
            "realm": self.realm,
            "nonce": self.nonce,
            "cnonce": self.client_nonce,
            "digest-uri": self.digest_uri,
        }
        texts = ["charset=utf-8", *(f'{name}="{_escape(value)}"' for name, value in quoted.items())]
        texts += ["nc=00000001", "qop=auth", "maxbuf=65536", f"response={self.digest(from_client=True)}"]
        return ",".join(texts).encode()

    def digest(self, *, from_client: bool) -> str:
        """Return the proof of knowing the password, in hexadecimal."""
        user = f"{self.credentials.username}:{self.realm}:{self.credentials.password}".encode()
        secret = _md5(user).digest() + f":{self.nonce}:{self.client_nonce}".encode()
        action = f"{'AUTHENTICATE' if from_client else ''}:{self.digest_uri}".encode()
        parts = (_hex(secret), self.nonce, "00000001", self.client_nonce, "auth", _hex(action))
        return _hex(":".join(parts).encode())


def _md5(data: bytes) -> Any:
    return md5(data, usedforsecurity=False)


def _hex(data: bytes) -> str:
    return str(_md5(data).hexdigest())


def _escape(text: str) -> str:
    return re.sub(r'([\\"])', r"\\\1", text)
