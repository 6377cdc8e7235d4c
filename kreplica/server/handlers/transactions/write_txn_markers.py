"""WriteTxnMarkers (key 27): writes a coordinator's transaction markers to local leader replicas (KIP-98)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from kreplica.cluster.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import TopicPartition
from kreplica.replication import Partitions
from kreplica.runtime import Reactor
from kreplica.runtime.time_slice import TimeSlice
from kreplica.server.metadata.metadata_cache import MetadataCache
from kreplica.server.produce.delayed_produce import ALL_IN_SYNC, DelayedProduce, Pending
from kreplica.server.protocol.request import Request
from kreplica.server.protocol.responses import run_handler
from kreplica.wire.control_records import EndMarker

BUMPS_EPOCH_FROM = 2
"""First transaction version whose markers have the producer epoch of the next transaction (KIP-890)."""

TIMEOUT_S = 30.0
"""Maximum wait for the in-sync replicas; after a timeout the coordinator retries."""

Row = dict[str, Any]


class OffsetGroups(Protocol):
    """The group coordinator, which is notified of transactions that commit offsets."""

    def marker_written(self, partition: int, producer_id: int, *, committed: bool) -> None: ...


class WriteTxnMarkers:
    """Responds when all in-sync replicas have the markers; a failure affects only its partition.

    A marker is written even if the transaction has no records or has ended, because the coordinator retries until it
    succeeds, and late records of the transaction are recognized by the marker.

    A marker with a coordinator epoch above that of every transaction coordinator is rejected, because it would fence
    the real coordinator.

    :param groups: notified of committed markers in the offsets topic.
    """

    def __init__(
        self,
        reactor: Reactor,
        partitions: Partitions,
        metadata: MetadataCache,
        groups: OffsetGroups,
        wall_clock_ms: Callable[[], int],
    ) -> None:
        self._reactor = reactor
        self._partitions = partitions
        self._metadata = metadata
        self._groups = groups
        self._wall_clock_ms = wall_clock_ms

    def __call__(self, request: Request) -> None:
        run_handler(request, self._write(request))

    async def _write(self, request: Request) -> None:
        pending: list[Pending] = []
        response: Row = {"markers": []}
        time_slice = TimeSlice(self._reactor)
        epoch_max = self._coordinator_epoch_max()
        for marker in request.body["markers"]:
            topics = []
            for topic in marker["topics"]:
                rows: list[Row] = []
                topics.append({"name": topic["name"], "partitions": rows})
                for number in topic["partition_indexes"]:
                    rows.append(self._append(marker, TopicPartition(topic["name"], number), pending, epoch_max))
                    if time_slice.is_over:
                        await time_slice.next()
            response["markers"].append({"producer_id": marker["producer_id"], "topics": topics})
        waiting = [each for each in pending if not each.is_complete()]
        if waiting:
            DelayedProduce(
                self._reactor, request, waiting, TIMEOUT_S, lambda: self._respond(request, response)
            )
        else:
            self._respond(request, response)

    def _coordinator_epoch_max(self) -> int:
        """Return the highest leader epoch in the transaction topic, where a leader's epoch is its coordinator epoch."""
        topic = self._metadata.topic(TRANSACTION_STATE)
        return max((state.leader_epoch for state in topic.partitions.values()), default=-1) if topic else -1

    def _append(self, requested: Row, key: TopicPartition, pending: list[Pending], epoch_max: int) -> Row:
        row: Row = {"partition_index": key.partition, "error_code": 0}
        if requested["coordinator_epoch"] > max(epoch_max, 0):
            # The metadata may be out of date; a real coordinator retries.
            row["error_code"] = int(ErrorCode.REQUEST_TIMED_OUT)
            return row
        try:
            partition = self._partitions.led_partition(key)
            result = partition.append_marker(
                requested["producer_id"],
                requested["producer_epoch"],
                EndMarker(requested["transaction_result"], requested["coordinator_epoch"]),
                self._wall_clock_ms(),
                bumps_epoch=requested.get("transaction_version", 0) >= BUMPS_EPOCH_FROM,
            )
        except KafkaError as error:
            row["error_code"] = int(error.code)
        else:
            pending.append(Pending(partition, result.last_offset + 1, ALL_IN_SYNC, row))
        return row

    def _respond(self, request: Request, response: Row) -> None:
        for marker, requested in zip(response["markers"], request.body["markers"], strict=True):
            for topic in marker["topics"]:
                if topic["name"] == CONSUMER_OFFSETS:
                    for row in topic["partitions"]:
                        self._notify_group(row, marker["producer_id"], committed=requested["transaction_result"])
        request.respond(response)

    def _notify_group(self, row: Row, producer_id: int, *, committed: bool) -> None:
        """Notify the group coordinator of a replicated marker; the transaction coordinator retries failed markers."""
        if row["error_code"] == ErrorCode.NONE:
            self._groups.marker_written(row["partition_index"], producer_id, committed=committed)
