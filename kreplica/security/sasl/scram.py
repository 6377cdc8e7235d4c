"""The mechanisms SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677).

Neither side sends the password, and the broker stores only keys that are derived from it.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode, urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from kreplica.errors import AuthenticationError

SCRAM_SHA_256, SCRAM_SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
HASHES = {SCRAM_SHA_256: "sha256", SCRAM_SHA_512: "sha512"}
"""Names of the hash functions, by mechanism."""

ITERATIONS_MIN, ITERATIONS_MAX = 4096, 16384
"""Allowed numbers of iterations for new credentials, as in Kafka."""

SERVER_ITERATIONS_MAX = 1_000_000
"""Maximum number of iterations that a client computes, so that a broker cannot make it block."""

_NONCE_BYTES = 24

_FIRST = re.compile(r"n,(a=[^,]*)?,(n=([^,]+),r=([^,]+)(,.*)?)", re.DOTALL)
_FINAL = re.compile(r"(c=([^,]+),r=([^,]+)(?:,.*)?),p=([^,]+)", re.DOTALL)
_CHALLENGE = re.compile(r"r=([^,]+),s=([^,]+),i=([0-9]{1,9})(?:,.*)?", re.DOTALL)
_TOKEN_BYTES_MAX = 4096

_SALTS_MAX = 100

SaltedPasswords = dict[tuple[bytes, int], bytes]
"""Salted passwords, by salt and number of iterations."""

Nonce = Callable[[], str]
"""Returns a new random text without commas."""


def random_nonce(random: Random) -> str:
    """Return a new nonce.

    :param random: unpredictable source, such as ``SystemRandom``; only a simulation may use another generator.
    """
    return urlsafe_b64encode(random.randbytes(_NONCE_BYTES)).decode()


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """The keys that a broker stores for one user and mechanism; the password cannot be computed from them."""

    salt: bytes
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    @classmethod
    def of_salted_password(cls, mechanism: str, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
        """Return the credential for a password that the client has salted."""
        name = HASHES[mechanism]
        client_key = _hmac(name, salted, b"Client Key")
        return cls(salt, hashlib.new(name, client_key).digest(), _hmac(name, salted, b"Server Key"), iterations)

    @classmethod
    def of_password(cls, mechanism: str, password: str, salt: bytes, iterations: int) -> ScramCredential:
        """Return the credential for a password; takes milliseconds."""
        salted = hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)
        return cls.of_salted_password(mechanism, salted, salt, iterations)

    @classmethod
    def parse(cls, text: str) -> ScramCredential:
        """Parse a credential in the format in which Kafka stores it in ZooKeeper.

        :raise ValueError: the text is malformed.
        """
        fields = dict(part.partition("=")[::2] for part in text.split(","))
        try:
            salt, stored, server = (b64decode(fields[name], validate=True) for name in _KEYS)
            return cls(salt, stored, server, int(fields["iterations"]))
        except (KeyError, ValueError):
            raise ValueError("a SCRAM credential needs salt, stored_key, server_key and iterations") from None

    def format(self) -> str:
        """Return the credential in the format in which Kafka stores it in ZooKeeper."""
        values = (self.salt, self.stored_key, self.server_key)
        texts = [f"{name}={b64encode(value).decode()}" for name, value in zip(_KEYS, values, strict=True)]
        return ",".join([*texts, f"iterations={self.iterations}"])


_KEYS = ("salt", "stored_key", "server_key")

TOKEN_AUTH = "tokenauth"
"""Option of a client's login module, and extension in its first message, that announce a delegation token (KIP-48)."""


class TokenCredential(NamedTuple):
    """The credential of a delegation token.

    :param owner: name of the user that the client acts as.
    :param expires_ms: time at which the token expires, in milliseconds since 1970.
    """

    owner: str
    expires_ms: int
    credential: ScramCredential


class ScramServer:
    """Authentication of one client.

    :param credential_of: returns the credential of a user; None if there is none.
    :param token_credential_of: returns the credential of the delegation token with this ID; None if there is none.
    """

    def __init__(
        self,
        mechanism: str,
        credential_of: Callable[[str], ScramCredential | None],
        nonce: Nonce,
        token_credential_of: Callable[[str], TokenCredential | None] = lambda _: None,
    ) -> None:
        self.user: str | None = None
        self.expires_ms: int | None = None
        self.uses_token = False
        self._hash = HASHES[mechanism]
        self._credential_of = credential_of
        self._token_credential_of = token_credential_of
        self._new_nonce = nonce
        self._claimed = ""
        self._credential: ScramCredential | None = None
        self._messages = ""
        self._nonce = ""

    def step(self, token: bytes) -> bytes:
        text = _text(token)
        return self._final(text) if self._messages else self._first(text)

    def _first(self, text: str) -> bytes:
        match = _FIRST.fullmatch(text)
        if match is None:
            raise AuthenticationError("the first SCRAM message is malformed")
        authorization, bare, user, client_nonce, extensions = match.groups()
        self._claimed = _unescape(user)
        if authorization is not None and _unescape(authorization[2:]) not in ("", self._claimed):
            raise AuthenticationError("the client asks to act as another user")
        self._credential = self._token() if _has_token(extensions) else self._credential_of(self._claimed)
        if self._credential is None:
            raise AuthenticationError("invalid user name or password")
        self._nonce = self._new_nonce()
        salt = b64encode(self._credential.salt).decode()
        challenge = f"r={client_nonce}{self._nonce},s={salt},i={self._credential.iterations}"
        self._messages = f"{bare},{challenge}"
        return challenge.encode()

    def _token(self) -> ScramCredential | None:
        """Return the credential of a delegation token; the client acts as its owner."""
        found = self._token_credential_of(self._claimed)
        if found is None:
            raise AuthenticationError("the delegation token does not exist or has expired")
        self.uses_token = True
        self._claimed, self.expires_ms = found.owner, found.expires_ms
        return found.credential

    def _final(self, text: str) -> bytes:
        match = _FINAL.fullmatch(text)
        credential = self._credential
        if match is None or credential is None or self.user is not None:
            raise AuthenticationError("the final SCRAM message is malformed or unexpected")
        without_proof, _, nonce, proof_text = match.groups()
        # As in Kafka, only the broker's part of the nonce is compared: old versions of librdkafka send the client's
        # part twice.
        if not nonce.endswith(self._nonce):
            raise AuthenticationError("the nonce of the final SCRAM message does not match")
        authenticated = f"{self._messages},{without_proof}".encode()
        proof = _decode(proof_text)
        signature = _hmac(self._hash, credential.stored_key, authenticated)
        client_key = _xor(proof, signature)
        if not hmac.compare_digest(hashlib.new(self._hash, client_key).digest(), credential.stored_key):
            raise AuthenticationError("invalid user name or password")
        self.user = self._claimed
        return b"v=" + b64encode(_hmac(self._hash, credential.server_key, authenticated))


class ScramClient:
    """Authentication of a client.

    :param salted: cache of the client's salted passwords, since salting takes milliseconds.
    :param uses_token: True to authenticate with a delegation token: the user is its ID, the password its secret.
    """

    def __init__(
        self,
        mechanism: str,
        user: str,
        password: str,
        nonce: Nonce,
        salted: SaltedPasswords,
        *,
        uses_token: bool = False,
    ) -> None:
        self._salted_passwords = salted
        self.is_complete = False
        self._hash = HASHES[mechanism]
        self._password = password
        self._nonce = nonce()
        extensions = f",{TOKEN_AUTH}=true" if uses_token else ""
        self._bare = f"n={_escape(user)},r={self._nonce}{extensions}"
        self._signature = b""
        self._has_started = False

    def step(self, token: bytes) -> bytes:
        if not self._has_started:
            self._has_started = True
            return f"n,,{self._bare}".encode()
        text = _text(token)
        if not self._signature:
            return self._respond(text)
        if text != f"v={b64encode(self._signature).decode()}":
            raise AuthenticationError("the broker did not prove that it knows the password")
        self.is_complete = True
        return b""

    def _respond(self, challenge: str) -> bytes:
        match = _CHALLENGE.fullmatch(challenge)
        if match is None or not match[1].startswith(self._nonce) or match[1] == self._nonce:
            raise AuthenticationError("the broker's SCRAM challenge is malformed")
        iterations = int(match[3])
        if not ITERATIONS_MIN <= iterations <= SERVER_ITERATIONS_MAX:
            raise AuthenticationError(f"the broker requests {iterations} SCRAM iterations")
        salted = self._salted(_decode(match[2]), iterations)
        without_proof = f"c=biws,r={match[1]}"
        authenticated = f"{self._bare},{challenge},{without_proof}".encode()
        client_key = _hmac(self._hash, salted, b"Client Key")
        stored_key = hashlib.new(self._hash, client_key).digest()
        proof = _xor(client_key, _hmac(self._hash, stored_key, authenticated))
        self._signature = _hmac(self._hash, _hmac(self._hash, salted, b"Server Key"), authenticated)
        return f"{without_proof},p={b64encode(proof).decode()}".encode()


    def _salted(self, salt: bytes, iterations: int) -> bytes:
        cache, key = self._salted_passwords, (salt, iterations)
        if key not in cache:
            if len(cache) >= _SALTS_MAX:
                cache.clear()
            cache[key] = hashlib.pbkdf2_hmac(self._hash, self._password.encode(), salt, iterations)
        return cache[key]


def _has_token(extensions: str | None) -> bool:
    """Return True if the extensions of a client's first message, such as ``,tokenauth=true``, announce a token."""
    pairs = dict(part.partition("=")[::2] for part in (extensions or "").split(","))
    return pairs.get(TOKEN_AUTH, "").lower() == "true"


def _text(token: bytes) -> str:
    if len(token) > _TOKEN_BYTES_MAX:
        raise AuthenticationError(f"a SCRAM message of {len(token)} bytes is too long")
    try:
        return token.decode()
    except UnicodeDecodeError:
        raise AuthenticationError("a SCRAM message is not valid UTF-8") from None


def _decode(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError:  # also for characters that are not ASCII
        raise AuthenticationError("a SCRAM message contains invalid Base64") from None


def _hmac(name: str, key: bytes, data: bytes) -> bytes:
    return hmac.new(key, data, name).digest()


def _xor(one: bytes, other: bytes) -> bytes:
    if len(one) != len(other):
        raise AuthenticationError("the SCRAM proof has the wrong length")
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


def _escape(user: str) -> str:
    return user.replace("=", "=3D").replace(",", "=2C")


def _unescape(user: str) -> str:
    if re.search(r"=(?!2C|3D)", user):
        raise AuthenticationError("the user name in a SCRAM message is malformed")
    return user.replace("=2C", ",").replace("=3D", "=")
