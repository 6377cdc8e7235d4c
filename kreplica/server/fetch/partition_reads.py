"""What a fetch gets of one partition: a consumer what is committed, a follower all there is, and why not where not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from kreplica.errors import ErrorCode, KafkaError, StorageError
from kreplica.model import NO_BROKER_EPOCH, NO_EPOCH, TopicPartition
from kreplica.replication import READ_COMMITTED, READ_UNCOMMITTED, Partition, Partitions, Role
from kreplica.replication.leader.replica_selection import RackOf, Replica, ReplicaSelector
from kreplica.replication.throttle import ReplicationThrottle, TokenBucket
from kreplica.server.fetch.partition import Wanted
from kreplica.server.metadata.metadata_cache import MetadataCache
from kreplica.server.protocol.responses import LeaderHints
from kreplica.storage.log.results import LogSlice

Row = dict[str, Any]

CONSUMER = -1
DEBUGGER = -2
"""Who reads any replica, and beyond what is committed."""

_new_tuple = tuple.__new__


class Reader(NamedTuple):
    """Who fetches.

    :param replica_id: a broker's that follows, ``CONSUMER`` or ``DEBUGGER``.
    :param is_follower: it is a broker's.
    :param broker_epoch: the follower's; -1 where its version of Fetch does not say.
    :param by_id: topics are named by id.
    :param any_replica: it may read from a follower.
    :param rack: the consumer's; empty where it does not say.
    :param may_read: asked of each topic, where somebody has to be asked.
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
    """What was read.

    :param row: None where there are only figures to tell: those of the time of the answer.
    :param partition: None where it is not here.
    :param size: bytes of records in the row.
    :param settled: there is nothing more until the partition changes or the reader moves.
    :param urgent: the reader is to hear of it at once.
    :param throttles: what its bytes count for.
    """

    row: Row | None
    size: int = 0
    partition: Partition | None = None
    settled: bool = False
    urgent: bool = False
    throttles: Sequence[TokenBucket] = ()


class PartitionReads:
    """Reads for every fetch of a broker.

    :param seconds: a clock that never goes back.
    :param rack_of: of live brokers; of use with a selector.
    :param selector: where consumers may be sent to a nearer replica.
    :param throttle: for replicas that move.
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
        self, reader: Reader, wanted: Wanted, space: int, hints: Callable[[], LeaderHints], *, at_least_one: bool
    ) -> Read:
        """Read one partition, as much as there is room for; an error is the row's.

        :param hints: asked for where there is an error.
        :param at_least_one: the first batch comes whole, however large it is (KIP-74).
        """
        try:
            partition = self._find(reader, wanted)
            try:
                return self._read(reader, wanted, partition, space, at_least_one)
            except (OSError, StorageError) as error:
                # One partition's trouble: whoever else waits for what happened in this turn is answered all the same.
                raise partition.cannot_be_read(wanted.fetch_offset, error) from error
        except KafkaError as error:
            code = error.code
        row = _row(wanted.partition, error_code=int(code))
        topic = self._metadata.name_of(wanted.topic_id) if reader.by_id else wanted.topic
        if topic is not None:
            row["current_leader"] = hints().leader_of(TopicPartition(topic, wanted.partition), code)
        return Read(row, urgent=True)

    def is_worth_another(self, reader: Reader, reads: Mapping[Wanted, Read], wanted: Wanted) -> bool:
        """Whether a partition that has changed holds anything now that its reader waits for.

        Whatever is appended changes it twice, when it is written and when it is committed: the one is for followers,
        the other for consumers.

        :param reads: what was read last of each.
        """
        before = reads.get(wanted)
        if before is None:
            return True
        partition = before.partition
        if partition is None or not before.settled or partition.role is not Role.LEADER:
            return True
        if wanted.current_leader_epoch not in (NO_EPOCH, partition.leadership.leader_epoch):
            return True
        if reader.is_follower:
            return partition.log.log_end_offset > wanted.fetch_offset or (
                wanted.told is not None and self._is_told_late(wanted.told, partition)
            )
        if reader.replica_id != CONSUMER or (self._selector is not None and reader.rack):
            return True
        return partition.visible_end(reader.isolation) > wanted.fetch_offset

    def _find(self, reader: Reader, wanted: Wanted) -> Partition:
        topic = wanted.topic
        if topic is None:
            # The controller names a new topic's leaders first, and publishes its metadata afterwards.
            topic = self._metadata.name_of(wanted.topic_id) or self._partitions.name_of(wanted.topic_id)
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        if reader.may_read is not None and not reader.may_read(topic):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        key = _new_tuple(TopicPartition, (topic, wanted.partition))
        partition = self._partitions.get(key)
        if partition is None:
            raise self._partitions.unknown(key)
        if reader.by_id and partition.topic_id != wanted.topic_id:
            raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID)
        if reader.any_replica:
            partition.check_replica(wanted.current_leader_epoch)
        else:
            partition.check_leader(wanted.current_leader_epoch)
        return partition

    def _read(self, reader: Reader, wanted: Wanted, partition: Partition, space: int, at_least_one: bool) -> Read:
        if wanted.last_fetched_epoch != NO_EPOCH:
            diverging = _diverging(partition, wanted)
            if diverging is not None:
                row = _figures(partition, wanted.partition)
                row["diverging_epoch"] = diverging
                return Read(row, 0, partition, urgent=True)
        log = partition.log
        offset = wanted.fetch_offset
        throttles: Sequence[TokenBucket] = ()
        is_told_late = False
        if reader.is_follower:
            if wanted.named:
                self._acknowledge(reader, wanted, partition)
            end_offset = log.log_end_offset
            is_told_late = wanted.told is not None and self._is_told_late(wanted.told, partition)
            if self.throttle is not None and reader.replica_id not in partition.leadership.isr:
                throttles = self.throttle.leading(
                    partition.topic_partition, reader.replica_id, partition.leadership.adding
                )
                if any(bucket.used_up for bucket in throttles):
                    return Read(None, 0, partition)
        elif reader.replica_id == CONSUMER:
            if self._selector is not None and reader.rack and partition.is_leader:
                preferred = self._preferred(self._selector, reader.rack, wanted, partition)
                if preferred is not None:
                    row = _figures(partition, wanted.partition)
                    row["preferred_read_replica"] = preferred
                    return Read(row, 0, partition, urgent=True)
            end_offset = partition.visible_end(reader.isolation)
        else:
            end_offset = log.log_end_offset
        if offset == end_offset:
            return _new_tuple(Read, (None, 0, partition, True, is_told_late, throttles))
        slice_ = log.read(
            offset, size_max=max(min(wanted.bytes_max, space), 0), offset_max=end_offset, at_least_one=at_least_one
        )
        if not slice_.size:
            return _new_tuple(Read, (None, 0, partition, offset >= end_offset, is_told_late, throttles))
        if reader.is_follower:
            _look_twice(reader.replica_id, offset, partition, slice_)
        row = _figures(partition, wanted.partition)
        row["records"] = slice_
        if reader.isolation == READ_COMMITTED:
            row["aborted_transactions"] = _aborted(partition, offset, slice_)
        return _new_tuple(Read, (row, slice_.size, partition, offset >= end_offset, is_told_late, throttles))

    def _acknowledge(self, reader: Reader, wanted: Wanted, partition: Partition) -> None:
        """A follower that asks for an offset has everything before it; before the read, whose figures it may move.

        What lies outside the log acknowledges nothing.
        """
        if not partition.log.log_start_offset <= wanted.fetch_offset <= partition.log.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{wanted.fetch_offset} is not within {partition.log.log_start_offset} to "
                f"{partition.log.log_end_offset} of {partition.topic_partition}",
            )
        partition.record_fetch(
            reader.replica_id, reader.broker_epoch, wanted.fetch_offset, self.seconds(), wanted.log_start_offset
        )

    def _is_told_late(self, told: tuple[int, int], partition: Partition) -> bool:
        """Whether a follower has to hear of the leader's figures before there is anything else to say.

        Of the log's start, for whoever deletes records waits until all have (KIP-107).  Of the high watermark only
        where consumers read from followers: for its own sake a follower needs it when it leads, and learns it then
        from its own followers.  Telling every follower at once would double the number of fetches under load.
        """
        high_watermark, log_start_offset = told
        return log_start_offset != partition.log.log_start_offset or (
            self._selector is not None and high_watermark != partition.high_watermark
        )

    def _preferred(
        self, selector: ReplicaSelector, rack: str, wanted: Wanted, partition: Partition
    ) -> int | None:
        """The in-sync follower to which a consumer is sent, where one that has its offset is nearer."""
        leader_id = partition.leadership.leader
        followers = [
            Replica(broker_id, self._rack_of(broker_id), end_offset)
            for broker_id in partition.leadership.isr
            if broker_id != leader_id
            for end_offset in (partition.known_end_offset(broker_id),)
            if end_offset is not None and partition.log.log_start_offset <= wanted.fetch_offset <= end_offset
        ]
        leader = Replica(leader_id, self._rack_of(leader_id), partition.log.log_end_offset)
        return selector(rack, leader, followers)


def _look_twice(replica_id: int, offset: int, partition: Partition, slice_: LogSlice) -> None:
    """Check what a follower is sent, where it was sent the same before, or where there is a gap.

    :raise Damage: it may not be sent.
    """
    if partition.was_sent(replica_id, offset) or slice_.first_offset > offset:
        partition.log.check_batch(offset)


def _diverging(partition: Partition, wanted: Wanted) -> dict[str, int] | None:
    """Where the client's history leaves this leader's, where it does (KIP-595).

    :raise KafkaError: OFFSET_OUT_OF_RANGE, this leader has no epoch up to the client's.
    """
    log = partition.log
    if wanted.last_fetched_epoch == log.leader_epochs.latest and wanted.fetch_offset <= log.log_end_offset:
        return None  # as mostly
    epoch, end_offset = partition.end_offset_for_epoch(wanted.last_fetched_epoch)
    if end_offset < 0:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{partition.topic_partition}: the end of epoch {wanted.last_fetched_epoch} is not known",
        )
    if epoch < wanted.last_fetched_epoch or end_offset < wanted.fetch_offset:
        return {"epoch": epoch, "end_offset": end_offset}
    return None


def _aborted(partition: Partition, first_offset: int, slice_: LogSlice) -> list[dict[str, int]]:
    """The aborted transactions that a consumer must leave out of what it is sent (and perhaps some more)."""
    log = partition.log
    return [
        {"producer_id": aborted.producer_id, "first_offset": aborted.first_offset}
        for aborted in log.aborted_transactions(first_offset, log.end_bound_of(slice_))
    ]


def row_of_figures(reader: Reader, wanted: Wanted, partition: Partition) -> Row:
    """The row of a partition of which there are no records to send."""
    row = _figures(partition, wanted.partition)
    if reader.isolation == READ_COMMITTED:
        row["aborted_transactions"] = []
    return row


def _figures(partition: Partition, index: int) -> Row:
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
    """An answer for one partition with all fields but those that have tags: so it is built fastest."""
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
