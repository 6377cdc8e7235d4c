"""What the controller's work costs: counters of one controller, and what each event added to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from twisted.internet.defer import Deferred

from kreplica.controller.events import Event
from kreplica.zookeeper import (
    Operation,
    OperationResult,
    Read,
    ReadResult,
    Stat,
    WatchEvent,
    ZooKeeperClient,
)

T = TypeVar("T")


class Cost(NamedTuple):
    """So much was done.

    :param zookeeper_round_trips: how often ZooKeeper was waited for: requests that travel together are one.
    :param zookeeper_requests: requests to ZooKeeper, a multi being one.
    :param commands: requests to brokers.
    """

    zookeeper_round_trips: int = 0
    zookeeper_requests: int = 0
    commands: int = 0


@dataclass(frozen=True, slots=True)
class EventFigures:
    """What became of one event.

    :param waited_s: in the queue, in seconds.
    :param handled_s: from the first step to the last.
    """

    event: Event
    waited_s: float
    handled_s: float
    cost: Cost


class Counters:
    """Counts from the start of the controller on; nothing is ever taken back.

    :ivar unanswered: commands that a broker did not answer in time.
    """

    def __init__(self) -> None:
        self.commands = 0
        self.unanswered = 0
        self._round_trips = 0
        self._requests = 0
        self._under_way = 0

    def request(self, answer: Deferred[T]) -> Deferred[T]:
        """A request to ZooKeeper has been sent."""
        self._requests += 1
        if not self._under_way:
            self._round_trips += 1
        self._under_way += 1
        return answer.addBoth(self._answered)

    def _answered(self, result: T) -> T:
        self._under_way -= 1
        return result

    @property
    def cost(self) -> Cost:
        """Of everything so far."""
        return Cost(self._round_trips, self._requests, self.commands)


def difference(later: Cost, earlier: Cost) -> Cost:
    """What came between the two."""
    return Cost(*(after - before for after, before in zip(later, earlier, strict=True)))


class CountedClient:
    """The part of the ZooKeeper client that a controller in office uses, each request counted.

    Its only write is a multi, since every one of them has to check the controller's epoch (``state_writes``).
    """

    def __init__(self, client: ZooKeeperClient, counters: Counters) -> None:
        self._client = client
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
        return self._counted(self._client.multi(operations))

    def multi_read(self, reads: Sequence[Read]) -> Deferred[list[ReadResult]]:
        return self._counted(self._client.multi_read(reads))
