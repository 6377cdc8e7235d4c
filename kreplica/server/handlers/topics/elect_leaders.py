"""ElectLeaders (key 43): triggers preferred or unclean leader elections (KIP-460)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred

from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import TopicPartition
from kreplica.runtime.slices import STEP_ROWS, Steps
from kreplica.server.metadata.metadata_cache import MetadataCache
from kreplica.server.protocol.request import Request
from kreplica.server.protocol.responses import in_slices, respond_with_result

Row = dict[str, Any]

Results = Mapping[TopicPartition, ErrorCode]

RequestElection = Callable[[int, "list[TopicPartition] | None"], Deferred[Results]]
"""Asks the controller to elect leaders for these partitions; None means all partitions.

Fires with the errors by partition, or fails with a ``KafkaError``.
"""

PREFERRED = 0
TYPES = (PREFERRED, 1)

TEXTS = {
    ErrorCode.ELECTION_NOT_NEEDED: "The partition needs no election.",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "The preferred replica is not live or not in sync.",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "No live replica can be elected.",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "The partition does not exist.",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "The topic is being deleted.",
    ErrorCode.REQUEST_TIMED_OUT: "The leader was elected, but this broker was not notified in time.",
}


class ElectLeaders:
    """Responds once this broker's own metadata has the new leaders, or after the timeout."""

    def __init__(self, request_election: RequestElection, metadata: MetadataCache) -> None:
        self._request_election = request_election
        self._metadata = metadata

    def __call__(self, request: Request) -> None:
        respond_with_result(request, self._response(request, request.body))

    async def _response(self, request: Request, body: Row) -> Row:
        topics, election_type = body["topic_partitions"], body.get("election_type", PREFERRED)
        requested = None if topics is None else await in_slices(request, _partitions(topics))
        existing = None if requested is None else await in_slices(request, self._existing(requested))
        if election_type not in TYPES:
            return await in_slices(request, _rejection(ErrorCode.INVALID_REQUEST, requested))
        try:
            results = dict(await self._request_election(election_type, existing))
        except KafkaError as error:
            return await in_slices(request, _rejection(error.code, requested))
        results = dict.fromkeys(requested or (), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) | results
        await self._wait_for_leaders(request, results, election_type, body["timeout_ms"] / 1000)
        # If all partitions are requested, those that need no election are omitted.
        hidden = ErrorCode.ELECTION_NOT_NEEDED if requested is None else None
        rows = await in_slices(request, _rows(results, hidden))
        return {"throttle_time_ms": 0, "error_code": 0, "replica_election_results": rows}

    def _existing(self, partitions: list[TopicPartition]) -> Steps[list[TopicPartition]]:
        existing = []
        for number, partition in enumerate(partitions, 1):
            if self._metadata.has_partition(*partition):
                existing.append(partition)
            if number % STEP_ROWS == 0:
                yield
        return existing

    async def _wait_for_leaders(
        self, request: Request, results: dict[TopicPartition, ErrorCode], election_type: int, timeout_s: float
    ) -> None:
        """Wait for the new leaders; partitions without one at the timeout get REQUEST_TIMED_OUT."""
        seconds = request.connection.seconds
        deadline_s = seconds() + timeout_s
        waiting = await in_slices(request, self._without_new_leader(list(results), results, election_type))
        while waiting:
            # Each metadata update checks only the last partition; all others are checked once that one has a leader.
            last_is_led = partial(self._has_new_leader, waiting[-1], election_type)
            is_led = await self._metadata.wait_until(last_is_led, deadline_s - seconds())
            waiting = await in_slices(request, self._without_new_leader(waiting, results, election_type))
            if not is_led:
                results.update(dict.fromkeys(waiting, ErrorCode.REQUEST_TIMED_OUT))
                return

    def _without_new_leader(
        self, partitions: list[TopicPartition], results: Results, election_type: int
    ) -> Steps[list[TopicPartition]]:
        """Return the partitions with an elected leader that is missing from this broker's metadata."""
        waiting = []
        for number, partition in enumerate(partitions, 1):
            if results[partition] is ErrorCode.NONE and not self._has_new_leader(partition, election_type):
                waiting.append(partition)
            if number % STEP_ROWS == 0:
                yield
        return waiting

    def _has_new_leader(self, partition: TopicPartition, election_type: int) -> bool:
        topic = self._metadata.topic(partition.topic)
        metadata = topic.partitions.get(partition.partition) if topic is not None else None
        if metadata is None:
            return True  # deleted in the meantime
        return metadata.leader == metadata.replicas[0] if election_type == PREFERRED else metadata.leader >= 0


def _partitions(topics: list[Row]) -> Steps[list[TopicPartition]]:
    partitions: dict[TopicPartition, None] = {}
    count = 0
    for row in topics:
        for partition in row["partitions"]:
            partitions[TopicPartition(row["topic"], partition)] = None
            count += 1
            if count % STEP_ROWS == 0:
                yield
    return list(partitions)


def _rejection(error: ErrorCode, requested: list[TopicPartition] | None) -> Steps[Row]:
    # Version 0 has no top-level error, so each partition's row contains it.
    rows = yield from _rows(dict.fromkeys(requested or (), error))
    return {"throttle_time_ms": 0, "error_code": int(error), "replica_election_results": rows}


def _rows(results: Results, hidden: ErrorCode | None = None) -> Steps[list[Row]]:
    """Return the response rows.

    :param hidden: partitions with this error have no row.
    """
    topics: dict[str, list[Row]] = {}
    for number, ((topic, partition), error) in enumerate(results.items(), 1):
        if number % STEP_ROWS == 0:
            yield
        if error is not hidden:
            text = TEXTS.get(error) if error is not ErrorCode.NONE else None
            row = {"partition_id": partition, "error_code": int(error), "error_message": text}
            topics.setdefault(topic, []).append(row)
    return [{"topic": topic, "partition_result": rows} for topic, rows in topics.items()]
