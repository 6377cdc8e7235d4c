"""Before a broker stops it asks the controller to have others lead what it leads, until nothing is left."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from kreplica.client.connection import connect
from kreplica.client.errors import ClientError
from kreplica.errors import ErrorCode
from kreplica.model import Endpoint, TopicPartition
from kreplica.runtime import Reactor
from kreplica.wire.messages import CONTROLLED_SHUTDOWN

log = Logger()


@dataclass(frozen=True, slots=True)
class ControlledShutdownConfig:
    """Kafka's settings of the same names.

    :param retries_max: ``controlled.shutdown.max.retries``: how often the controller is asked again.
    :param backoff_s: ``controlled.shutdown.retry.backoff.ms``: how long followers get to catch up before that.
    :param timeout_s: how long the controller may take to answer: it answers when the others lead.
    """

    retries_max: int = 3
    backoff_s: float = 5.0
    timeout_s: float = 30.0


class Neighbours(Protocol):
    """What the broker has been told of the others, which may be a moment old."""

    def controller(self) -> Endpoint | None:
        """Where the controller is asked; None where nobody knows one."""

    def others_live(self) -> bool:
        """Whether there is another broker at all."""

    def may_take_over(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether any of these has another replica that lives."""

    def wait_until(self, condition: Callable[[], bool], timeout_s: float) -> Deferred[bool]:
        """Fires with True as soon as the condition holds, with False when the time is up."""


class ControlledShutdown:
    """Owned by a broker that stops; asks on a connection of its own, also where it is the controller itself.

    :param broker_epoch: of this broker's registration: the controller refuses an older one.
    """

    def __init__(
        self,
        reactor: Reactor,
        broker_id: int,
        broker_epoch: int,
        neighbours: Neighbours,
        config: ControlledShutdownConfig,
    ) -> None:
        self._reactor = reactor
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._neighbours = neighbours
        self._config = config

    async def hand_over(self) -> None:
        """Hand over what others can take; whatever is left when this returns is lost to clients until they notice."""
        remaining: tuple[TopicPartition, ...] | None = None
        for attempts_left in range(self._config.retries_max, -1, -1):
            if not self._worth_asking(remaining):
                return
            controller = self._neighbours.controller()
            answer = None if controller is None else await self._ask(controller)
            if answer == ():
                log.info("broker {broker} has handed over all that it led", broker=self._broker_id)
                return
            remaining = remaining if answer is None else answer
            if attempts_left:
                await self._wait(controller, remaining)
        log.warn(
            "broker {broker} stops although {what}",
            broker=self._broker_id,
            what="no controller has answered" if remaining is None else f"it leads {len(remaining)} partitions",
        )

    def _worth_asking(self, remaining: tuple[TopicPartition, ...] | None) -> bool:
        neighbours = self._neighbours
        return neighbours.others_live() and (remaining is None or neighbours.may_take_over(remaining))

    async def _wait(self, asked: Endpoint | None, remaining: tuple[TopicPartition, ...] | None) -> None:
        """Give followers time to catch up, or another controller to be elected; no longer than that can help."""

        def over() -> bool:
            return not self._worth_asking(remaining) or self._neighbours.controller() != asked

        await self._neighbours.wait_until(over, self._config.backoff_s)

    async def _ask(self, controller: Endpoint) -> tuple[TopicPartition, ...] | None:
        """The partitions that this broker still leads; None where the controller gave no answer that counts."""
        body = {"broker_id": self._broker_id, "broker_epoch": self._broker_epoch}
        timeout_s = self._config.timeout_s
        client_id = f"broker-{self._broker_id}"
        try:
            connection = await connect(
                self._reactor, controller.host, controller.port, client_id=client_id, connect_timeout_s=timeout_s
            )
            try:
                version = CONTROLLED_SHUTDOWN.versions[1]
                answer = await connection.request(CONTROLLED_SHUTDOWN, version, body, timeout_s=timeout_s)
            finally:
                await connection.close()
        except ClientError as error:
            # It may be stopping too, and another takes its place: what comes of it all is told in the end.
            log.info("handing over, asking again: {error}", error=str(error))
            return None
        if answer["error_code"]:
            code = ErrorCode(answer["error_code"])
            log.info("handing over, asking again: {at} says {error}", at=str(controller), error=code.name)
            return None
        rows = answer["remaining_partitions"]
        return tuple(TopicPartition(row["topic_name"], row["partition_index"]) for row in rows)
