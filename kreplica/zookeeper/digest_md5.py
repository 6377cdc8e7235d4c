"""SASL DIGEST-MD5 (RFC 2831) with ZooKeeper's service name and realm, for client and server, without I/O."""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import md5
from typing import Any

from kreplica.zookeeper.errors import AuthFailed

REALM = "zk-sasl-md5"
DIGEST_URI = f"zookeeper/{REALM}"
_FIELD = re.compile(r'([a-z0-9-]+)=(?:"((?:[^"\\]|\\.)*)"|([^,]*))')
_FIRST_USE = "00000001"


@dataclass(frozen=True, slots=True)
class SaslCredentials:
    """A user of the server's ``DigestLoginModule``."""

    username: str
    password: str = field(repr=False)


def parse_fields(token: bytes) -> dict[str, str]:
    """Return the directives of a challenge or response."""
    found = _FIELD.findall(token.decode(errors="replace"))
    return {name: re.sub(r"\\(.)", r"\1", quoted) or plain for name, quoted, plain in found}


@dataclass(frozen=True, slots=True)
class DigestExchange:
    """Computes the proofs of both sides from the password and the two nonces.

    :param authorization_id: the user that the client wants to act as; None if it did not send one.
    """

    credentials: SaslCredentials
    realm: str
    nonce: str
    client_nonce: str
    digest_uri: str = DIGEST_URI
    authorization_id: str | None = None

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
        texts += [f"nc={_FIRST_USE}", "qop=auth", "maxbuf=65536", f"response={self.digest(from_client=True)}"]
        return ",".join(texts).encode()

    def digest(self, *, from_client: bool) -> str:
        """Return the digest that proves knowledge of the password, in hexadecimal."""
        user = b":".join(map(_encode, (self.credentials.username, self.realm, self.credentials.password)))
        secret = _md5(user).digest() + f":{self.nonce}:{self.client_nonce}".encode()
        if self.authorization_id is not None:
            secret += f":{self.authorization_id}".encode()
        action = f"{'AUTHENTICATE' if from_client else ''}:{self.digest_uri}".encode()
        parts = (_hex(secret), self.nonce, _FIRST_USE, self.client_nonce, "auth", _hex(action))
        return _hex(":".join(parts).encode())


class DigestServer:
    """A server's side of one authentication exchange.

    :param users: passwords by user name.
    :param nonce: random value, used for this exchange only.
    :ivar user: the authenticated user after a valid response; None until then.
    """

    def __init__(self, users: Mapping[str, str], nonce: str) -> None:
        self._users = users
        self._nonce = nonce
        self._has_challenged = False
        self.user: str | None = None

    def step(self, token: bytes) -> bytes:
        """Return the challenge in the first step, and the proof that this server knows the password in the second.

        :raise AuthFailed: the token is malformed, or does not prove that the client knows the user's password; the
            message contains the user and no secret.
        """
        if not self._has_challenged:
            if token:
                raise AuthFailed(None, "the first token is not empty")
            self._has_challenged = True
            return f'realm="{REALM}",nonce="{self._nonce}",charset=utf-8,algorithm=md5-sess'.encode()
        fields = parse_fields(token)
        user = fields.get("username", "")
        self._check_fields(fields)
        password = self._users.get(user)
        exchange = DigestExchange(
            SaslCredentials(user, password or ""),
            REALM,
            self._nonce,
            fields.get("cnonce", ""),
            fields["digest-uri"],
            fields.get("authzid"),
        )
        # Computed for unknown users too, so that the response time does not show which users exist.
        expected = exchange.digest(from_client=True)
        is_right = hmac.compare_digest(expected.encode(), fields.get("response", "").encode())
        if password is None or not is_right:
            raise AuthFailed(None, f"unknown user or wrong password: {user!r}")
        self.user = user
        return f"rspauth={exchange.digest(from_client=False)}".encode()

    def _check_fields(self, fields: Mapping[str, str]) -> None:
        expected = {"realm": REALM, "nonce": self._nonce, "nc": _FIRST_USE, "qop": "auth"}
        for name, value in expected.items():
            if fields.get(name, "auth" if name == "qop" else "") != value:
                raise AuthFailed(None, f"the response's {name} differs from the challenge's")
        if fields.get("digest-uri", "").lower() != DIGEST_URI:
            raise AuthFailed(None, f"the response is not for the service {DIGEST_URI}")
        # A user must not act as another user.
        if fields.get("authzid", fields.get("username")) != fields.get("username"):
            raise AuthFailed(None, "the response asks to act as another user")


def _encode(text: str) -> bytes:
    """Encode text for hashing: in ISO 8859-1 if possible, otherwise in UTF-8 (RFC 2831, section 2.1.2.1)."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()


def _md5(data: bytes) -> Any:
    return md5(data, usedforsecurity=False)


def _hex(data: bytes) -> str:
    return str(_md5(data).hexdigest())


def _escape(text: str) -> str:
    return re.sub(r'([\\"])', r"\\\1", text)
