"""Reads of one partition for a fetch: committed records for consumers, all records for followers, or an error."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from kreplica.errors import ErrorCode, KafkaError, StorageError
from kreplica.model import NO_BROKER_EPOCH, NO_EPOCH, TopicPartition
from kreplica.replication import READ_COMMITTED, READ_UNCOMMITTED, Partition, Partitions
from kreplica.replication.leader.read_replica import RackOf, ReplicaSelector, ReplicaView
from kreplica.replication.role import Role
from kreplica.replication.throttle import ReplicationThrottle, TokenBucket
from kreplica.server.fetch.partition import FetchPartition
from kreplica.server.metadata.metadata_cache import MetadataCache
from kreplica.server.protocol.responses import LeaderHints
from kreplica.storage.log.checks import check_batch
from kreplica.storage.log.results import LogSlice

Row = dict[str, Any]

CONSUMER = -1
DEBUG_CONSUMER = -2
"""Replica ID of a client that reads any replica, past the high watermark."""

_new_tuple = tuple.__new__


class Reader(NamedTuple):
    """Client of a fetch.

    :param replica_id: broker ID of a follower, ``CONSUMER`` or ``DEBUG_CONSUMER``.
    :param is_follower: the client is a broker.
    :param broker_epoch: broker epoch of the follower; -1 in versions of Fetch without it.
    :param by_id: topics are identified by ID.
    :param any_replica: the client may read from a follower.
    :param rack: rack of the consumer, or empty.
    :param may_read: authorizes a topic; None if all topics may be read.
    """

    replica_id: int = CONSUMER
    is_follower: bool = False
    broker_epoch: int = NO_BROKER_EPOCH
    isolation: int = READ_UNCOMMITTED
    by_id: bool = False
    any_replica: bool = False
    rack: str = ""
    may_read: Callable[[str], bool] | None = None


class Read(NamedTuple):
    """Result of a read.

    :param row: response row; None if there are neither records nor an error.  The row is then built with the response.
    :param size: bytes of records in the row.
    :param partition: None if this broker has no replica.
    :param settled: True if no further data becomes available until the partition or the client's offset changes.
    :param urgent: the response must be sent at once.
    :param throttles: token buckets that the bytes are charged to.
    :param role: role of the partition at the time of the read; a later role does not have the follower's progress.
    """

    row: Row | None
    size: int = 0
    partition: Partition | None = None
    settled: bool = False
    urgent: bool = False
    throttles: Sequence[TokenBucket] = ()
    role: Role | None = None


class PartitionReads:
    """Reads partitions for all fetches of a broker.

    :param seconds: monotonic clock.
    :param rack_of: returns the rack of a live broker; used by the selector.
    :param selector: selects the preferred read replica (KIP-392), or None.
    :param throttle: replication throttles, or None.
    """

    def __init__(
        self,
        seconds: Callable[[], float],
        partitions: Partitions,
        metadata: MetadataCache,
        *,
        rack_of: RackOf = lambda _: None,
        selector: ReplicaSelector | None = None,
        throttle: ReplicationThrottle | None = None,
    ) -> None:
        self.seconds = seconds
        self.throttle = throttle
        self._partitions = partitions
        self._metadata = metadata
        self._rack_of = rack_of
        self._selector = selector

    def read(
        self,
        reader: Reader,
        fetch_partition: FetchPartition,
        space: int,
        hints: Callable[[], LeaderHints],
        *,
        at_least_one: bool,
    ) -> Read:
        """Read one partition up to ``space`` bytes; errors are returned in the row.

        :param hints: called if there is an error.
        :param at_least_one: return the first batch whole, whatever its size (KIP-74).
        """
        try:
            partition = self._find(reader, fetch_partition)
            try:
                return self._read(reader, fetch_partition, partition, space, at_least_one)
            except (OSError, StorageError) as error:
                # Other partitions of the fetch, and other fetches in this reactor iteration, are not affected.
                raise partition.read_failed(fetch_partition.fetch_offset, error) from error
        except KafkaError as error:
            code = error.code
        row = _row(fetch_partition.partition, error_code=int(code))
        if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            row["aborted_transactions"] = []  # as in Kafka
        topic = self._metadata.name_of(fetch_partition.topic_id) if reader.by_id else fetch_partition.topic
        if topic is not None:
            row["current_leader"] = hints().leader_of(TopicPartition(topic, fetch_partition.partition), code)
        return Read(row, urgent=True)

    def needs_read(self, reader: Reader, reads: Mapping[FetchPartition, Read], fetch_partition: FetchPartition) -> bool:
        """Return whether another read of a changed partition would give the client new data or values.

        Each append changes a partition twice: when it is written, which matters to followers, and when it is
        committed, which matters to consumers.

        :param reads: last read of each partition.
        """
        before = reads.get(fetch_partition)
        if before is None:
            return True
        partition = before.partition
        if partition is None or not before.settled:
            return True
        role = partition.role
        if role is not before.role or not role.is_leader:
            return True
        if fetch_partition.current_leader_epoch not in (NO_EPOCH, partition.leadership.leader_epoch):
            return True
        if reader.is_follower:
            return partition.log.log_end_offset > fetch_partition.fetch_offset or (
                fetch_partition.sent is not None and self._has_urgent_values(fetch_partition.sent, partition)
            )
        if reader.replica_id != CONSUMER or (self._selector is not None and reader.rack):
            return True
        return partition.visible_end(reader.isolation) > fetch_partition.fetch_offset

    def _find(self, reader: Reader, fetch_partition: FetchPartition) -> Partition:
        topic = fetch_partition.topic
        if topic is None:
            # The controller sends a new topic's leaders before its metadata.
            topic = self._metadata.name_of(fetch_partition.topic_id) or self._partitions.name_of(
                fetch_partition.topic_id
            )
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        if reader.may_read is not None and not reader.may_read(topic):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        key = _new_tuple(TopicPartition, (topic, fetch_partition.partition))
        partition = self._partitions.get(key)
        if partition is None:
            raise self._partitions.unknown_partition_error(key)
        if reader.by_id and partition.topic_id != fetch_partition.topic_id:
            raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID)
        if reader.any_replica:
            partition.check_replica(fetch_partition.current_leader_epoch)
        else:
            partition.check_leader(fetch_partition.current_leader_epoch)
        return partition

    def _read(
        self, reader: Reader, fetch_partition: FetchPartition, partition: Partition, space: int, at_least_one: bool
    ) -> Read:
        if fetch_partition.last_fetched_epoch != NO_EPOCH:
            diverging = _diverging_epoch(partition, fetch_partition)
            if diverging is not None:
                row = _row_of_offsets(partition, fetch_partition.partition)
                row["diverging_epoch"] = diverging
                return Read(row, 0, partition, urgent=True)
        log = partition.log
        offset = fetch_partition.fetch_offset
        throttles: Sequence[TokenBucket] = ()
        has_urgent_values = False
        is_requested = fetch_partition.is_requested
        if reader.is_follower:
            if is_requested:
                self._acknowledge(reader, fetch_partition, partition)
            end_offset = log.log_end_offset
            has_urgent_values = fetch_partition.sent is not None and self._has_urgent_values(
                fetch_partition.sent, partition
            )
            if self.throttle is not None and reader.replica_id not in partition.leadership.isr:
                throttles = self.throttle.leader_throttles(
                    partition.topic_partition, reader.replica_id, partition.leadership.adding
                )
                if any(bucket.is_exhausted for bucket in throttles):
                    return Read(None, 0, partition)
        elif reader.replica_id == CONSUMER:
            if self._selector is not None and reader.rack and partition.is_leader:
                preferred = self._preferred_replica(self._selector, reader.rack, fetch_partition, partition)
                if preferred is not None:
                    row = _row_of_offsets(partition, fetch_partition.partition)
                    row["preferred_read_replica"] = preferred
                    return Read(row, 0, partition, urgent=True)
            end_offset = partition.visible_end(reader.isolation)
        else:
            end_offset = log.log_end_offset
        if offset == end_offset:
            if reader.is_follower and not is_requested:
                _check_acknowledged(reader.replica_id, partition)
            return _new_tuple(Read, (None, 0, partition, True, has_urgent_values, throttles, partition.role))
        slice_ = log.read(
            offset,
            size_max=max(min(fetch_partition.bytes_max, space), 0),
            offset_max=end_offset,
            at_least_one=at_least_one,
        )
        if not slice_.size:
            settled = offset >= end_offset
            return _new_tuple(Read, (None, 0, partition, settled, has_urgent_values, throttles, partition.role))
        if reader.is_follower:
            _check_resent(reader.replica_id, offset, partition, slice_)
        row = _row_of_offsets(partition, fetch_partition.partition)
        row["records"] = slice_
        if reader.isolation == READ_COMMITTED:
            row["aborted_transactions"] = _aborted_transactions(partition, offset, slice_)
        settled = offset >= end_offset
        return _new_tuple(Read, (row, slice_.size, partition, settled, has_urgent_values, throttles, partition.role))

    def _acknowledge(self, reader: Reader, fetch_partition: FetchPartition, partition: Partition) -> None:
        """Record that a follower has all records before its fetch offset.

        Called before the read, since it may advance the high watermark.  An offset outside the log is rejected.
        """
        if not partition.log.log_start_offset <= fetch_partition.fetch_offset <= partition.log.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{fetch_partition.fetch_offset} is not between {partition.log.log_start_offset} and "
                f"{partition.log.log_end_offset} of {partition.topic_partition}",
            )
        partition.role.record_fetch(
            reader.replica_id,
            reader.broker_epoch,
            fetch_partition.fetch_offset,
            self.seconds(),
            fetch_partition.log_start_offset,
        )

    def _has_urgent_values(self, sent: tuple[int, int], partition: Partition) -> bool:
        """Return whether a follower needs changed values without waiting for new records.

        The log start offset is needed because DeleteRecords waits for all replicas (KIP-107).  The high watermark is
        needed only if consumers read from followers; a new leader learns it from its own followers.  Sending it at once
        in all cases would double the number of fetches under load.
        """
        high_watermark, log_start_offset = sent
        return log_start_offset != partition.log.log_start_offset or (
            self._selector is not None and high_watermark != partition.high_watermark
        )

    def _preferred_replica(
        self, selector: ReplicaSelector, rack: str, fetch_partition: FetchPartition, partition: Partition
    ) -> int | None:
        """Return the in-sync follower that the selector prefers among those that have the fetch offset, or None."""
        leader_id = partition.leadership.leader
        followers = [
            ReplicaView(broker_id, self._rack_of(broker_id), end_offset)
            for broker_id in partition.leadership.isr
            if broker_id != leader_id
            for end_offset in (partition.role.known_end_offset(broker_id),)
            if end_offset is not None and partition.log.log_start_offset <= fetch_partition.fetch_offset <= end_offset
        ]
        leader = ReplicaView(leader_id, self._rack_of(leader_id), partition.log.log_end_offset)
        return selector(rack, leader, followers)


def _check_acknowledged(replica_id: int, partition: Partition) -> None:
    """Check that a follower without new records has acknowledged its offset to this leader state.

    It has not if its last request failed, or if this broker lost the leadership and regained it.  The follower would
    then wait for records that may never arrive, and could not join the ISR; the error makes it request the partition
    again.

    :raise KafkaError: UNKNOWN_LEADER_EPOCH, which is retriable.
    """
    if partition.role.known_end_offset(replica_id) is None:
        text = f"{replica_id} has not fetched {partition.topic_partition} since this broker became its leader"
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, text)


def _check_resent(replica_id: int, offset: int, partition: Partition, slice_: LogSlice) -> None:
    """Check the CRC of a batch that a follower fetches again, or that follows a gap.

    :raise Damage: the batch is damaged and must not be sent.
    """
    if partition.role.mark_sent(replica_id, offset) or slice_.first_offset > offset:
        check_batch(partition.log, offset)


def _diverging_epoch(partition: Partition, fetch_partition: FetchPartition) -> dict[str, int] | None:
    """Return the diverging epoch if the client's log differs from this leader's, else None (KIP-595).

    :raise KafkaError: OFFSET_OUT_OF_RANGE, this leader has no epoch at or before the client's.
    """
    log = partition.log
    if (
        fetch_partition.last_fetched_epoch == log.leader_epochs.latest
        and fetch_partition.fetch_offset <= log.log_end_offset
    ):
        return None  # the usual case
    epoch, end_offset = partition.end_offset_for_epoch(fetch_partition.last_fetched_epoch)
    if end_offset < 0:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{partition.topic_partition}: the end of epoch {fetch_partition.last_fetched_epoch} is unknown",
        )
    if epoch < fetch_partition.last_fetched_epoch or end_offset < fetch_partition.fetch_offset:
        return {"epoch": epoch, "end_offset": end_offset}
    return None


def _aborted_transactions(partition: Partition, first_offset: int, slice_: LogSlice) -> list[dict[str, int]]:
    """Return the aborted transactions that overlap the slice, and possibly others."""
    log = partition.log
    last = slice_.ranges[-1]
    to_offset = log.segments.end_offset_bound(slice_.first_offset, last.position + last.size, log.log_end_offset)
    return [
        {"producer_id": aborted.producer_id, "first_offset": aborted.first_offset}
        for aborted in log.segments.aborted_transactions(first_offset, to_offset)
    ]


def row_without_records(reader: Reader, fetch_partition: FetchPartition, partition: Partition) -> Row:
    """Return the row of a partition without records."""
    row = _row_of_offsets(partition, fetch_partition.partition)
    if reader.isolation == READ_COMMITTED:
        row["aborted_transactions"] = []
    return row


def _row_of_offsets(partition: Partition, index: int) -> Row:
    high_watermark = partition.high_watermark
    log = partition.log
    return _row(index, 0, high_watermark, log.last_stable_offset(high_watermark), log.log_start_offset)


def _row(
    partition: int,
    error_code: int = 0,
    high_watermark: int = -1,
    last_stable_offset: int = -1,
    log_start_offset: int = -1,
) -> Row:
    """Return a row with all untagged fields, as the fastest builder requires."""
    return {
        "partition_index": partition,
        "error_code": error_code,
        "high_watermark": high_watermark,
        "last_stable_offset": last_stable_offset,
        "log_start_offset": log_start_offset,
        "aborted_transactions": None,
        "preferred_read_replica": -1,
        "records": b"",
    }
