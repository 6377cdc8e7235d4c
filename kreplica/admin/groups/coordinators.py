"""Sends requests to the coordinator of a group, and retries after it has moved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from kreplica.admin.cluster_state.published_metadata import BrokerConnections
from kreplica.client.errors import ConnectionFailed
from kreplica.errors import ErrorCode, KafkaError
from kreplica.runtime import Reactor
from kreplica.runtime.pause import pause
from kreplica.wire.messages import FIND_COORDINATOR, Api

REQUEST_TIMEOUT_S = 5.0
RETRY_SECONDS_MAX = 5.0
RETRY_DELAY_S = 0.1

GROUP = 0
"""The key type of groups in FindCoordinator."""

_RETRIABLE = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)


class CoordinatorLookup(Protocol):
    """Lookup of group coordinators in a broker's metadata."""

    @property
    def has_any(self) -> bool:
        """Return True if the offsets topic exists; without it there are no groups."""

    def coordinator_of(self, group: str) -> int | None:
        """Return the ID of a group's coordinator, whether or not the group exists; None if no coordinator is alive."""


class GroupCoordinators:
    """Finds coordinators and sends requests to them.

    :param broker_id: this broker, which creates the offsets topic if necessary.
    """

    def __init__(
        self, reactor: Reactor, broker_id: int, lookup: CoordinatorLookup, connections: BrokerConnections
    ) -> None:
        self._reactor = reactor
        self._broker_id = broker_id
        self._connections = connections
        self.lookup = lookup

    def of(self, group: str) -> int:
        """Return the coordinator of a group.

        :raise KafkaError: GROUP_ID_NOT_FOUND if the offsets topic does not exist; COORDINATOR_NOT_AVAILABLE.
        """
        if not self.lookup.has_any:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group!r} does not exist")
        coordinator = self.lookup.coordinator_of(group)
        if coordinator is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"group {group!r} has no live coordinator")
        return coordinator

    async def request(
        self,
        group: str,
        api: Api,
        body: dict[str, Any],
        code_of: Callable[[dict[str, Any]], int],
    ) -> dict[str, Any]:
        """Send a request to the coordinator; retry if the request certainly had no effect.

        :param code_of: extracts the group's error code from a response.
        :return: the response, which may have any other error code.
        :raise KafkaError: no coordinator was found in time, or there are no groups.
        :raise ClientError: the coordinator did not respond.
        """
        until_s = self._reactor.seconds() + RETRY_SECONDS_MAX
        while True:
            error: Exception
            try:
                coordinator = self.of(group)
                response = await self._connections.request(coordinator, api, body, timeout_s=REQUEST_TIMEOUT_S)
                code = ErrorCode.of(code_of(response))
                if code not in _RETRIABLE:
                    return response
                error = KafkaError(code, f"broker {coordinator} is not ready to coordinate {group!r}")
            except ConnectionFailed as failed:
                error = failed
            except KafkaError as rejected:
                if rejected.code is not ErrorCode.COORDINATOR_NOT_AVAILABLE:
                    raise
                error = rejected
            if self._reactor.seconds() >= until_s:
                raise error
            await pause(self._reactor, RETRY_DELAY_S)

    async def ensure_coordinator(self, group: str) -> None:
        """Create the offsets topic if necessary; return when the group has a coordinator.

        :raise KafkaError: the group did not get a coordinator in time.
        """
        until_s = self._reactor.seconds() + RETRY_SECONDS_MAX
        body = {"key": group, "key_type": GROUP, "coordinator_keys": [group]}
        while not self.lookup.has_any or self.lookup.coordinator_of(group) is None:
            if self._reactor.seconds() >= until_s:
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"group {group!r} has no coordinator yet")
            await self._connections.request(self._broker_id, FIND_COORDINATOR, body, timeout_s=REQUEST_TIMEOUT_S)
            await pause(self._reactor, RETRY_DELAY_S)
