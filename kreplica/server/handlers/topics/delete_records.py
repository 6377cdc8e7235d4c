"""DeleteRecords (key 21): advances the log start offsets of partitions on all in-sync replicas."""

from __future__ import annotations

from typing import Any

from kreplica.cluster.topic_names import INTERNAL_TOPICS
from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import TopicPartition
from kreplica.replication import DelayedOperation, Partition, Partitions
from kreplica.runtime import Reactor
from kreplica.server.protocol.request import Request

Row = dict[str, Any]


class DeleteRecords:
    """Deletes records of each partition separately; a failure affects only its partition."""

    def __init__(self, reactor: Reactor, partitions: Partitions) -> None:
        self._reactor = reactor
        self._partitions = partitions

    def __call__(self, request: Request) -> None:
        pending: list[_Pending] = []
        topics = [
            {
                "name": topic["name"],
                "partitions": [self._delete(topic["name"], row, pending) for row in topic["partitions"]],
            }
            for topic in request.body["topics"]
        ]
        if pending:
            _WaitingDeletion(self._reactor, request, {"topics": topics}, pending)
        else:
            request.respond({"topics": topics})

    def _delete(self, topic: str, requested: Row, pending: list[_Pending]) -> Row:
        row = {"partition_index": requested["partition_index"], "low_watermark": -1, "error_code": 0}
        try:
            if topic in INTERNAL_TOPICS:
                raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"only coordinators delete records of {topic}")
            partition = self._partitions.led_partition(TopicPartition(topic, requested["partition_index"]))
            if not partition.log.config.deletes_segments:
                raise KafkaError(ErrorCode.POLICY_VIOLATION, f"cleanup.policy of {topic} does not contain delete")
            offset = partition.delete_records(requested["offset"])
        except KafkaError as error:
            row["error_code"] = int(error.code)
            return row
        deletion = _Pending(partition, offset, row)
        if not deletion.is_complete():
            pending.append(deletion)
        return row


class _Pending:
    """A partition whose in-sync replicas have not all advanced their log start offsets."""

    __slots__ = ("_leadership_generation", "_offset", "_row", "partition")

    def __init__(self, partition: Partition, offset: int, row: Row) -> None:
        self.partition = partition
        self._offset = offset
        self._row = row
        self._leadership_generation = partition.leadership_generation

    def is_complete(self) -> bool:
        """Return True if all replicas have advanced or this broker no longer leads; set the row's result."""
        if self.partition.leadership_generation != self._leadership_generation:
            self._row["error_code"] = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return True
        low_watermark = self.partition.role.low_watermark
        if low_watermark < self._offset:
            return False
        self._row["low_watermark"] = low_watermark
        return True

    def expire(self) -> None:
        """Set the timeout error unless all replicas have advanced."""
        if not self.is_complete():
            self._row["error_code"] = int(ErrorCode.REQUEST_TIMED_OUT)


class _WaitingDeletion:
    """Request that waits for the replicas of at least one partition."""

    def __init__(self, reactor: Reactor, request: Request, response: Row, pending: list[_Pending]) -> None:
        self._request = request
        self._response = response
        self._pending = pending
        timeout_s = request.body["timeout_ms"] / 1000
        waiting = DelayedOperation(reactor, [p.partition for p in pending], timeout_s, self._try_complete, self._expire)
        request.on_abandoned(waiting.abandon)

    def _try_complete(self, changed: set[Partition]) -> bool:
        self._pending = [p for p in self._pending if p.partition not in changed or not p.is_complete()]
        if not self._pending:
            self._request.respond(self._response)
        return not self._pending

    def _expire(self) -> None:
        for pending in self._pending:
            pending.expire()
        self._request.respond(self._response)
