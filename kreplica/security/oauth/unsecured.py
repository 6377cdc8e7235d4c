"""Kafka's unsigned tokens, for development only: anyone can create one for any user (KIP-255)."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kreplica.errors import SettingsError
from kreplica.security.oauth.claims import Claims, decode_sections, required_time, text_claim, time_claim
from kreplica.security.sasl.bearer_token import BearerToken, InvalidToken

_VALIDATOR, _LOGIN = "unsecuredValidator", "unsecuredLogin"
_STRING, _NUMBER, _LIST = f"{_LOGIN}StringClaim_", f"{_LOGIN}NumberClaim_", f"{_LOGIN}ListClaim_"
EXTENSION = f"{_LOGIN}Extension_"
_CALCULATED = ("iat", "exp")


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsecuredRules:
    """The options ``unsecuredValidator*`` of a login module."""

    principal_claim: str = "sub"
    scope_claim: str = "scope"
    required_scope: Sequence[str] = ()
    clock_skew_ms: int = 0

    @classmethod
    def from_options(cls, options: Mapping[str, str], setting: str) -> UnsecuredRules:
        """Return the rules in the options of a login module.

        :param setting: name of the setting, for the error message.
        :raise SettingsError: an option is malformed.
        """
        skew = options.get(f"{_VALIDATOR}AllowableClockSkewMs", "").strip() or "0"
        if not (skew.isascii() and skew.isdigit() and len(skew) <= 9):
            raise SettingsError(f"{setting}: {_VALIDATOR}AllowableClockSkewMs is not a whole number of milliseconds")
        return cls(
            principal_claim=options.get(f"{_VALIDATOR}PrincipalClaimName", "").strip() or "sub",
            scope_claim=options.get(f"{_VALIDATOR}ScopeClaimName", "").strip() or "scope",
            required_scope=options.get(f"{_VALIDATOR}RequiredScope", "").split(),
            clock_skew_ms=int(skew),
        )


class UnsecuredValidator:
    """Validates unsigned tokens, as Kafka does by default.

    :param now_ms: returns milliseconds since 1970.
    """

    def __init__(self, rules: UnsecuredRules, now_ms: Callable[[], int]) -> None:
        self._rules = rules
        self._now_ms = now_ms

    async def validate(self, token: str) -> BearerToken:
        """Return the content of a token.

        :raise InvalidToken: the token is not valid.
        """
        rules, now_ms = self._rules, self._now_ms()
        header, claims, signature = decode_sections(token)
        if header.get("alg") != "none" or signature:
            raise InvalidToken("the token has a signature, but no keys are configured to verify it")
        user = text_claim(claims, rules.principal_claim)
        issued_ms, expires_ms = time_claim(claims, "iat"), required_time(claims, "exp")
        if issued_ms is not None and issued_ms > now_ms + rules.clock_skew_ms:
            raise InvalidToken("the token was issued in the future")
        if now_ms - rules.clock_skew_ms >= expires_ms:
            raise InvalidToken("the token has expired")
        if issued_ms is not None and expires_ms <= issued_ms:
            raise InvalidToken("the token expires before it was issued")
        self._check_scope(claims)
        return BearerToken(user, expires_ms)

    def _check_scope(self, claims: Claims) -> None:
        value = claims.get(self._rules.scope_claim)
        scope = value.split() if isinstance(value, str) else value if isinstance(value, list) else []
        if any(each not in scope for each in self._rules.required_scope):
            required = " ".join(self._rules.required_scope)
            raise InvalidToken(f"the token does not have the scope {required}", missing_scope=required)


@dataclass(frozen=True, slots=True)
class UnsecuredLogin:
    """The login-module options ``unsecuredLogin*``, for a client that creates its own tokens.

    :param user: name of the client in error messages.
    """

    user: str
    claims: Claims
    lifetime_s: int

    @classmethod
    def from_options(cls, options: Mapping[str, str], setting: str) -> UnsecuredLogin | None:
        """Return the login in the options of a login module; None if they contain no claims.

        :param setting: name of the setting, for the error message.
        :raise SettingsError: an option is malformed.
        """
        claims = _claims(options, setting)
        if not claims:
            return None
        user = claims.get(options.get(f"{_LOGIN}PrincipalClaimName", "").strip() or "sub")
        if not isinstance(user, str) or not user.strip():
            raise SettingsError(f"{setting}: the login module has no option {_STRING}sub, which names the user")
        lifetime = options.get(f"{_LOGIN}LifetimeSeconds", "3600").strip()
        if not (lifetime.isascii() and lifetime.isdigit() and 1 <= len(lifetime) <= 9):
            raise SettingsError(f"{setting}: {_LOGIN}LifetimeSeconds is not a whole number of seconds")
        return cls(user.strip(), claims, int(lifetime))

    def new_token(self, now_ms: int) -> str:
        """Return a token that is valid from now on."""
        claims = {**self.claims, "iat": now_ms / 1000, "exp": now_ms / 1000 + self.lifetime_s}
        return f"{_section({'alg': 'none'})}.{_section(claims)}."


def _claims(options: Mapping[str, str], setting: str) -> dict[str, Any]:
    claims: dict[str, Any] = {}
    for option, text in options.items():
        prefix = next((each for each in (_STRING, _NUMBER, _LIST) if option.startswith(each)), None)
        if prefix is None:
            continue
        name = option.removeprefix(prefix)
        if name in _CALCULATED:
            raise SettingsError(f"{setting}: {option}: the claim {name} is calculated and cannot be set")
        try:
            claims[name] = _value(prefix, text)
        except ValueError:
            raise SettingsError(f"{setting}: {option} is not a number") from None
    return claims


def _value(prefix: str, text: str) -> object:
    if prefix == _NUMBER:
        return float(text)
    if prefix == _LIST:
        return text[1:].split(text[0]) if len(text) > 1 else []
    return text


def _section(value: Mapping[str, Any]) -> str:
    return urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()
