"""``/v1/partitions`` and ``/v1/topics/{topic}/partitions``: leaders, replicas and ongoing changes of partitions."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from kreplica.admin.cluster_state.counts import CachedCounts
from kreplica.admin.cluster_state.published_metadata import (
    BrokerConnections,
    PublishedMetadata,
    PublishedPartition,
    is_offline,
    is_under_replicated,
    once_complete,
    topic_of,
)
from kreplica.admin.cluster_state.topic_znodes import NO_CHANGES, Changes, TopicZnodes
from kreplica.admin.http.api import AFTER, LIMIT, Call, JsonResponse, Parameter, Route
from kreplica.admin.http.callers import topic as topic_resource
from kreplica.admin.http.problems import Problem
from kreplica.admin.http.schemas import (
    BOOLEAN,
    BROKER_ID,
    COUNT,
    IN_PARTITION,
    IN_TOPIC,
    PARTITION,
    STRING,
    listing,
    nullable,
    one_of,
    page,
    record,
)
from kreplica.admin.lists.pages import keys_with
from kreplica.admin.resources.partition_details import DETAILS, PartitionDetailsReader
from kreplica.errors import ErrorCode, KafkaError
from kreplica.interfaces.authorization import Operation
from kreplica.model import TopicPartition
from kreplica.runtime import Reactor
from kreplica.runtime.time_slice import TimeSlice
from kreplica.zookeeper import ZooKeeperClient

IDS = listing(BROKER_ID)
KNOWN_BY_ZOOKEEPER = "Null if this broker cannot reach ZooKeeper."

MEMBERS = {
    "topic": STRING,
    "partition": PARTITION,
    "leader": {**nullable(BROKER_ID), "description": "Null if the partition has no leader."},
    "leader_epoch": COUNT,
    "replicas": {**IDS, "description": "Replicas, preferred leader first."},
    "isr": {**IDS, "description": "In-sync replicas."},
    "offline_replicas": {**IDS, "description": "Replicas on dead brokers or in failed log directories."},
    "adding": {**nullable(IDS), "description": f"Replicas that are being added. {KNOWN_BY_ZOOKEEPER}"},
    "removing": {**nullable(IDS), "description": f"Replicas that will be removed after the move. {KNOWN_BY_ZOOKEEPER}"},
    "read_only": {**nullable(BOOLEAN), "description": f"True if the partition is being removed. {KNOWN_BY_ZOOKEEPER}"},
}

OFFLINE, UNDER_REPLICATED = "offline", "under_replicated"
STATES = ("all", OFFLINE, UNDER_REPLICATED, "moving")

AFTER_NUMBER = Parameter("after", PARTITION, "Only entries after this one: `next` of the previous response.")

Row = dict[str, Any]
Key = tuple[str, int]


class Partitions:
    """Merges the metadata with the ongoing changes in ZooKeeper."""

    def __init__(
        self,
        reactor: Reactor,
        published: PublishedMetadata,
        client: ZooKeeperClient,
        brokers: BrokerConnections,
        counts: CachedCounts,
    ) -> None:
        self._reactor = reactor
        self._published = published
        self._znodes = TopicZnodes(reactor, client)
        self._details = PartitionDetailsReader(reactor, client, brokers)
        self._counts = counts

    def routes(self) -> Sequence[Route]:
        """Return the routes for all topics, one topic and one partition."""
        rows = page("partitions", record(MEMBERS, title="Partition"))
        state = Parameter("state", one_of(*STATES), "Only partitions in this state.", default="all")
        topic_problems = {404: "The topic does not exist."}
        return (
            Route(
                "GET",
                "/v1/partitions",
                self.all_topics,
                "The partitions of all topics.",
                response=rows,
                query=(state, LIMIT, AFTER),
                problems={503: "ZooKeeper, which stores the ongoing reassignments, is unreachable."},
            ),
            Route(
                "GET",
                "/v1/topics/{topic}/partitions",
                self.of_topic,
                "The partitions of a topic.",
                response=rows,
                query=(IN_TOPIC, LIMIT, AFTER_NUMBER),
                problems=topic_problems,
            ),
            Route(
                "GET",
                "/v1/topics/{topic}/partitions/{partition}",
                self.one,
                "One partition, with details from its leader and ZooKeeper.",
                response=record({**MEMBERS, **DETAILS}, title="PartitionWithDetails"),
                query=(IN_TOPIC, IN_PARTITION),
                problems={404: "The topic or the partition does not exist."},
            ),
        )

    # --- lists -------------------------------------------------------------------------------------------------------

    async def all_topics(self, call: Call) -> JsonResponse:
        """``GET /v1/partitions``."""
        state, limit = call.query["state"], call.query["limit"]
        by_name = (await once_complete(self._published)).topics
        topics = await keys_with(
            self._reactor, sorted(by_name), lambda name: call.caller.may(Operation.DESCRIBE, topic_resource(name))
        )
        after = _key(call.query["after"])
        if after is not None:
            topics = topics[max(bisect_right(topics, after[0]) - 1, 0) :]
        moving = await self._moving(topics) if state == "moving" else None
        candidates = await self._from_counts(state, after, set(topics)) or self._after(topics, after)
        found, more = await self._first_in_state(candidates, state, moving, limit)
        names = list(dict.fromkeys(name for name, _ in found))
        changes = {name: moving[name] for name in names} if moving else await self._znodes.changes(names)
        rows = await self._rows(found, changes)
        last = found[-1] if more else None
        return JsonResponse({"partitions": rows, "next": None if last is None else f"{last[0]}/{last[1].partition}"})

    def _after(self, topics: Sequence[str], after: Key | None) -> Iterator[tuple[str, PublishedPartition]]:
        for name in topics:
            topic = self._published.topics.get(name)  # None if deleted in the meantime
            for number, partition in sorted(topic.partitions.items()) if topic is not None else ():
                if after is None or (name, number) > after:
                    yield name, partition

    async def _from_counts(
        self, state: str, after: Key | None, topics: Collection[str]
    ) -> Iterator[tuple[str, PublishedPartition]] | None:
        """Return the counted partitions of these topics; None if that state is not counted."""
        if state not in (OFFLINE, UNDER_REPLICATED):
            return None
        counts = await self._counts.current()
        keys = counts.offline if state == OFFLINE else counts.under_replicated
        selected = keys if after is None else keys[bisect_right(keys, after) :]
        return self._existing(key for key in selected if key.topic in topics)

    def _existing(self, keys: Iterable[TopicPartition]) -> Iterator[tuple[str, PublishedPartition]]:
        for name, number in keys:
            topic = self._published.topics.get(name)
            partition = topic.partitions.get(number) if topic is not None else None
            if partition is not None:
                yield name, partition

    async def _moving(self, topics: Sequence[str]) -> Mapping[str, Changes]:
        changes = await self._znodes.changes(topics)
        if changes is None:
            raise Problem(
                503,
                "COORDINATION_UNAVAILABLE",
                "this broker cannot reach ZooKeeper, which stores the ongoing reassignments",
                what_to_do="Retry when ZooKeeper is reachable.",
            )
        return changes

    async def _first_in_state(
        self,
        partitions: Iterable[tuple[str, PublishedPartition]],
        state: str,
        moving: Mapping[str, Changes] | None,
        limit: int,
    ) -> tuple[list[tuple[str, PublishedPartition]], bool]:
        """Return the first partitions in a state, and whether there are more."""
        time_slice = TimeSlice(self._reactor)
        selected: list[tuple[str, PublishedPartition]] = []
        for name, partition in partitions:
            if _is_in(state, partition, moving[name] if moving else NO_CHANGES):
                if len(selected) == limit:
                    return selected, True
                selected.append((name, partition))
            if time_slice.is_over:
                await time_slice.next()
        return selected, False

    async def of_topic(self, call: Call) -> JsonResponse:
        """``GET /v1/topics/{topic}/partitions``."""
        name, limit, after = call.path["topic"], call.query["limit"], call.query["after"]
        topic = topic_of(await once_complete(self._published), name)
        numbers = sorted(topic.partitions)
        first = 0 if after is None else bisect_right(numbers, after)
        page = numbers[first : first + limit]
        rows = await self._rows(
            [(name, topic.partitions[number]) for number in page], await self._znodes.changes([name])
        )
        more = first + limit < len(numbers)
        return JsonResponse({"partitions": rows, "next": str(page[-1]) if more else None})

    async def _rows(
        self, partitions: Sequence[tuple[str, PublishedPartition]], changes: Mapping[str, Changes] | None
    ) -> list[Row]:
        time_slice = TimeSlice(self._reactor)
        rows = []
        for name, partition in partitions:
            rows.append(_row(name, partition, None if changes is None else changes[name]))
            if time_slice.is_over:
                await time_slice.next()
        return rows

    # --- one partition -----------------------------------------------------------------------------------------------

    async def one(self, call: Call) -> JsonResponse:
        """``GET /v1/topics/{topic}/partitions/{partition}``."""
        name, number = call.path["topic"], int(call.path["partition"])
        partition = topic_of(await once_complete(self._published), name).partitions.get(number)
        if partition is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"the topic {name!r} has no partition {number}"
            )
        changes = await self._znodes.changes([name])
        row = _row(name, partition, None if changes is None else changes[name])
        return JsonResponse({**row, **await self._details.read(name, partition)})


def _row(topic: str, partition: PublishedPartition, changes: Changes | None) -> Row:
    number = partition.partition
    row: Row = {
        "topic": topic,
        "partition": number,
        "leader": partition.leader if partition.leader >= 0 else None,
        "leader_epoch": partition.leader_epoch,
        "replicas": list(partition.replicas),
        "isr": list(partition.isr),
        "offline_replicas": list(partition.offline_replicas),
        "adding": None,
        "removing": None,
        "read_only": None,
    }
    if changes is not None:
        row["adding"] = list(changes.adding.get(number, ()))
        row["removing"] = list(changes.removing.get(number, ()))
        row["read_only"] = number in changes.read_only
    return row


def _is_in(state: str, partition: PublishedPartition, changes: Changes) -> bool:
    if state == OFFLINE:
        return is_offline(partition)
    if state == UNDER_REPLICATED:
        return is_under_replicated(partition)
    return state == "all" or changes.is_moving(partition.partition)


def _key(after: str | None) -> Key | None:
    """Decode a page token: a topic and a partition number.

    :raise Problem: 400 for a malformed token.
    """
    if after is None:
        return None
    topic, slash, number = after.rpartition("/")
    if not slash or not number.isascii() or not number.isdigit() or len(number) > 10:
        raise Problem(
            400, "INVALID_REQUEST", f"after: {after[:300]!r} is not TOPIC/PARTITION", what_to_do="Send `next` as is."
        )
    return topic, int(number)
