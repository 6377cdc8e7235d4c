"""Controlled shutdown: the controller moves the leadership of a broker's partitions before the broker stops."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from kreplica.client.client_runtime import EndpointMaker, tcp_endpoint
from kreplica.client.connection import connect
from kreplica.client.errors import ClientError
from kreplica.errors import ErrorCode
from kreplica.model import Endpoint, TopicPartition
from kreplica.runtime import Reactor
from kreplica.wire.messages import CONTROLLED_SHUTDOWN

log = Logger()


@dataclass(frozen=True, slots=True)
class ControlledShutdownConfig:
    """Settings for controlled shutdown.

    :param retries_max: ``controlled.shutdown.max.retries``: maximum number of retries.
    :param backoff_s: ``controlled.shutdown.retry.backoff.ms``: delay before a retry, so that followers can catch up.
    :param timeout_s: request timeout; the controller responds once the new leaders are elected.
    :param endpoint: creates the endpoint of the connection to the controller.
    """

    retries_max: int = 3
    backoff_s: float = 5.0
    timeout_s: float = 30.0
    endpoint: EndpointMaker = tcp_endpoint


class PeerMetadata(Protocol):
    """This broker's view of the other brokers, which may be outdated."""

    def controller(self) -> Endpoint | None:
        """Return the controller's endpoint, or None if it is unknown."""

    def others_live(self) -> bool:
        """Return True if any other broker is alive."""

    def may_take_over(self, partitions: Iterable[TopicPartition]) -> bool:
        """Return True if any of these partitions has another live replica."""

    def wait_until(self, condition: Callable[[], bool], timeout_s: float) -> Deferred[bool]:
        """Fire with True once the condition holds, or with False after the timeout."""


class ControlledShutdown:
    """Controlled shutdown of one broker; opens its own connection, even if this broker is the controller.

    :param broker_epoch: epoch of this broker's registration; the controller rejects an outdated one.
    """

    def __init__(
        self,
        reactor: Reactor,
        broker_id: int,
        broker_epoch: int,
        peers: PeerMetadata,
        config: ControlledShutdownConfig,
    ) -> None:
        self._reactor = reactor
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._peers = peers
        self._config = config

    async def hand_over(self) -> None:
        """Ask the controller to move all leadership to other brokers, with retries; return even if some remains.

        Partitions that this broker still leads are unavailable until the controller notices that it has stopped.
        """
        remaining: tuple[TopicPartition, ...] | None = None
        for attempts_left in range(self._config.retries_max, -1, -1):
            if not self._can_progress(remaining):
                return
            controller = self._peers.controller()
            response = None if controller is None else await self._request_shutdown(controller)
            if response == ():
                log.info("broker {broker} has handed over leadership of all its partitions", broker=self._broker_id)
                return
            remaining = remaining if response is None else response
            if attempts_left:
                await self._wait(controller, remaining)
        log.warn(
            "broker {broker} is stopping without completing the controlled shutdown: {what}",
            broker=self._broker_id,
            what="no response from a controller"
            if remaining is None
            else f"it still leads {len(remaining)} partitions",
        )

    def _can_progress(self, remaining: tuple[TopicPartition, ...] | None) -> bool:
        peers = self._peers
        return peers.others_live() and (remaining is None or peers.may_take_over(remaining))

    async def _wait(self, previous: Endpoint | None, remaining: tuple[TopicPartition, ...] | None) -> None:
        """Wait so that followers can catch up; return early if the controller changes or waiting cannot help."""

        def is_wait_over() -> bool:
            return not self._can_progress(remaining) or self._peers.controller() != previous

        await self._peers.wait_until(is_wait_over, self._config.backoff_s)

    async def _request_shutdown(self, controller: Endpoint) -> tuple[TopicPartition, ...] | None:
        """Return the partitions that this broker still leads, or None if there was no valid response."""
        body = {"broker_id": self._broker_id, "broker_epoch": self._broker_epoch}
        timeout_s = self._config.timeout_s
        client_id = f"broker-{self._broker_id}"
        try:
            connection = await connect(
                self._reactor,
                controller.host,
                controller.port,
                client_id=client_id,
                connect_timeout_s=timeout_s,
                endpoint=self._config.endpoint,
            )
            try:
                version = CONTROLLED_SHUTDOWN.versions[1]
                response = await connection.request(CONTROLLED_SHUTDOWN, version, body, timeout_s=timeout_s)
            finally:
                await connection.close()
        except ClientError as error:
            # The controller may be stopping too.  The final result is logged by hand_over.
            log.info("controlled shutdown request failed, retrying: {error}", error=str(error))
            return None
        if response["error_code"]:
            code = ErrorCode(response["error_code"])
            log.info("controlled shutdown rejected by {at} with {error}, retrying", at=str(controller), error=code.name)
            return None
        rows = response["remaining_partitions"]
        return tuple(TopicPartition(row["topic_name"], row["partition_index"]) for row in rows)
