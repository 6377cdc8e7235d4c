"""Brokers with different numbers of partitions, connections and consumer groups, and measurements of their costs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.growth_groups import Groups
from benchmarks.growth_load import AT_ONCE, Broker, Clients, Connection
from benchmarks.growth_topics import BATCH_BYTES, NEW, Session, Topics, create, partitions_of

Figures = dict[str, float]

FEW = 10
"""Number of partitions if the number of something else is varied."""

ALONE = 50
"""Number of fetches in a session that return records."""


@dataclass(frozen=True)
class Amount:
    """Size of a sample.

    :param requests: minimum number of requests of each kind.
    :param rounds: number of rounds for the medians, after a warm-up round.
    :param idle_s: seconds for which an idle broker is observed.
    """

    requests: int
    rounds: int
    idle_s: float


class Subject(AbstractContextManager["Subject"], ABC):
    """A broker with ``count`` partitions, connections or groups; a context manager that runs it for the block."""

    def __init__(self, directory: Path, count: int, amount: Amount) -> None:
        self._broker = Broker(directory)
        self._count = count
        self._amount = amount
        self._requests = max(amount.requests, count)  # at least one for each of them

    def __enter__(self) -> Subject:
        self._broker.start()
        try:
            self._prepare()
        except BaseException:
            self._broker.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._broker.kill()

    @abstractmethod
    def _prepare(self) -> None:
        """Create the partitions, connections or groups."""

    @abstractmethod
    def sample(self) -> Figures:
        """Measure each kind of request once."""

    def ended(self) -> Figures:
        """Return the measurements after the last sample."""
        return {"memory MB": self._broker.resident_mb(), "idle CPU %": self._broker.idle_percent(self._amount.idle_s)}


class Partitions(Subject):
    """A broker with many partitions and one client."""

    def _prepare(self) -> None:
        self._partitions = partitions_of(self._count)
        self._clients = Clients.one(self._broker.port)
        create(self._clients.connections[0], self._partitions)
        self._topics = Topics(self._broker, self._partitions)
        self._topics.write_once(self._clients)
        written = BATCH_BYTES * (self._requests + ALONE * NEW) * (self._amount.rounds + 1)
        self._topics.touch(written // self._count + 2 * BATCH_BYTES, written)

    def sample(self) -> Figures:
        count = self._requests
        figures = {
            "produce to one us": self._topics.produce_us(self._clients, self._amount.requests, to_one=True),
            "produce to all us": self._topics.produce_us(self._clients, count),
            "fetch from one us": self._topics.fetch_us(self._clients, self._amount.requests, from_one=True),
            "fetch from all us": self._topics.fetch_us(self._clients, count),
        }
        session = Session(self._broker, self._clients, self._partitions)
        figures["session without records us"] = session.fetch_us(self._amount.requests)
        figures["session, per record us"] = session.fetch_new_us(ALONE) / NEW
        session.close()
        return figures


class Connections(Subject):
    """A broker with many connections, which send requests in turn."""

    def _prepare(self) -> None:
        few = partitions_of(FEW)
        self._clients = Clients([Connection(self._broker.port) for _ in range(self._count)], 1)
        create(self._clients.connections[0], few)
        self._topics = Topics(self._broker, few)
        self._topics.write_once(self._clients)
        written = BATCH_BYTES * (self._requests + AT_ONCE) * (self._amount.rounds + 1)
        self._topics.touch(written, 0)

    def sample(self) -> Figures:
        return {
            "produce us": self._topics.produce_us(self._clients, self._requests),
            "fetch us": self._topics.fetch_us(self._clients, self._requests),
        }


class ConsumerGroups(Subject):
    """A broker with many groups, whose requests share a connection."""

    def _prepare(self) -> None:
        self._groups = Groups(self._broker, Clients.one(self._broker.port), self._count)

    def sample(self) -> Figures:
        return {
            "single commit us": self._groups.commit_us(self._requests, alone=True),
            "concurrent commit us": self._groups.commit_us(self._requests),
            "heartbeat us": self._groups.heartbeat_us(self._requests),
        }
