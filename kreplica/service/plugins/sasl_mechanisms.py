"""SASL mechanisms provided by plugins, for listeners that enable them."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Sequence

from twisted.internet.defer import CancelledError
from zope.interface import implementer

from kreplica.errors import SettingsError
from kreplica.interfaces import AuthenticationError, ISaslMechanism, ServerExchange
from kreplica.service.plugins.discovery import makers_of
from kreplica.service.plugins.plugin_failures import PluginFailures
from kreplica.settings.broker_settings import BrokerSettings

ENABLED = "sasl.enabled.mechanisms"


def enabled_mechanisms(settings: BrokerSettings) -> Iterator[tuple[str, str]]:
    """Yield the names of the enabled mechanisms of each listener with SASL, as (listener, mechanism)."""
    for endpoint in settings.listeners:
        if endpoint.security_protocol.startswith("SASL"):
            names: Sequence[str] = settings.of_listener(endpoint.listener, (ENABLED,))[ENABLED]
            for name in names:
                yield endpoint.listener, name.upper()


def plugin_mechanisms(settings: BrokerSettings) -> Sequence[str]:
    """Return the names of enabled mechanisms that are not built in.

    :raise SettingsError: no plugin provides one of them.
    """
    enabled = list(enabled_mechanisms(settings))
    if not enabled:
        return ()
    # Imported here because most brokers have no listener with SASL.
    from kreplica.security.sasl.mechanisms import BUILT_IN, unsupported

    others = {name: listener for listener, name in enabled if name not in BUILT_IN}
    known = {maker.name for maker in makers_of(ISaslMechanism)} if others else ()
    for name, listener in others.items():
        if name not in known:
            raise SettingsError(unsupported(name, f"{ENABLED} of the listener {listener}"))
    return list(others)


@implementer(ISaslMechanism)
class ChosenMechanism:
    """A mechanism provided by a plugin; if the plugin raises an unexpected exception, the client is rejected."""

    def __init__(self, plugin: ISaslMechanism, failures: PluginFailures) -> None:
        self._plugin = plugin
        self._failures = failures

    def new_exchange(self, listener: str) -> _GuardedExchange:
        """Begin the authentication of one client."""
        return _GuardedExchange(self._plugin, listener, self._failures)


class _GuardedExchange:
    """An exchange whose unexpected exceptions are recorded."""

    def __init__(self, plugin: ISaslMechanism, listener: str, failures: PluginFailures) -> None:
        self.user: str | None = None
        self.expires_ms: int | None = None
        self.uses_token = False
        self._plugin = plugin
        self._listener = listener
        self._failures = failures
        self._exchange: ServerExchange | None = None

    def step(self, token: bytes) -> bytes | Awaitable[bytes]:
        try:
            if self._exchange is None:
                self._exchange = self._plugin.new_exchange(self._listener)
            outcome = self._exchange.step(token)
        except AuthenticationError:
            raise
        except Exception:
            raise self._failed() from None
        if isinstance(outcome, bytes):
            self._copy(self._exchange)
            return outcome
        return self._wait(self._exchange, outcome)

    async def _wait(self, exchange: ServerExchange, outcome: Awaitable[bytes]) -> bytes:
        try:
            response = await outcome
        except (AuthenticationError, CancelledError):
            raise
        except Exception:
            raise self._failed() from None
        self._copy(exchange)
        return response

    def _copy(self, exchange: ServerExchange) -> None:
        self.user, self.expires_ms = exchange.user, exchange.expires_ms

    def _failed(self) -> AuthenticationError:
        self._failures.record_exception("authenticating a client")
        return AuthenticationError("internal error of the broker")
