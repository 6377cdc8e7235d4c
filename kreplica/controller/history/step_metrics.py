"""Costs of the controller's work: counters of one controller, and their increase with each event."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from kreplica.controller.dependencies import Client
from kreplica.controller.effects.command_batch import Command
from kreplica.controller.event_types import Event
from kreplica.controller.history.step_timeline import Timeline
from kreplica.runtime.distribution import Distribution
from kreplica.zookeeper import (
    Operation,
    OperationResult,
    Read,
    ReadResult,
    Stat,
    WatchEvent,
)

log = Logger()

ROUND_TRIPS = (0, 1, 2, 3, 4, 6, 8, 12, 20, 50)
"""Histogram bounds for the round trips of one event."""

T = TypeVar("T")


class Cost(NamedTuple):
    """Work done for one or more events.

    :param zookeeper_round_trips: ZooKeeper round trips; concurrent requests are counted as a single round trip.
    :param zookeeper_requests: ZooKeeper requests; a multi is counted as a single request.
    :param commands: requests to brokers.
    :param zookeeper_operations: reads and writes within multis.
    :param zookeeper_bytes: paths and data in multis, and data in responses to multi-reads.
    """

    zookeeper_round_trips: int = 0
    zookeeper_requests: int = 0
    commands: int = 0
    zookeeper_operations: int = 0
    zookeeper_bytes: int = 0


@dataclass(frozen=True, slots=True)
class EventMetrics:
    """Metrics of one event.

    :param waited_s: seconds in the queue.
    :param handled_s: seconds from start to end of the handling.
    """

    event: Event
    waited_s: float
    handled_s: float
    cost: Cost


class EventTotals:
    """Distributions over all handled events.

    :ivar waited: seconds in the queue.
    :ivar handled: seconds from start to end of the handling.
    :ivar round_trips: ZooKeeper round trips.
    """

    def __init__(self) -> None:
        self.waited = Distribution()
        self.handled = Distribution()
        self.round_trips = Distribution(ROUND_TRIPS)

    def note(self, event: EventMetrics) -> None:
        self.waited.note(event.waited_s)
        self.handled.note(event.handled_s)
        self.round_trips.note(event.cost.zookeeper_round_trips)


class Counters:
    """Counters since the start of the controller; they only increase.

    :param timeline: receives the times of the counted work.
    :ivar unanswered: number of commands to which a broker did not respond in time.
    :ivar resumptions: number of ZooKeeper requests that were continued after a lost connection.
    """

    def __init__(self, timeline: Timeline | None = None) -> None:
        self.timeline = timeline or Timeline(lambda: 0.0)
        self.commands = 0
        self.unanswered = 0
        self.resumptions = 0
        self.operations = 0
        self.bytes = 0
        self._round_trips = 0
        self._requests = 0
        self._in_flight = 0

    def request(self, response: Deferred[T]) -> Deferred[T]:
        """Count a request to ZooKeeper; it is a new round trip if no other request is in flight."""
        self._requests += 1
        if not self._in_flight:
            self._round_trips += 1
        self._in_flight += 1
        return response.addBoth(self._answered)

    def _answered(self, result: T) -> T:
        self._in_flight -= 1
        return result

    def resumed(self) -> None:
        """Count a request to ZooKeeper that is continued after a lost connection."""
        self.resumptions += 1

    @property
    def cost(self) -> Cost:
        """Total cost so far."""
        return Cost(self._round_trips, self._requests, self.commands, self.operations, self.bytes)

    def command_queued(self, broker_id: int, command: Command, *, awaited: bool) -> None:
        """Count a command that is queued for a broker.

        :param awaited: True if the step ends only when the broker has responded.
        """
        self.commands += 1
        self.timeline.queued(broker_id, command, awaited=awaited)

    def command_late(self, broker_id: int, command: Command) -> None:
        """Count and log a command to which the broker did not respond in time; its channel keeps retrying."""
        self.unanswered += 1
        log.error(
            "controller: broker {broker} did not respond to {api} for {count} partitions in time",
            broker=broker_id,
            api=command.api.name,
            count=len(command.partitions),
        )


def difference(later: Cost, earlier: Cost) -> Cost:
    """Return the increase from ``earlier`` to ``later``."""
    return Cost(*(after - before for after, before in zip(later, earlier, strict=True)))


class CountedClient:
    """A term's ZooKeeper client, which counts each request.

    Its only write is a multi, because every write must check the controller's epoch (``effects.state_writes``).
    """

    def __init__(self, client: Client, counters: Counters) -> None:
        self._client = client
        self._counters = counters
        self._counted = counters.request

    def exists(self, path: str, watch: Callable[[WatchEvent], None] | None = None) -> Deferred[Stat | None]:
        return self._counted(self._client.exists(path, watch))

    def get_data(
        self, path: str, watch: Callable[[WatchEvent], None] | None = None
    ) -> Deferred[tuple[bytes, Stat]]:
        return self._counted(self._client.get_data(path, watch))

    def get_children(self, path: str, watch: Callable[[WatchEvent], None] | None = None) -> Deferred[list[str]]:
        return self._counted(self._client.get_children(path, watch))

    def multi(self, operations: Sequence[Operation]) -> Deferred[list[OperationResult]]:
        self._counters.operations += len(operations)
        self._counters.bytes += sum(len(each.path) + len(getattr(each, "data", None) or b"") for each in operations)
        return self._counted(self._client.multi(operations)).addBoth(self._wrote)

    def _wrote(self, result: T) -> T:
        self._counters.timeline.wrote()
        return result

    def multi_read(self, reads: Sequence[Read]) -> Deferred[list[ReadResult]]:
        self._counters.operations += len(reads)
        return self._counted(self._client.multi_read(reads)).addCallback(self._was_read)

    def _was_read(self, results: list[ReadResult]) -> list[ReadResult]:
        self._counters.bytes += sum(len(result[0]) for result in results if isinstance(result, tuple))
        return results
