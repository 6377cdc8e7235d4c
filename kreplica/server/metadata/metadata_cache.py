"""Caches the cluster metadata from the controller's UpdateMetadata requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

from twisted.internet.defer import Deferred

from kreplica.model import LEADER_DURING_DELETE, ZERO_UUID, Endpoint
from kreplica.runtime import Reactor
from kreplica.runtime.slices import STEP_ROWS, Steps

IDS_FROM = 12
"""First version of Metadata with topic IDs in requests."""

STEP_PARTITIONS = 500
"""Number of partitions replaced in one step; each takes about 0.1 us."""

SHARED_MAX = 4096
"""Maximum number of recent lists of brokers that later partitions with equal ones share."""

FULL = 2
"""Type of an UpdateMetadata request with the full metadata (KIP-866)."""


@dataclass(frozen=True, slots=True)
class LiveBroker:
    """A live broker and its listeners."""

    broker_id: int
    endpoints: dict[str, Endpoint]
    rack: str | None


class PartitionMetadata(NamedTuple):
    """A partition as last published by the controller; a tuple, because an update may contain 10,000 of them."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: Sequence[int]
    isr: Sequence[int]
    offline_replicas: Sequence[int]


@dataclass(frozen=True, slots=True, eq=False)
class TopicMetadata:
    name: str
    topic_id: UUID
    partitions: dict[int, PartitionMetadata]


class MetadataCache:
    """Metadata cache of a broker, updated one topic at a time: readers never see a partly updated topic.

    A changed topic, or a changed set of live brokers, is a new object, so derived values can be cached by object
    identity.

    :ivar is_complete: True if a controller has sent full metadata, so an absent topic does not exist.
    :ivar cluster_id: set before the broker listens, because clients crash on a null cluster ID.
    """

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self.cluster_id = ""
        self.is_complete = False
        self.controller_id = -1
        self.brokers: dict[int, LiveBroker] = {}
        self.topics: dict[str, TopicMetadata] = {}
        self._names: dict[UUID, str] = {}
        self._names_by_part: dict[int, frozenset[str]] = {}
        """Topics in the received parts of full metadata."""
        self._waiting: dict[Deferred[bool], Callable[[], bool]] = {}
        self._observers: list[Callable[[], None]] = []
        self._removed: list[str] = []
        self._removal_observers: list[Callable[[Sequence[str]], None]] = []

    @property
    def is_empty(self) -> bool:
        """True until a controller has sent a topic or full metadata."""
        return not self.topics and not self.is_complete

    def topic(self, name: str) -> TopicMetadata | None:
        return self.topics.get(name)

    def has_partition(self, topic: str, partition: int) -> bool:
        """Return True if the partition exists.

        Requests to the controller are restricted to existing partitions, because the controller records each requested
        partition in its journal, and a request can name hundreds of thousands.
        """
        topic_metadata = self.topics.get(topic)
        return topic_metadata is not None and partition in topic_metadata.partitions

    def name_of(self, topic_id: UUID) -> str | None:
        """Return the name of the topic with this ID; None if it is unknown."""
        return self._names.get(topic_id)

    def requested_topic(self, row: Mapping[str, Any], version: int) -> tuple[str | None, UUID]:
        """Return name and ID of a topic row in a Metadata request.

        Java clients send an empty name with an ID, so an ID takes precedence over a name (KIP-516).

        :return: the ID is the zero ID if the topic is requested by name; the name is None if no topic has that ID.
        """
        topic_id = row.get("topic_id", ZERO_UUID)
        if version < IDS_FROM or (topic_id == ZERO_UUID and row["name"] is not None):
            return row["name"], ZERO_UUID
        return self.name_of(topic_id), topic_id

    def topic_id(self, name: str) -> UUID:
        topic = self.topics.get(name)
        return topic.topic_id if topic else ZERO_UUID

    def live_on(self, listener: str) -> list[tuple[LiveBroker, Endpoint]]:
        """Return the live brokers with that listener, ordered by ID."""
        return [
            (broker, broker.endpoints[listener])
            for _, broker in sorted(self.brokers.items())
            if listener in broker.endpoints
        ]

    def on_change(self, callback: Callable[[], None]) -> None:
        """Register a callback for every future update."""
        self._observers.append(callback)

    def on_topics_removed(self, callback: Callable[[Sequence[str]], None]) -> None:
        """Register a callback for removed topics, including topics that were deleted and created again."""
        self._removal_observers.append(callback)

    def update(self, body: dict[str, Any]) -> list[str]:
        """Apply an UpdateMetadata request: replace the brokers and merge the partitions.

        After the last part of full metadata, topics that no part contains are also removed, because a controller may
        have failed before it announced a deletion.

        :return: names of topics that no longer exist.
        """
        steps = self.update_in_steps(body, lambda: True)
        while True:
            try:
                next(steps)
            except StopIteration as done:
                absent: list[str] = done.value
                return absent

    def update_in_steps(self, body: dict[str, Any], is_valid: Callable[[], bool]) -> Steps[list[str]]:
        """Apply ``update`` in slices; call observers and waiters when it is complete.

        :param is_valid: returns False if the request is obsolete; its remaining part is then ignored.
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
            row["partition_states"] = ()  # the rows take half a KB each and are no longer needed
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
        absent = [name for name in names if name not in self.topics]
        if body.get("type") == FULL:
            absent += self._drop_absent(body["part"], body["parts"], names)
        self.recheck()
        for observer in self._observers:
            observer()
        removed, self._removed = self._removed, []
        if removed:
            for removal_observer in self._removal_observers:
                removal_observer(removed)
        return absent

    def _update_topic(self, name: str, topic_id: UUID, published: Iterable[PartitionMetadata]) -> None:
        old = self.topics.get(name)
        if old is not None and topic_id not in (ZERO_UUID, old.topic_id):
            self._names.pop(old.topic_id, None)
            self._removed.append(name)
            old = None  # deleted and created again: the old partitions are obsolete
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

    def _drop_absent(self, part: int, parts: int, names: Iterable[str]) -> list[str]:
        """Remove the topics that are absent from all parts of the full metadata, after the last part; return their
        names.

        :param part: the number of the part, from 0; a repeated part changes nothing.
        """
        if part == 0:
            self._names_by_part.clear()
        self._names_by_part[part] = frozenset(names)
        if len(self._names_by_part) < parts:
            return []
        present = frozenset[str]().union(*self._names_by_part.values())
        self._names_by_part.clear()
        self.is_complete = True
        absent = [name for name in self.topics if name not in present]
        for name in absent:
            self._drop(self.topics[name])
        return absent

    # --- waiting -----------------------------------------------------------------------------------------------------

    def wait_until(self, condition: Callable[[], bool], timeout_s: float) -> Deferred[bool]:
        """Return a Deferred that fires with True when the condition holds after an update, or with False after the
        timeout."""
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
        """Fire all waiters with False."""
        for done in list(self._waiting):
            self._give_up(done)

    def _give_up(self, done: Deferred[bool]) -> None:
        if self._waiting.pop(done, None) is not None:
            done.callback(False)

    def recheck(self) -> None:
        """Fire the waiters whose condition now holds; also called after other changes that a condition depends on."""
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
        _shared(tuple(row["replicas"])),
        _shared(tuple(row["isr"])),
        _shared(tuple(row.get("offline_replicas", ()))),
    )


@lru_cache(maxsize=SHARED_MAX)
def _shared(brokers: tuple[int, ...]) -> tuple[int, ...]:
    """Return one object for equal values, because many partitions have the same replicas."""
    return brokers
