"""Creates the store of delegation tokens and the sweep of expired ones, according to a broker's settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kreplica.runtime import Runtime
from kreplica.settings.broker_settings import BrokerSettings
from kreplica.zookeeper import ZooKeeperClient

if TYPE_CHECKING:
    from kreplica.membership.delegation_tokens.token_store import TokenStore

_PREFIX = "delegation.token."


def token_store(runtime: Runtime, client: ZooKeeperClient, settings: BrokerSettings) -> TokenStore | None:
    """Return the store of delegation tokens; None if they are disabled."""
    key: str | None = settings[f"{_PREFIX}secret.key"]
    if key is None:
        key = settings[f"{_PREFIX}master.key"]
    if not key:
        return None
    # Imported only if tokens are enabled.
    from kreplica.membership.delegation_tokens.token_store import TokenStore
    from kreplica.security.tokens.token import TokenLifetimes

    lifetimes = TokenLifetimes(settings[f"{_PREFIX}max.lifetime.ms"], settings[f"{_PREFIX}expiry.time.ms"])
    return TokenStore(runtime, client, key.encode(), lifetimes)


def start_token_sweep(
    runtime: Runtime, settings: BrokerSettings, store: TokenStore | None, is_controller: Callable[[], bool]
) -> Callable[[], None]:
    """Start the sweep of expired tokens.

    :return: a function that stops the sweep.
    """
    if store is None:
        return lambda: None
    from kreplica.membership.delegation_tokens.token_sweep import TokenSweep

    interval_s = settings[f"{_PREFIX}expiry.check.interval.ms"] / 1000
    sweep = TokenSweep(runtime.reactor, store, is_controller, interval_s)
    sweep.start()
    return sweep.stop
