"""WriteTxnMarkers (key 27): a coordinator ends transactions in the partitions that this broker leads (KIP-98)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from kreplica.cluster.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import TopicPartition
from kreplica.replication import Partitions
from kreplica.runtime import Reactor
from kreplica.runtime.turns import Turns
from kreplica.server.metadata.metadata_cache import MetadataCache
from kreplica.server.produce.delayed_produce import ALL_IN_SYNC, Pending, WaitingForReplicas
from kreplica.server.protocol.request import Request
from kreplica.server.protocol.responses import answered_by
from kreplica.wire.control_records import EndMarker

EPOCH_GROWS_FROM = 2
"""From this version of transactions on, a marker has the epoch of the producer's next transaction (KIP-890)."""

TIMEOUT_S = 30.0
"""After so long the coordinator is told that the in-sync replicas do not have it yet; it asks again."""

Row = dict[str, Any]


class OffsetGroups(Protocol):
    """The coordinator of groups: it waits for the ends of transactions that commit offsets."""

    def marker_written(self, partition: int, producer_id: int, *, committed: bool) -> None: ...


class WriteTxnMarkers:
    """Answers when all in-sync replicas have the markers; one partition's failure is that partition's answer.

    A marker is written also where the transaction has no records, or has ended: the coordinator asks again until it
    knows, and what is late of the transaction is told apart by it.

    A marker with a coordinator epoch that no leader of the transactions' topic has reached is refused: written, it
    would fence the real coordinator.

    :param groups: told of the markers that are committed in their topic.
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
        answered_by(request, self._write(request))

    async def _write(self, request: Request) -> None:
        pending: list[Pending] = []
        answer: Row = {"markers": []}
        turns = Turns(self._reactor)
        epoch_max = self._coordinator_epoch_max()
        for marker in request.body["markers"]:
            topics = []
            for topic in marker["topics"]:
                rows: list[Row] = []
                topics.append({"name": topic["name"], "partitions": rows})
                for number in topic["partition_indexes"]:
                    rows.append(self._append(marker, TopicPartition(topic["name"], number), pending, epoch_max))
                    if turns.is_over:
                        await turns.next()
            answer["markers"].append({"producer_id": marker["producer_id"], "topics": topics})
        waiting = [each for each in pending if not each.is_over()]
        if waiting:
            WaitingForReplicas(
                self._reactor, request, waiting, TIMEOUT_S, lambda: self._answer(request, answer)
            )
        else:
            self._answer(request, answer)

    def _coordinator_epoch_max(self) -> int:
        """Return the highest leader epoch of the transactions' topic: each is the epoch of one coordinator."""
        topic = self._metadata.topic(TRANSACTION_STATE)
        return max((state.leader_epoch for state in topic.partitions.values()), default=-1) if topic else -1

    def _append(self, asked: Row, key: TopicPartition, pending: list[Pending], epoch_max: int) -> Row:
        row: Row = {"partition_index": key.partition, "error_code": 0}
        if asked["coordinator_epoch"] > max(epoch_max, 0):
            # The metadata may be a moment old: a real coordinator asks again.
            row["error_code"] = int(ErrorCode.REQUEST_TIMED_OUT)
            return row
        try:
            partition = self._partitions.led(key)
            result = partition.append_marker(
                asked["producer_id"],
                asked["producer_epoch"],
                EndMarker(asked["transaction_result"], asked["coordinator_epoch"]),
                self._wall_clock_ms(),
                epoch_grows=asked.get("transaction_version", 0) >= EPOCH_GROWS_FROM,
            )
        except KafkaError as error:
            row["error_code"] = int(error.code)
        else:
            pending.append(Pending(partition, result.last_offset + 1, ALL_IN_SYNC, row))
        return row

    def _answer(self, request: Request, answer: Row) -> None:
        for marker, asked in zip(answer["markers"], request.body["markers"], strict=True):
            for topic in marker["topics"]:
                if topic["name"] == CONSUMER_OFFSETS:
                    for row in topic["partitions"]:
                        self._tell_group(row, marker["producer_id"], committed=asked["transaction_result"])
        request.answer(answer)

    def _tell_group(self, row: Row, producer_id: int, *, committed: bool) -> None:
        """Only what is committed counts: of anything else the coordinator asks again."""
        if row["error_code"] == ErrorCode.NONE:
            self._groups.marker_written(row["partition_index"], producer_id, committed=committed)
