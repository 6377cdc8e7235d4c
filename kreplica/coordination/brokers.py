"""Connections to the other brokers, for what coordinators and leaders ask of each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from kreplica.client.client_runtime import runtime_of
from kreplica.client.connections import Connections
from kreplica.client_core.addresses import Address
from kreplica.client_core.errors import ConnectionFailed
from kreplica.client_core.options import ClientOptions
from kreplica.model import Endpoint
from kreplica.runtime import Runtime
from kreplica.wire.framing import REQUEST_SIZE_MAX
from kreplica.wire.messages import Api

log = Logger()

CONNECT_TIMEOUT_S = 5.0


class BrokerConnections:
    """One pipelined connection to each broker that something was asked of; made when needed, and anew when it is lost.

    Owned by a broker, and used by both of its coordinators; also leads to that broker itself.  Whoever asks again after
    a failure connects again at once: how often that is, the one who asks decides.

    :param endpoint_of: where a broker listens for brokers; None where it does not live, as far as is known.
    :param client_id: by which the others know this broker.
    """

    def __init__(self, runtime: Runtime, endpoint_of: Callable[[int], Endpoint | None], client_id: str) -> None:
        options = ClientOptions(
            client_id=client_id,
            connect_timeout_s=CONNECT_TIMEOUT_S,
            backoff_s=0.0,
            answer_size_max=REQUEST_SIZE_MAX,
        )
        self._connections = Connections(runtime_of(runtime), options)
        self._endpoint_of = endpoint_of
        self._addresses: dict[int, Address] = {}

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
        connection = await self._connections.to(self._address(broker_id))
        return await connection.request(api, connection.version(api, at_most), body, timeout_s=timeout_s)

    def _address(self, broker_id: int) -> Address:
        """Where a broker listens now; the connection to where it listened before is closed."""
        endpoint = self._endpoint_of(broker_id)
        if endpoint is None:
            raise ConnectionFailed(f"broker {broker_id} is not known to live")
        address, before = Address(endpoint.host, endpoint.port), self._addresses.get(broker_id)
        if before != address:
            self._addresses[broker_id] = address
            if before is not None:
                self._connections.forget(before)
        return address

    def stop(self) -> None:
        """Close all connections; what is under way fails with ``ConnectionLost``, what comes later fails too."""
        Deferred.fromCoroutine(self._connections.close()).addErrback(_closing_ended)


def _closing_ended(failure: Failure) -> None:
    if failure.check(CancelledError) is None:
        log.failure("closing the connections to other brokers", failure)
