"""``/v1/elections``: possible leader elections, and requests for them.

Preferred elections are requested through a znode. Unclean elections, which may lose records, have no znode in Kafka,
so the request goes directly to the controller.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from kreplica.admin.cluster_state.published_metadata import (
    BrokerConnections,
    PublishedMetadata,
    PublishedPartition,
    is_offline,
    once_complete,
    topic_of,
)
from kreplica.admin.cluster_state.topic_znodes import read_if_connected
from kreplica.admin.cluster_state.znode_writes import ZnodeWrites, write
from kreplica.admin.http.api import LIMIT, Call, JsonResponse, Route
from kreplica.admin.http.problems import Problem
from kreplica.admin.http.schemas import BROKER_ID, PARTITION, STRING, TOPIC, listing, nullable, one_of, record, written
from kreplica.cluster import documents, znodes
from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import TopicPartition
from kreplica.runtime import Reactor
from kreplica.runtime.time_slice import TimeSlice
from kreplica.wire.messages import ELECT_LEADERS
from kreplica.zookeeper import Create, ZooKeeperClient

PARTITIONS_MAX = 10_000
"""Maximum number of partitions per request; a longer list does not fit into a znode."""

ELECTION_TIMEOUT_S = 10.0

PREFERRED, UNCLEAN = "preferred", "unclean"
TYPES = {PREFERRED: 0, UNCLEAN: 1}

ONE = {"topic": TOPIC, "partition": PARTITION}

NEEDED = record(
    {
        **ONE,
        "type": one_of(PREFERRED, UNCLEAN),
        "leader": {**nullable(BROKER_ID), "description": "Null if the partition has no leader."},
        "replicas": {**listing(BROKER_ID), "description": "Replicas, preferred leader first."},
    },
    title="ElectionNeeded",
)

ELECTIONS = record(
    {
        "pending": {
            **nullable(listing(record(ONE))),
            "description": "Requested elections that are not finished. Null if this broker cannot reach ZooKeeper.",
        },
        "needed": {
            **listing(NEEDED),
            "description": "`preferred`: the preferred leader is in sync, but does not lead; "
            "`unclean`: the partition has no leader, but a live replica.",
        },
    },
    title="Elections",
)

BODY = record(
    {
        "type": one_of(PREFERRED, UNCLEAN),
        "partitions": {
            **nullable(listing(record(ONE), minItems=1, maxItems=PARTITIONS_MAX)),
            "description": "Null or absent: all partitions that need this election, at most 10,000.",
        },
    },
    title="Election",
    optional=("partitions",),
    examples=[{"type": PREFERRED, "partitions": [{"topic": "orders", "partition": 0}]}],
)

OUTCOME = record(
    {
        **ONE,
        "leader": {**nullable(BROKER_ID), "description": "Current leader in this broker's metadata."},
        "error": {**nullable(STRING), "description": "Name of the Kafka error; null after a success."},
    },
    title="ElectionOutcome",
)

RESPONSE = written({"type": one_of(PREFERRED, UNCLEAN), "partitions": listing(OUTCOME)}, title="ElectionAsked")

Errors = Mapping[TopicPartition, ErrorCode]


class Elections:
    """Lists possible elections from the metadata; requests them through a znode or from the controller."""

    def __init__(
        self, reactor: Reactor, published: PublishedMetadata, client: ZooKeeperClient, connections: BrokerConnections
    ) -> None:
        self._reactor = reactor
        self._published = published
        self._client = client
        self._connections = connections

    def routes(self) -> Sequence[Route]:
        """Return the routes that list and request elections."""
        return (
            Route(
                "GET",
                "/v1/elections",
                self.list_all,
                "Pending elections, and elections that would change a leader.",
                response=ELECTIONS,
                query=(LIMIT,),
            ),
            Route(
                "POST",
                "/v1/elections",
                self.elect,
                "Elect leaders: preferred, or unclean, which may lose records.",
                response=RESPONSE,
                body=BODY,
                znodes=(znodes.PREFERRED_REPLICA_ELECTION,),
                problems={
                    404: "The partition does not exist.",
                    409: "A previous election request is not finished.",
                    413: "The partitions do not fit into a znode.",
                },
            ),
        )

    # --- reads -------------------------------------------------------------------------------------------------------

    async def list_all(self, call: Call) -> JsonResponse:
        """``GET /v1/elections``."""
        await once_complete(self._published)
        time_slice = TimeSlice(self._reactor)
        needed: list[dict[str, Any]] = []
        for kind, topic, partition in self._kinds():
            if kind is not None:
                if len(needed) == call.query["limit"]:
                    break
                needed.append(_needed_row(kind, topic, partition))
            if time_slice.is_over:
                await time_slice.next()
        return JsonResponse({"pending": await self._pending(), "needed": needed})

    def _kinds(self) -> Iterator[tuple[str | None, str, PublishedPartition]]:
        """Yield each partition with the kind of election that it needs, or None."""
        topics = self._published.topics
        for name in sorted(topics):
            topic = topics.get(name)
            for _, partition in sorted(topic.partitions.items()) if topic is not None else ():
                yield self._kind_needed(partition), name, partition

    def _kind_needed(self, partition: PublishedPartition) -> str | None:
        preferred, live = partition.replicas[0], self._published.brokers
        if is_offline(partition):
            return UNCLEAN if any(replica in live for replica in partition.replicas) else None
        could_lead = preferred in partition.isr and preferred in live
        return PREFERRED if partition.leader != preferred and could_lead else None

    async def _pending(self) -> list[dict[str, Any]] | None:
        path = znodes.PREFERRED_REPLICA_ELECTION
        stat = await read_if_connected(self._reactor, self._client, lambda: self._client.exists(path))
        if stat is None:
            return [] if self._client.state.name == "CONNECTED" else None
        found = await read_if_connected(self._reactor, self._client, lambda: self._client.get_data(path))
        return [] if found is None else [_row(key) for key in documents.decode_partitions(path, found[0])]

    # --- requests ----------------------------------------------------------------------------------------------------

    async def elect(self, call: Call) -> JsonResponse:
        """``POST /v1/elections``."""
        await once_complete(self._published)
        kind = call.body["type"]
        partitions = self._partitions(kind, call.body.get("partitions"))
        if kind == PREFERRED:
            znode_rows, errors = await self._elect_preferred(partitions, dry_run=call.dry_run)
        else:
            znode_rows, errors = [], await self._elect_unclean(partitions, dry_run=call.dry_run)
        rows = [
            {**_row(key), "leader": self._leader(key), "error": errors[key].name if key in errors else None}
            for key in partitions
        ]
        return JsonResponse({"type": kind, "partitions": rows, "dry_run": call.dry_run, "znodes": znode_rows})

    def _partitions(self, kind: str, requested: Sequence[Mapping[str, Any]] | None) -> list[TopicPartition]:
        """Return the partitions of a request, or all that need the election.

        :raise KafkaError: UNKNOWN_TOPIC_OR_PARTITION.
        """
        if requested is None:
            needed = (TopicPartition(topic, p.partition) for each, topic, p in self._kinds() if each == kind)
            return list(islice(needed, PARTITIONS_MAX))
        partitions = list(dict.fromkeys(TopicPartition(row["topic"], row["partition"]) for row in requested))
        for key in partitions:
            if key.partition not in topic_of(self._published, key.topic).partitions:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {key} does not exist")
        return partitions

    async def _elect_preferred(
        self, partitions: Sequence[TopicPartition], *, dry_run: bool
    ) -> tuple[list[dict[str, Any]], Errors]:
        path = znodes.PREFERRED_REPLICA_ELECTION
        operations = [Create(path, documents.encode_partitions(partitions))] if partitions else []
        try:
            znode_rows = await write(self._client, ZnodeWrites(operations), dry_run=dry_run)
        except Problem as problem:
            if problem.status != 409:
                raise
            raise Problem(
                409,
                "CONFLICT",
                "a previous request for preferred leaders is not finished",
                what_to_do="Wait until it is finished: GET /v1/elections shows pending elections.",
            ) from problem
        if dry_run:
            return znode_rows, {}

        def without_preferred_leader() -> list[TopicPartition]:
            return [key for key in partitions if not self._is_done_or_deleted(key)]

        timeout_s = ELECTION_TIMEOUT_S if self._can_all_get_preferred_leader(partitions) else 0
        await self._published.wait_until(lambda: not without_preferred_leader(), timeout_s)
        return znode_rows, dict.fromkeys(without_preferred_leader(), ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)

    def _can_all_get_preferred_leader(self, partitions: Iterable[TopicPartition]) -> bool:
        """Return True if all these partitions can get their preferred leaders, so that waiting makes sense."""
        states = [self._partition(key) for key in partitions]
        return all(p is None or self._has_preferred_leader(p) or self._kind_needed(p) == PREFERRED for p in states)

    def _has_preferred_leader(self, partition: PublishedPartition) -> bool:
        return partition.leader == partition.replicas[0]

    def _is_done_or_deleted(self, key: TopicPartition) -> bool:
        partition = self._partition(key)
        return partition is None or self._has_preferred_leader(partition)  # or deleted in the meantime

    async def _elect_unclean(self, partitions: Sequence[TopicPartition], *, dry_run: bool) -> Errors:
        if dry_run or not partitions:
            return {}
        controller = self._published.controller_id
        topics: dict[str, list[int]] = {}
        for key in partitions:
            topics.setdefault(key.topic, []).append(key.partition)
        body = {
            "election_type": TYPES[UNCLEAN],
            "topic_partitions": [{"topic": name, "partitions": numbers} for name, numbers in topics.items()],
            "timeout_ms": int(ELECTION_TIMEOUT_S * 1000),
        }
        timeout_s = ELECTION_TIMEOUT_S * 2
        response = await self._connections.request(controller, ELECT_LEADERS, body, timeout_s=timeout_s)
        if response["error_code"]:
            raise KafkaError(ErrorCode.of(response["error_code"]), "the controller did not elect a leader")
        return {
            TopicPartition(topic["topic"], row["partition_id"]): ErrorCode.of(row["error_code"])
            for topic in response["replica_election_results"]
            for row in topic["partition_result"]
            if row["error_code"] and row["error_code"] != ErrorCode.ELECTION_NOT_NEEDED
        }

    def _partition(self, key: TopicPartition) -> PublishedPartition | None:
        topic = self._published.topics.get(key.topic)
        return None if topic is None else topic.partitions.get(key.partition)

    def _leader(self, key: TopicPartition) -> int | None:
        partition = self._partition(key)
        return None if partition is None or is_offline(partition) else partition.leader


def _row(key: TopicPartition) -> dict[str, Any]:
    return {"topic": key.topic, "partition": key.partition}


def _needed_row(kind: str, topic: str, partition: PublishedPartition) -> dict[str, Any]:
    return {
        "topic": topic,
        "partition": partition.partition,
        "type": kind,
        "leader": None if is_offline(partition) else partition.leader,
        "replicas": list(partition.replicas),
    }
