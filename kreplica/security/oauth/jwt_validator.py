"""Validation of signed tokens (JWT, RFC 7519), with the rules of Kafka's ``OAuthBearerValidatorCallbackHandler``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import jwt

from kreplica.security.oauth.claims import (
    Claims,
    decode_sections,
    required_time,
    scope_claim,
    text_claim,
    time_claim,
)
from kreplica.security.oauth.key_set import ALGORITHMS, KEY_ID_CHARACTERS_MAX, KeySet, VerificationKey
from kreplica.security.sasl.bearer_token import BearerToken, InvalidToken

_VALUE_CHARACTERS_MAX = 200
_TIMES = {"verify_exp": False, "verify_nbf": False, "verify_iat": False, "verify_sub": False, "verify_jti": False}
"""Disables the library's checks of times and subject, because this module makes them itself: the times must be checked
against the broker's clock, and the name of the subject claim is configurable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JwtRules:
    """Settings ``sasl.oauthbearer.*`` of a validator.

    :param audiences: the accepted audiences; if empty, a token must not name an audience.
    :param issuer: the required issuer; None accepts any issuer whose key is known.
    :param clock_skew_ms: tolerated difference between the clocks.
    """

    audiences: Sequence[str] = ()
    issuer: str | None = None
    scope_claim: str = "scope"
    sub_claim: str = "sub"
    clock_skew_ms: int = 30_000


class Keys(Protocol):
    """Keys of the authorization server (``key_source.KeySource``)."""

    keys: KeySet

    async def refresh_for_unknown_key(self) -> None:
        """Read the keys again, unless they were read a moment ago; return when they have been read."""


class JwtValidator:
    """Validates tokens.

    :param now_ms: returns milliseconds since 1970.
    """

    def __init__(self, rules: JwtRules, keys: Keys, now_ms: Callable[[], int]) -> None:
        self._rules = rules
        self._keys = keys
        self._now_ms = now_ms

    async def validate(self, token: str) -> BearerToken:
        """Return the content of a token; if its key is unknown, wait until the keys have been read again.

        :raise InvalidToken: the token is not valid.
        """
        token = token.strip()
        header, _, _ = decode_sections(token)
        algorithm, key_id = _algorithm(header), _key_id(header)
        candidates = self._keys.keys.candidates(key_id, algorithm)
        if not candidates:
            await self._keys.refresh_for_unknown_key()
            candidates = self._keys.keys.candidates(key_id, algorithm)
        if not candidates:
            key_text = "key" if key_id is None else f"key with the ID {key_id[:_VALUE_CHARACTERS_MAX]!r}"
            raise InvalidToken(f"the authorization server has no {key_text} for the algorithm {algorithm}")
        return self._check(self._verify(token, algorithm, candidates))

    def _verify(self, token: str, algorithm: str, candidates: Sequence[VerificationKey]) -> Claims:
        """Return the claims of a token that one of the keys has signed."""
        rules = self._rules
        options: Any = {**_TIMES, "verify_aud": True, "verify_iss": rules.issuer is not None}
        for key in candidates:
            try:
                claims: Claims = jwt.decode(
                    token,
                    key.public_key,
                    algorithms=[algorithm],
                    audience=list(rules.audiences) or None,
                    issuer=rules.issuer,
                    options=options,
                )
            except jwt.InvalidSignatureError:
                continue
            except jwt.MissingRequiredClaimError as error:
                raise InvalidToken(f"the claim {error.claim} is missing") from None
            except jwt.InvalidAudienceError:
                raise InvalidToken(self._wrong_audience()) from None
            except jwt.InvalidIssuerError:
                raise InvalidToken(f"the token was not issued by {rules.issuer} (expected.issuer)") from None
            # For unusual values, such as deeply nested ones, the library raises exceptions that are not its own.
            except (jwt.PyJWTError, ValueError, TypeError, RecursionError, OverflowError):
                raise InvalidToken("the token is malformed") from None
            return claims
        raise InvalidToken("the signature of the token is wrong")

    def _wrong_audience(self) -> str:
        if not self._rules.audiences:
            return "the token was issued for an audience, but expected.audience is not set"
        return f"the token was not issued for {' or '.join(self._rules.audiences)} (expected.audience)"

    def _check(self, claims: Claims) -> BearerToken:
        """Check the times and the types of the claims."""
        rules, now_ms = self._rules, self._now_ms()
        expires_ms, issued_ms = required_time(claims, "exp"), required_time(claims, "iat")
        starts_ms = time_claim(claims, "nbf")
        if now_ms - rules.clock_skew_ms >= expires_ms:
            raise InvalidToken(f"the token expired {(now_ms - expires_ms) // 1000} seconds ago")
        if expires_ms < max(issued_ms, starts_ms or 0):
            raise InvalidToken("the token expires before its validity begins")
        if starts_ms is not None and now_ms + rules.clock_skew_ms < starts_ms:
            raise InvalidToken(f"the token will not be valid for another {(starts_ms - now_ms) // 1000} seconds")
        scope_claim(claims, rules.scope_claim)
        return BearerToken(text_claim(claims, rules.sub_claim), expires_ms)


def _algorithm(header: Claims) -> str:
    algorithm = header.get("alg")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise InvalidToken(f"the algorithm of the token is not allowed; expected one of {', '.join(ALGORITHMS)}")
    if "crit" in header or "b64" in header:
        raise InvalidToken("the token has critical header parameters, which are not supported")
    return algorithm


def _key_id(header: Claims) -> str | None:
    key_id = header.get("kid")
    if key_id is not None and (not isinstance(key_id, str) or len(key_id) > KEY_ID_CHARACTERS_MAX):
        raise InvalidToken("the key ID of the token is not a string, or is too long")
    return key_id
