"""Removes expired delegation tokens while this broker is the controller."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from kreplica.errors import KafkaError
from kreplica.membership.delegation_tokens.token_store import TokenStore
from kreplica.runtime import Reactor

log = Logger()


class TokenSweep:
    """Removes expired tokens at regular intervals; owned by the broker.

    :param is_controller: returns True while this broker is the controller; other brokers remove nothing.
    :param interval_s: ``delegation.token.expiry.check.interval.ms``.
    """

    def __init__(
        self, reactor: Reactor, store: TokenStore, is_controller: Callable[[], bool], interval_s: float
    ) -> None:
        self._reactor = reactor
        self._store = store
        self._is_controller = is_controller
        self._interval_s = interval_s
        self._timer: IDelayedCall | None = None
        self._sweeping: Deferred[None] | None = None
        self._stopped = False

    def start(self) -> None:
        """Start sweeping, once per interval."""
        self._timer = self._reactor.callLater(self._interval_s, self._sweep)

    def stop(self) -> None:
        """Stop sweeping, and cancel a sweep in progress."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._sweeping is not None:
            self._sweeping.cancel()

    def _sweep(self) -> None:
        self._timer = None
        self._sweeping = sweeping = Deferred.fromCoroutine(self._remove_expired())
        sweeping.addErrback(lambda failure: log.failure("cannot remove expired delegation tokens", failure))
        sweeping.addBoth(self._swept)  # called at once if there is nothing to remove

    async def _remove_expired(self) -> None:
        if not self._is_controller():
            return
        try:
            await self._store.remove_expired()
        except KafkaError as error:
            log.warn("cannot remove expired delegation tokens: {error}", error=str(error))
        except CancelledError:
            pass  # cancelled by stop

    def _swept(self, _: None) -> None:
        self._sweeping = None
        if not self._stopped:
            self.start()
