"""Connections from a member to its group's coordinator."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from kreplica.client.cluster import Cluster
from kreplica.client.connection import Connection
from kreplica.client.connections import Connections
from kreplica.client.group.error_actions import ErrorAction, error_action
from kreplica.client_core.addresses import Address
from kreplica.client_core.errors import ClientClosed, ClientError, ConnectionLost, check
from kreplica.client_core.metadata import CoordinatorKind
from kreplica.wire.messages import Api

log = Logger()


class CoordinatorConnections:
    """The two connections from a member to its coordinator; the member closes them.

    JoinGroup and SyncGroup are sent on their own connection, because they would delay later responses until the
    rebalance completes.
    """

    def __init__(self, cluster: Cluster, group_id: str) -> None:
        self._cluster = cluster
        self._group_id = group_id
        self._short_request_connections = cluster.new_connections()
        self._long_request_connections = cluster.new_connections()
        self._long_address: Address | None = None
        self._closing: dict[Deferred[None], None] = {}

    async def request(
        self, api: Api, body: dict[str, Any], *, at_most: int | None = None, timeout_s: float | None = None
    ) -> dict[str, Any]:
        """Send a request to which the coordinator responds immediately.

        :raise ClientError: no response was received, or it is an error.
        """
        connection = await self.connection()
        try:
            response = await self._cluster.request(connection, api, body, at_most=at_most, timeout_s=timeout_s)
            if "error_code" in response:
                check(response, f"{api.name} in group {self._group_id}")
        except ClientError as error:
            self.process_error(error)
            raise
        return response

    async def request_long(self, api: Api, body: dict[str, Any], *, timeout_s: float) -> dict[str, Any]:
        """Send a request to which the coordinator responds when the rebalance progresses.

        :return: the response, even with an error code, because a MEMBER_ID_REQUIRED response contains the member id.
        :raise ClientError: no response was received.
        """
        address = self._long_address = await self._address()
        connections = self._long_request_connections
        try:
            connection = await connections.to(address)
            return await self._cluster.request(connection, api, body, timeout_s=timeout_s)
        except ClientClosed as error:
            if connections is self._long_request_connections:
                raise
            raise ConnectionLost(f"{address}: {api.name} was aborted") from error
        except ClientError as error:
            self.process_error(error)
            raise
        finally:
            self._long_address = None

    async def connection(self) -> Connection:
        """Return the connection for requests to which the coordinator responds immediately.

        :raise ClientError: the connection could not be opened.
        """
        address = await self._address()
        if self._long_address not in (None, address):
            self.abort_joining()
        try:
            return await self._short_request_connections.to(address)
        except ClientError as error:
            self.process_error(error)
            raise

    async def look_up(self) -> None:
        """Look up the coordinator; if it changed, abort long requests to the previous one.

        :raise ClientError: no broker knows the coordinator.
        """
        self._forget_coordinator()
        address = await self._address()
        if self._long_address not in (None, address):
            self.abort_joining()

    def abort_joining(self) -> None:
        """Close the connection of long requests; they fail with ``ConnectionLost``."""
        previous, self._long_request_connections = self._long_request_connections, self._cluster.new_connections()
        self._close(previous)

    def process_error(self, error: ClientError) -> None:
        """Forget the coordinator if the error may mean that it has moved."""
        if error_action(error) is ErrorAction.LOOK_UP:
            self._forget_coordinator()

    def _forget_coordinator(self) -> None:
        self._cluster.forget_coordinator(CoordinatorKind.GROUP, self._group_id)

    async def close(self) -> None:
        """Close the connections."""
        self._close(self._long_request_connections)
        self._close(self._short_request_connections)
        for closing in list(self._closing):
            await closing

    async def _address(self) -> Address:
        return await self._cluster.coordinator(CoordinatorKind.GROUP, self._group_id)

    def _close(self, connections: Connections) -> None:
        closing = Deferred.fromCoroutine(connections.close())
        self._closing[closing] = None

        def closed(outcome: object) -> None:
            self._closing.pop(closing, None)

        closing.addErrback(lambda failure: log.failure("cannot close a connection", failure))
        closing.addBoth(closed)
