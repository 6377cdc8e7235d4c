"""A delegation token, and the rules of its lifetime, as in Kafka."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace

USER_TYPE = "User"
"""The type of principals that can own and renew tokens."""

_LOGIN_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A token; its secret is computed from its ID (``hmac_of``).

    :param token_id: user name of clients that authenticate with the token; not a secret.
    :param owner: principal as which clients act when they authenticate with the token, such as ``User:alice``.
    :param requester: principal that created the token.
    :param renewers: other principals that may renew and expire the token.
    :param issued_ms: time of creation, in milliseconds since 1970.
    :param expires_ms: time at which the token becomes invalid unless it is renewed before.
    :param max_ms: latest time to which the token can be renewed.
    """

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int

    def concerns(self, principal: str) -> bool:
        """Return True if a principal owns, created or may renew the token."""
        return principal in (self.owner, self.requester, *self.renewers)

    def may_be_renewed_by(self, principal: str) -> bool:
        """Return True if a principal may renew and expire the token."""
        return principal == self.owner or principal in self.renewers

    def is_expired(self, now_ms: int) -> bool:
        """Return True if the token is invalid and can be removed."""
        return self.max_ms < now_ms or self.expires_ms < now_ms

    def valid_for(self, now_ms: int, period_ms: int) -> DelegationToken:
        """Return the token with a new expiry time, limited to its maximum."""
        return replace(self, expires_ms=min(self.max_ms, now_ms + period_ms))


@dataclass(frozen=True, slots=True)
class TokenLifetimes:
    """Lifetimes of tokens.

    :param max_ms: ``delegation.token.max.lifetime.ms``.
    :param renewal_ms: ``delegation.token.expiry.time.ms``: validity of new and renewed tokens.
    """

    max_ms: int
    renewal_ms: int

    def new_token(
        self, token_id: str, owner: str, requester: str, renewers: Iterable[str], max_ms: int, now_ms: int
    ) -> DelegationToken:
        """Return a new token.

        :param max_ms: the requested maximum lifetime; the broker's maximum if it is not positive.
        """
        lifetime_ms = min(max_ms, self.max_ms) if max_ms > 0 else self.max_ms
        token = DelegationToken(token_id, owner, requester, tuple(renewers), now_ms, now_ms, now_ms + lifetime_ms)
        return token.valid_for(now_ms, self.renewal_ms)

    def renewal_of(self, period_ms: int) -> int:
        """Return the period by which a token is renewed: the requested one, or the broker's if that is negative."""
        return self.renewal_ms if period_ms < 0 else period_ms


def hmac_of(token_id: str, key: bytes) -> bytes:
    """Return the secret of a token; clients use its Base64 form as their password.

    :param key: ``delegation.token.secret.key``, which is the same on all brokers.
    """
    return hmac.new(key, token_id.encode(), hashlib.sha512).digest()


def client_config(token_id: str, password: str, mechanism: str) -> dict[str, str]:
    """Return the settings of a client that authenticates with a token; Java clients accept them too.

    :param password: the secret of the token in Base64.
    :param mechanism: SCRAM-SHA-256 or SCRAM-SHA-512.
    """
    options = f'username="{token_id}" password="{password}" tokenauth="true"'
    return {"sasl.mechanism": mechanism, "sasl.jaas.config": f"{_LOGIN_MODULE} required {options};"}


def is_visible(
    token: DelegationToken,
    principal: str,
    owners: Collection[str] | None,
    may_describe: Callable[[DelegationToken], bool],
) -> bool:
    """Return True if a principal may see a token.

    :param owners: restricts the result to tokens that involve one of these principals; None for all tokens.
    :param may_describe: asks the authorizer about a token that does not involve the principal.
    """
    is_requested = owners is None or any(token.concerns(owner) for owner in owners)
    return is_requested and (token.concerns(principal) or may_describe(token))
