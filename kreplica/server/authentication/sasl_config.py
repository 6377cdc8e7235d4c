"""Configuration of a SASL listener."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from kreplica.interfaces import ServerExchange


class BrokerExchange(ServerExchange, Protocol):
    """One authentication of a client by a built-in mechanism, or by a plugin.

    :ivar uses_token: True if the client has authenticated with a delegation token (KIP-48).
    """

    uses_token: bool


@dataclass(frozen=True, slots=True)
class SaslConfig:
    """SASL configuration of a listener.

    :param mechanisms: creates exchanges, by the name of the mechanism.
    :param now_ms: returns milliseconds since 1970, to determine when credentials expire.
    :param receive_bytes_max: ``sasl.server.max.receive.size``: the longest frame before authentication.
    :param failure_delay_s: ``connection.failed.authentication.delay.ms``: delay of a negative response.
    :param lifetime_s: ``connections.max.reauth.ms``: maximum lifetime of an authenticated session; 0 is unlimited.
    :param timeout_s: time within which a new connection must be authenticated.
    """

    mechanisms: Mapping[str, Callable[[], BrokerExchange]] = field(repr=False)  # contains the passwords of PLAIN
    now_ms: Callable[[], int]
    receive_bytes_max: int = 524_288
    failure_delay_s: float = 0.1
    lifetime_s: float = 0.0
    timeout_s: float = 30.0

    def session_s(self, expires_ms: int | None) -> float | None:
        """Return the lifetime of a new session in seconds; None if it is unlimited (KIP-368).

        :param expires_ms: time at which the client's credential expires; None if it does not expire.
        """
        lifetimes = [self.lifetime_s] if self.lifetime_s > 0 else []
        if expires_ms is not None:
            lifetimes.append(max(0.0, (expires_ms - self.now_ms()) / 1000))
        return min(lifetimes, default=None)
