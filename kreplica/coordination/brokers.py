"""Connections to the other brokers, for what coordinators and leaders ask of each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, fail
from twisted.logger import Logger
from twisted.python.failure import Failure

from kreplica.client.connection import Connection, connect
from kreplica.client.errors import ClientError, ConnectionFailed
from kreplica.errors import KafkaError
from kreplica.model import Endpoint
from kreplica.runtime import Reactor
from kreplica.wire.messages import Api

log = Logger()

CONNECT_TIMEOUT_S = 5.0


class _Way:
    """The way to one broker: its connection, or who waits for it."""

    __slots__ = ("connecting", "connection", "endpoint", "waiting")

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.connection: Connection | None = None
        self.connecting: Deferred[None] | None = None
        self.waiting: dict[Deferred[Connection], None] = {}


class BrokerConnections:
    """One pipelined connection to each broker that something was asked of; made when needed, and anew when it is lost.

    Owned by a broker, and used by both of its coordinators; also leads to that broker itself.

    :param endpoint_of: where a broker listens for brokers; None where it does not live, as far as is known.
    :param client_id: by which the others know this broker.
    """

    def __init__(self, reactor: Reactor, endpoint_of: Callable[[int], Endpoint | None], client_id: str) -> None:
        self._reactor = reactor
        self._endpoint_of = endpoint_of
        self._client_id = client_id
        self._ways: dict[int, _Way] = {}
        self._stopped = False

    def request(
        self, broker_id: int, api: Api, body: dict[str, Any], *, timeout_s: float, at_most: int | None = None
    ) -> Deferred[dict[str, Any]]:
        """Ask a broker something, in the highest version that both speak.

        :param at_most: the highest version that is wanted, or None.
        :return: fires with the answer's body; fails with a ``ClientError``: whether the broker has acted is not known
            then, save for ``ConnectionFailed``, ``TooManyRequests`` and ``UnsupportedVersion``.  May be cancelled.
        """
        return Deferred.fromCoroutine(self._request(broker_id, api, body, timeout_s, at_most))

    async def _request(
        self, broker_id: int, api: Api, body: dict[str, Any], timeout_s: float, at_most: int | None
    ) -> dict[str, Any]:
        connection = await self._connection_to(broker_id)
        return await connection.request(api, connection.version(api, at_most), body, timeout_s=timeout_s)

    def _connection_to(self, broker_id: int) -> Deferred[Connection]:
        endpoint = self._endpoint_of(broker_id)
        if self._stopped or endpoint is None:
            return fail(ConnectionFailed(f"broker {broker_id} is not known to live"))
        way = self._ways.get(broker_id)
        if way is not None and (way.endpoint != endpoint or (way.connection is not None and way.connection.closed)):
            self._give_up(broker_id)
            way = None
        if way is None:
            way = self._ways[broker_id] = _Way(endpoint)
        waiter: Deferred[Connection] = Deferred(lambda waiter: way.waiting.pop(waiter, None) and None)
        if way.connection is not None:
            waiter.callback(way.connection)
            return waiter
        way.waiting[waiter] = None
        if way.connecting is None:
            way.connecting = Deferred.fromCoroutine(self._connect(broker_id, way))
            way.connecting.addErrback(_connecting_ended)
        return waiter

    async def _connect(self, broker_id: int, way: _Way) -> None:
        endpoint = way.endpoint
        error: Exception | None = None
        try:
            connection = await connect(
                self._reactor,
                endpoint.host,
                endpoint.port,
                client_id=self._client_id,
                connect_timeout_s=CONNECT_TIMEOUT_S,
            )
            await _negotiate(connection)
            way.connection = connection
        except (ClientError, KafkaError) as refused:
            error = refused if isinstance(refused, ClientError) else ConnectionFailed(str(refused))
            if self._ways.get(broker_id) is way:
                del self._ways[broker_id]
        waiting, way.waiting = way.waiting, {}
        for waiter in waiting:
            if error is not None:
                waiter.errback(error)
            else:
                waiter.callback(connection)

    def _give_up(self, broker_id: int) -> None:
        way = self._ways.pop(broker_id)
        if way.connection is None and way.connecting is not None:
            way.connecting.cancel()
        elif way.connection is not None:
            way.connection.close().addErrback(lambda failure: log.failure("closing a connection", failure))
        waiting, way.waiting = way.waiting, {}
        for waiter in waiting:
            waiter.errback(ConnectionFailed(f"broker {broker_id} has moved, or this one stops"))

    def stop(self) -> None:
        """Close all connections; what is under way fails with ``ConnectionLost``, what comes later too."""
        self._stopped = True
        for broker_id in list(self._ways):
            self._give_up(broker_id)


async def _negotiate(connection: Connection) -> None:
    try:
        await connection.negotiate(CONNECT_TIMEOUT_S)
    except BaseException:
        connection.close().addErrback(lambda failure: log.failure("closing a connection", failure))
        raise


def _connecting_ended(failure: Failure) -> None:
    if failure.check(CancelledError) is None:
        log.failure("connecting to a broker", failure)
