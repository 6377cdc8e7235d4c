"""Keeps a broker registered: opens a new session and registers again after a session has expired."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger

from kreplica.errors import KreplicaError
from kreplica.membership.registration import BrokerIdInUse, register
from kreplica.model import BrokerRegistration
from kreplica.runtime import Reactor
from kreplica.runtime.pause import pause
from kreplica.zookeeper import SessionState, ZooKeeperClient, ZooKeeperError

log = Logger()

RETRY_SECONDS_MIN = 0.2
RETRY_SECONDS_MAX = 10.0


class Membership:
    """A broker's registration in ZooKeeper; owned by the broker.

    :param on_joined: called with each registration including its epoch; the first time before ``join`` returns.
    :param intact_since: returns the ``intact_since`` field of the next registration.
    :param on_replaced: called with a one-line reason if another broker registered with this broker id while there was
        no session; this broker must then stop.
    """

    def __init__(
        self,
        reactor: Reactor,
        rng: random.Random,
        client: ZooKeeperClient,
        on_joined: Callable[[BrokerRegistration], None],
        intact_since: Callable[[], int],
        on_replaced: Callable[[str], None],
    ) -> None:
        self._reactor = reactor
        self._random = rng
        self._client = client
        self._on_joined = on_joined
        self._intact_since = intact_since
        self._on_replaced = on_replaced
        self._wanted: BrokerRegistration | None = None
        self._rejoining: Deferred[None] | None = None
        self._forget_listener: Callable[[], None] | None = None
        self.registered = False
        """True while this broker believes that it is registered in ``/brokers/ids``."""

    async def join(self, registration: BrokerRegistration) -> None:
        """Register now, and again after every lost session.

        :raise BrokerIdInUse: another broker has this id.
        """
        self._wanted = registration
        await self._register(registration)
        self._forget_listener = self._client.on_session_event(self._session_changed)

    async def _register(self, wanted: BrokerRegistration) -> None:
        registration = replace(wanted, intact_since=self._intact_since())
        registered = await register(self._reactor, self._client, registration)
        self.registered = True
        self._on_joined(registered)

    async def leave(self) -> None:
        """Stop registering; the registration ends with the session."""
        self.registered = False
        if self._forget_listener is not None:
            self._forget_listener()
        if self._rejoining is not None:
            self._rejoining.cancel()

    def _session_changed(self, state: SessionState) -> None:
        if state.lost and self._rejoining is None:
            log.warn("the ZooKeeper session has ended ({state}); registering again", state=state.value)
            self.registered = False
            self._rejoining = Deferred.fromCoroutine(self._rejoin())
            self._rejoining.addErrback(lambda failure: log.failure("registering again failed", failure))

    async def _rejoin(self) -> None:
        assert self._wanted is not None
        delay = RETRY_SECONDS_MIN
        try:
            while True:
                try:
                    if self._client.state.ended:  # the session may still be open if only the registration failed
                        await self._client.renew()
                    await self._register(self._wanted)
                    return
                except BrokerIdInUse as error:
                    self._on_replaced(str(error))
                    return
                except ZooKeeperError as error:
                    log.warn("registering again failed, retrying: {error}", error=str(error))
                except KreplicaError as error:
                    # For example a malformed registration written by another program: keep trying.
                    log.error("registering again failed, retrying: {error}", error=str(error))
                await pause(self._reactor, delay * self._random.uniform(0.5, 1.0))
                delay = min(delay * 2, RETRY_SECONDS_MAX)
        except CancelledError:
            pass
        finally:
            self._rejoining = None
