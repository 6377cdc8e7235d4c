"""What every broker knows of the cluster, told by the controller's UpdateMetadata requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from twisted.internet.defer import Deferred

from kreplica.model import LEADER_DURING_DELETE, ZERO_UUID, Endpoint
from kreplica.runtime import Reactor
from kreplica.runtime.slices import STEP_ROWS, Steps

IDS_FROM = 12
"""The first version of Metadata whose topics can be asked for by id."""

STEP_PARTITIONS = 500
"""Partitions of topics that are replaced in one step; each takes about a tenth of a microsecond."""

WHOLE = 2
"""The type of an UpdateMetadata request that says everything (KIP-866)."""


@dataclass(frozen=True, slots=True)
class LiveBroker:
    """A broker that lives, by the listeners that it has."""

    broker_id: int
    endpoints: dict[str, Endpoint]
    rack: str | None


class PartitionMetadata(NamedTuple):
    """A partition as the controller last published it (a tuple: an update may bring 10,000 of them)."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    offline_replicas: list[int]


@dataclass(frozen=True, slots=True, eq=False)
class TopicMetadata:
    name: str
    topic_id: UUID
    partitions: dict[int, PartitionMetadata]


class MetadataCache:
    """Owned by the broker's server.  Replaced piece by piece: a reader sees one whole topic or none.

    A topic that changes, and the live brokers when they change, are other objects than before: what was made from them
    can be kept for as long as they are the same objects.

    :ivar is_complete: a controller has said everything there is: a topic that is not here does not exist, as far as was
        told since.
    :ivar cluster_id: set when the broker has learned it, before it listens (clients crash on a null one).
    """

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self.cluster_id = ""
        self.is_complete = False
        self.controller_id = -1
        self.brokers: dict[int, LiveBroker] = {}
        self.topics: dict[str, TopicMetadata] = {}
        self._names: dict[UUID, str] = {}
        self._named_in: dict[int, frozenset[str]] = {}
        """The topics in the parts so far of metadata that say everything."""
        self._waiting: dict[Deferred[bool], Callable[[], bool]] = {}
        self._observers: list[Callable[[], None]] = []
        self._removed: list[str] = []
        self._removal_observers: list[Callable[[Sequence[str]], None]] = []

    @property
    def is_empty(self) -> bool:
        """True as long as no controller has named a topic, or has said that there is none."""
        return not self.topics and not self.is_complete

    def topic(self, name: str) -> TopicMetadata | None:
        return self.topics.get(name)

    def name_of(self, topic_id: UUID) -> str | None:
        """The topic with that id; None where this broker has not heard of it."""
        return self._names.get(topic_id)

    def asked_topic(self, row: Mapping[str, Any], version: int) -> tuple[str | None, UUID]:
        """Name and id that a topic's row of a Metadata request stands for.

        Java clients send an empty name with an id, so an id counts more than a name (KIP-516).

        :return: the id is the zero id if the topic is asked for by name; the name is None if no topic has that id.
        """
        topic_id = row.get("topic_id", ZERO_UUID)
        if version < IDS_FROM or (topic_id == ZERO_UUID and row["name"] is not None):
            return row["name"], ZERO_UUID
        return self.name_of(topic_id), topic_id

    def topic_id(self, name: str) -> UUID:
        topic = self.topics.get(name)
        return topic.topic_id if topic else ZERO_UUID

    def live_on(self, listener: str) -> list[tuple[LiveBroker, Endpoint]]:
        """The live brokers that can be reached by that listener, in the order of their ids."""
        return [
            (broker, broker.endpoints[listener])
            for _, broker in sorted(self.brokers.items())
            if listener in broker.endpoints
        ]

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call back after every update, from now on."""
        self._observers.append(callback)

    def on_topics_removed(self, callback: Callable[[Sequence[str]], None]) -> None:
        """Call back, from now on, with the topics that are gone, also with one that was made again since."""
        self._removal_observers.append(callback)

    def update(self, body: dict[str, Any]) -> list[str]:
        """Take in an UpdateMetadata request: the brokers are replaced, the partitions added to those known.

        A request that says everything, or the last of several which do together, also drops what none of them names:
        a controller may have died before it could tell of a topic that it deleted.

        :return: the topics that are gone.
        """
        steps = self.update_in_steps(body, lambda: True)
        while True:
            try:
                next(steps)
            except StopIteration as done:
                gone: list[str] = done.value
                return gone

    def update_in_steps(self, body: dict[str, Any], is_valid: Callable[[], bool]) -> Steps[list[str]]:
        """``update`` as work in slices; observers and waiters are called when it is complete.

        :param is_valid: false if the request may be applied no longer; what is left of it is dropped then.
        """
        parsed: list[tuple[dict[str, Any], list[PartitionMetadata]]] = []
        count = 0
        for row in body["topic_states"]:
            partitions: list[PartitionMetadata] = []
            for state in row["partition_states"]:
                partitions.append(_partition(state))
                count += 1
                if count % STEP_ROWS == 0:
                    yield
            parsed.append((row, partitions))
        if not is_valid():
            return []
        self.controller_id = body["controller_id"]
        brokers = {row["id"]: _live_broker(row) for row in body["live_brokers"]}
        if brokers != self.brokers:
            self.brokers = brokers
        count = 0
        for row, partitions in parsed:
            self._update_topic(row["topic_name"], row.get("topic_id", ZERO_UUID), partitions)
            count += len(partitions)
            if count >= STEP_PARTITIONS:
                count = 0
                yield
                if not is_valid():
                    return []
        names = [row["topic_name"] for row, _ in parsed]
        gone = [name for name in names if name not in self.topics]
        if body.get("type") == WHOLE:
            gone += self._drop_unnamed(body["part"], body["parts"], names)
        self.look_again()
        for observer in self._observers:
            observer()
        removed, self._removed = self._removed, []
        if removed:
            for removal_observer in self._removal_observers:
                removal_observer(removed)
        return gone

    def _update_topic(self, name: str, topic_id: UUID, published: Iterable[PartitionMetadata]) -> None:
        old = self.topics.get(name)
        if old is not None and topic_id not in (ZERO_UUID, old.topic_id):
            self._names.pop(old.topic_id, None)
            self._removed.append(name)
            old = None  # deleted and made again: nothing of the old one holds
        partitions = dict(old.partitions) if old else {}
        for partition in published:
            if partition.leader == LEADER_DURING_DELETE:
                partitions.pop(partition.partition, None)
            else:
                partitions[partition.partition] = partition
        if old is not None and topic_id == ZERO_UUID:
            topic_id = old.topic_id
        if partitions:
            self.topics[name] = TopicMetadata(name, topic_id, partitions)
            if topic_id != ZERO_UUID:
                self._names[topic_id] = name
        elif old is not None:
            self._drop(old)

    def _drop(self, topic: TopicMetadata) -> None:
        del self.topics[topic.name]
        self._removed.append(topic.name)
        self._names.pop(topic.topic_id, None)

    def _drop_unnamed(self, part: int, parts: int, names: Iterable[str]) -> list[str]:
        """When all parts have come, drop the topics that are in none; their names.

        :param part: the first is 0, and the others follow it; one that is sent again changes nothing.
        """
        if part == 0:
            self._named_in.clear()
        self._named_in[part] = frozenset(names)
        if len(self._named_in) < parts:
            return []
        named = frozenset[str]().union(*self._named_in.values())
        self._named_in.clear()
        self.is_complete = True
        gone = [name for name in self.topics if name not in named]
        for name in gone:
            self._drop(self.topics[name])
        return gone

    # --- waiting -----------------------------------------------------------------------------------------------------

    def wait_until(self, condition: Callable[[], bool], timeout_s: float) -> Deferred[bool]:
        """Fires with True when the condition holds after some update, with False when the time is up."""
        done: Deferred[bool] = Deferred(lambda d: self._waiting.pop(d, None) and None)
        if condition():
            done.callback(True)
            return done
        if timeout_s <= 0:
            done.callback(False)
            return done
        self._waiting[done] = condition
        timer = self._reactor.callLater(timeout_s, self._give_up, done)

        def finished(result: Any) -> Any:
            if timer.active():
                timer.cancel()
            return result

        return done.addBoth(finished)

    def stop(self) -> None:
        """Whoever waits is told that it did not come."""
        for done in list(self._waiting):
            self._give_up(done)

    def _give_up(self, done: Deferred[bool]) -> None:
        if self._waiting.pop(done, None) is not None:
            done.callback(False)

    def look_again(self) -> None:
        """Something beside the metadata changed that somebody may wait for."""
        for done, condition in list(self._waiting.items()):
            if condition() and self._waiting.pop(done, None) is not None:
                done.callback(True)


def _live_broker(row: dict[str, Any]) -> LiveBroker:
    endpoints = {e["listener"]: Endpoint(e["listener"], e["host"], e["port"]) for e in row["endpoints"]}
    return LiveBroker(row["id"], endpoints, row.get("rack"))


def _partition(row: dict[str, Any]) -> PartitionMetadata:
    return PartitionMetadata(
        row["partition_index"],
        row["leader"],
        row["leader_epoch"],
        row["replicas"],
        row["isr"],
        row.get("offline_replicas", []),
    )
