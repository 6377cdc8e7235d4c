"""Connections from coordinators and leaders to other brokers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from kreplica.client.client_runtime import EndpointMaker, runtime_of, tcp_endpoint
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
    """One pipelined connection to each broker, including this one; opened on demand and reopened after a loss.

    Owned by the broker and shared by its group and transaction coordinators. There is no reconnect backoff: callers
    must delay their retries.

    :param endpoint_of: returns the inter-broker endpoint of a broker; None if it is not alive.
    :param client_id: client id sent in requests.
    :param endpoint: creates the client endpoints of the connections.
    """

    def __init__(
        self,
        runtime: Runtime,
        endpoint_of: Callable[[int], Endpoint | None],
        client_id: str,
        endpoint: EndpointMaker = tcp_endpoint,
    ) -> None:
        options = ClientOptions(
            client_id=client_id,
            connect_timeout_s=CONNECT_TIMEOUT_S,
            backoff_s=0.0,
            response_size_max=REQUEST_SIZE_MAX,
        )
        self._connections = Connections(replace(runtime_of(runtime), endpoint=endpoint), options)
        self._endpoint_of = endpoint_of
        self._addresses: dict[int, Address] = {}

    def request(
        self, broker_id: int, api: Api, body: dict[str, Any], *, timeout_s: float, at_most: int | None = None
    ) -> Deferred[dict[str, Any]]:
        """Send a request to a broker, in the highest version that both brokers support.

        :param at_most: maximum version, or None.
        :return: fires with the response body, or fails with a ``ClientError``. After an error other than
            ``ConnectionFailed``, ``TooManyRequests`` and ``UnsupportedVersion``, the broker may have executed the
            request. The Deferred may be cancelled.
        """
        return Deferred.fromCoroutine(self._request(broker_id, api, body, timeout_s, at_most))

    async def _request(
        self, broker_id: int, api: Api, body: dict[str, Any], timeout_s: float, at_most: int | None
    ) -> dict[str, Any]:
        connection = await self._connections.to(self._address(broker_id))
        return await connection.request(api, connection.version(api, at_most), body, timeout_s=timeout_s)

    def _address(self, broker_id: int) -> Address:
        """Return the current address of a broker; if it has changed, close the connection to the previous one."""
        endpoint = self._endpoint_of(broker_id)
        if endpoint is None:
            raise ConnectionFailed(f"broker {broker_id} is not alive according to the metadata")
        address, previous = Address(endpoint.host, endpoint.port), self._addresses.get(broker_id)
        if previous != address:
            self._addresses[broker_id] = address
            if previous is not None:
                self._connections.forget(previous)
        return address

    def stop(self) -> None:
        """Close all connections; pending requests fail with ``ConnectionLost``, later ones with ``ClientClosed``."""
        Deferred.fromCoroutine(self._connections.close()).addErrback(_log_close_failure)


def _log_close_failure(failure: Failure) -> None:
    if failure.check(CancelledError) is None:
        log.failure("cannot close the connections to other brokers", failure)
