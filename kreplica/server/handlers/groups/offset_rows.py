"""Reads the offsets of a commit request and builds its response rows."""

from __future__ import annotations

from typing import Any

from kreplica.coordination import ClusterView, Shards
from kreplica.coordination.state_log import ProducerEpoch
from kreplica.errors import ErrorCode, KafkaError
from kreplica.groups.offset_commits import is_metadata_acceptable, is_writable
from kreplica.groups.offsets import STEP_OFFSETS
from kreplica.groups.records import NO_LEADER_EPOCH, NO_TIME, CommittedOffset, build_offset_value
from kreplica.groups.shard import GroupShard
from kreplica.runtime.slices import Steps
from kreplica.wire.batch_building import BatchBuilder

LARGE_COMMIT_OFFSETS = 500
"""Minimum number of offsets for which a commit gets its own batch, built in slices."""

Row = dict[str, Any]

_NONE = int(ErrorCode.NONE)
_PARTITIONS_MAX = 2**31
_UNKNOWN = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
_TOO_LARGE = int(ErrorCode.OFFSET_METADATA_TOO_LARGE)


class OffsetRows:
    """Offsets of one request; ``read`` fills it in slices.

    :param now_ms: commit time of offsets without one; only OffsetCommit version 1 contains commit times.
    :param expire_timestamp_ms: time at which the offsets expire, or ``NO_TIME``.
    :ivar values: the valid offsets, in the form that ``Offsets.commit`` expects.
    :ivar topics: the response rows; rows of valid offsets have no error.
    """

    __slots__ = (
        "_expire_timestamp_ms",
        "_metadata_characters_max",
        "_now_ms",
        "_valid_rows",
        "_view",
        "topics",
        "values",
    )

    def __init__(
        self,
        view: ClusterView,
        metadata_characters_max: int,
        now_ms: int,
        expire_timestamp_ms: int = NO_TIME,
    ) -> None:
        self.values: list[tuple[str, list[tuple[int, bytes]]]] = []
        self.topics: list[Row] = []
        self._valid_rows: list[Row] = []
        self._view = view
        self._metadata_characters_max = metadata_characters_max
        self._now_ms = now_ms
        self._expire_timestamp_ms = expire_timestamp_ms

    def read(self, topics: list[Row]) -> Steps[OffsetRows]:
        """Read the topics of an OffsetCommit or TxnOffsetCommit.

        :return: these rows.
        """
        count = 0
        for topic in topics:
            name = topic["name"]
            partitions = self._partitions_max(name)
            count += 1
            if count % STEP_OFFSETS == 0:
                yield
            values: list[tuple[int, bytes]] = []
            rows: list[Row] = []
            for partition in topic["partitions"]:
                index = partition["partition_index"]
                metadata = partition["committed_metadata"] or ""
                row = {"partition_index": index, "error_code": _NONE}
                rows.append(row)
                if not 0 <= index < partitions:
                    row["error_code"] = _UNKNOWN
                elif not is_metadata_acceptable(metadata, self._metadata_characters_max):
                    row["error_code"] = _TOO_LARGE
                else:
                    self._valid_rows.append(row)
                    timestamp_ms = partition.get("commit_timestamp", NO_TIME)
                    committed = CommittedOffset(
                        partition["committed_offset"],
                        partition.get("committed_leader_epoch", NO_LEADER_EPOCH),
                        metadata,
                        self._now_ms if timestamp_ms == NO_TIME else timestamp_ms,
                        self._expire_timestamp_ms,
                    )
                    values.append((index, build_offset_value(committed)))
                count += 1
                if count % STEP_OFFSETS == 0:
                    yield
            if values:
                self.values.append((name, values))
            self.topics.append({"name": name, "partitions": rows})
        return self

    def _partitions_max(self, topic: str) -> int:
        """Return the number of partitions of a topic; before the broker has metadata, any partition may exist."""
        count = self._view.partition_count(topic)
        if count is None:
            return 0 if self._view.is_complete else _PARTITIONS_MAX
        return count

    @property
    def count(self) -> int:
        """Number of valid offsets."""
        return len(self._valid_rows)

    def prepare(
        self, shards: Shards[GroupShard], group_id: str, producer: ProducerEpoch | None = None
    ) -> Steps[BatchBuilder | None]:
        """Build the batch of a large commit in slices.

        :param producer: the producer if the commit belongs to its transaction.
        :return: None if the commit is small, or will be rejected.
        :raise KafkaError: MESSAGE_TOO_LARGE.
        """
        if self.count < LARGE_COMMIT_OFFSETS or not is_writable(group_id):
            return None
        try:
            shard = shards.shard_of(group_id)
        except KafkaError:
            return None
        return (yield from shard.offsets.prepare(group_id, self.values, self._now_ms, producer))

    def fail(self, code: ErrorCode) -> None:
        """Set an error code for all offsets without another error."""
        for row in self._valid_rows:
            row["error_code"] = int(code)
