"""Public keys of an authorization server: a JSON Web Key Set (RFC 7517)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from json import loads
from typing import Any

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt import PyJWK, PyJWTError

KEYS_MAX = 500
"""Maximum number of keys of a set; further keys are ignored."""

KEY_ID_CHARACTERS_MAX = 1000
"""Maximum length of a key ID; tokens with a longer one are rejected, as in Kafka."""

CANDIDATES_MAX = 8
"""Maximum number of keys that are tried for one token."""

ALGORITHMS: Mapping[str, tuple[str, str | None]] = {
    **{f"{family}{bits}": ("RSA", None) for family in ("RS", "PS") for bits in (256, 384, 512)},
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "EdDSA": ("OKP", "Ed25519"),
}
"""Allowed signature algorithms with their key type and curve. All are asymmetric: with HMAC, the public key would be
the secret."""

RSA_BITS_MIN, RSA_BITS_MAX = 2048, 16_384


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """A public key.

    :param key_id: None if the set gives no ID for the key.
    :param algorithm: the only algorithm for which the key may be used; None for all algorithms of its type.
    """

    key_id: str | None
    key_type: str
    curve: str | None
    algorithm: str | None
    public_key: Any

    def suits(self, algorithm: str) -> bool:
        """Return True if the key may verify signatures of an algorithm."""
        key_type, curve = ALGORITHMS[algorithm]
        return self.key_type == key_type and self.curve == curve and self.algorithm in (None, algorithm)


@dataclass(frozen=True, slots=True)
class KeySet:
    """The usable keys of a key set.

    :param ignored: reasons why keys of the set are not used.
    """

    keys: Sequence[VerificationKey] = ()
    ignored: Sequence[str] = ()

    @classmethod
    def parse(cls, content: bytes) -> KeySet:
        """Parse a key set; takes milliseconds if it has many keys.

        :raise ValueError: the content is not a key set, or contains no usable key; the message contains no key.
        """
        try:
            document = loads(content)
            rows = document["keys"]
        except (ValueError, TypeError, KeyError, RecursionError):
            rows = None
        if not isinstance(rows, list):
            raise ValueError('it is not a JSON Web Key Set: {"keys": [...]}')
        keys, ignored = [], []
        for row in rows[:KEYS_MAX]:
            found = _key(row)
            if isinstance(found, str):
                ignored.append(found)
            else:
                keys.append(found)
        if not keys:
            raise ValueError(f"it contains no usable key ({'; '.join(dict.fromkeys(ignored)) or 'it is empty'})")
        return cls(tuple(keys), tuple(ignored))

    def candidates(self, key_id: str | None, algorithm: str) -> Sequence[VerificationKey]:
        """Return the keys that may verify a token.

        :param key_id: as in the token's header; None if it names no key.
        """
        suitable = [key for key in self.keys if key.suits(algorithm)]
        if key_id is None:
            return suitable[:CANDIDATES_MAX]
        return [key for key in suitable if key.key_id == key_id][:CANDIDATES_MAX]


def _key(row: object) -> VerificationKey | str:
    """Return a key, or the reason why it is ignored."""
    if not isinstance(row, dict):
        return "a key is not a JSON object"
    key_id, algorithm, operations = row.get("kid"), row.get("alg"), row.get("key_ops")
    key_type = row.get("kty")
    curve = row.get("crv") if key_type in ("EC", "OKP") else None
    if key_id is not None and not isinstance(key_id, str):
        return "the ID of a key is not a string"
    if row.get("use") not in (None, "sig") or (isinstance(operations, list) and "verify" not in operations):
        return "a key is not meant for signatures"
    if (key_type, curve) not in ALGORITHMS.values():
        return f"keys of type {str(key_type)[:20]} {str(curve or '')[:20]}".strip() + " are not supported"
    if algorithm is not None and (not isinstance(algorithm, str) or algorithm not in ALGORITHMS):
        return f"the algorithm {str(algorithm)[:20]} is not allowed"
    public_only = {name: value for name, value in row.items() if name not in ("d", "p", "q", "dp", "dq", "qi", "oth")}
    default = next(name for name, kind in ALGORITHMS.items() if kind == (key_type, curve))
    try:
        public_key = PyJWK(public_only, default).key
    except (PyJWTError, ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return "a key is malformed"
    if isinstance(public_key, RSAPublicKey) and not RSA_BITS_MIN <= public_key.key_size <= RSA_BITS_MAX:
        return f"an RSA key has {public_key.key_size} bits instead of {RSA_BITS_MIN} to {RSA_BITS_MAX}"
    return VerificationKey(key_id, str(key_type), curve, algorithm, public_key)
