"""Configuration of a listener with SASL."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kreplica.security.sasl.exchange import ServerExchange


@dataclass(frozen=True, slots=True)
class SaslConfig:
    """Configuration of a listener.

    :param mechanisms: creates exchanges, by the name of the mechanism.
    :param receive_bytes_max: ``sasl.server.max.receive.size``: the longest frame before authentication.
    :param failure_delay_s: ``connection.failed.authentication.delay.ms``: delay of a negative response.
    :param lifetime_s: ``connections.max.reauth.ms``: lifetime of an authenticated session; 0 is unlimited.
    :param timeout_s: time from the acceptance of a connection in which it must be authenticated.
    """

    mechanisms: Mapping[str, Callable[[], ServerExchange]]
    receive_bytes_max: int = 524_288
    failure_delay_s: float = 0.1
    lifetime_s: float = 0.0
    timeout_s: float = 30.0
