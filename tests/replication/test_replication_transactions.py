"""Transactions in a led partition: start, end, and requests that wait for the end (KIP-98, KIP-890)."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from leading_scene import SECOND, THIRD, Leading, fetch, leadership

from kreplica.cluster.topic_names import TRANSACTION_STATE
from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import ZERO_UUID, TopicPartition
from kreplica.replication import READ_COMMITTED, Partition
from kreplica.server.handlers.transactions.write_txn_markers import TIMEOUT_S, WriteTxnMarkers
from kreplica.server.metadata.metadata_cache import MetadataCache, PartitionMetadata, TopicMetadata
from kreplica.storage.log.results import only_result
from kreplica.wire.batch_building import NEXT_OFFSET, build_batch
from kreplica.wire.batches import parse_header
from kreplica.wire.control_records import EndMarker
from kreplica.wire.records import Record

PRODUCER = 7


def in_transaction(sequence: int = 0, epoch: int = 0) -> bytearray:
    record = Record(NEXT_OFFSET, 1000, None, b"v")
    return bytearray(
        build_batch(
            [record], producer_id=PRODUCER, producer_epoch=epoch, base_sequence=sequence, transactional=True
        )
    )


def verify(partition: Partition, epoch: int = 0) -> None:
    verifications = partition.log.producers.verifications
    verifications.begin(PRODUCER, epoch, starts_at_zero=False).is_verified = True


def write(partition: Partition, sequence: int = 0, epoch: int = 0) -> int:
    records = in_transaction(sequence, epoch)
    header = parse_header(records)
    return only_result(partition.append([records], 1000, all_in_sync=True, transaction=header)).base_offset


def code_of(action: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        action()
    return caught.value.code


class TestLeading:
    def test_transaction_starts_after_verification(self) -> None:
        """A leader accepts the first batch after the coordinator's response, and later ones without another request."""
        partition = Leading().partition()
        assert code_of(lambda: write(partition)) is ErrorCode.INVALID_TXN_STATE
        verify(partition)
        assert [write(partition, sequence) for sequence in range(3)] == [0, 1, 2]

    def test_verification_is_lost_with_leadership(self) -> None:
        """Another leader may have appended the marker of the verified transaction in the meantime."""
        partition = Leading().partition()
        verify(partition)
        partition.follow(leadership(6, leader=SECOND))
        partition.lead(leadership(7))
        assert code_of(lambda: write(partition)) is ErrorCode.INVALID_TXN_STATE

    def test_not_leader_is_the_first_error(self) -> None:
        """A producer must find the leader, whatever the state of its transaction is here."""
        partition = Leading().partition()
        partition.follow(leadership(6, leader=SECOND))
        assert code_of(lambda: write(partition)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        marker = EndMarker(True, 0)
        ended = code_of(lambda: partition.append_marker(PRODUCER, 0, marker, 1, bumps_epoch=False))
        assert ended is ErrorCode.NOT_LEADER_OR_FOLLOWER

    def test_refused_marker_keeps_the_transaction_open(self) -> None:
        leading = Leading()
        partition = leading.partition(leadership(isr=(1,)), min_insync_replicas=2)
        verify(partition)
        marker = EndMarker(True, 0)
        ended = code_of(lambda: partition.append_marker(PRODUCER, 0, marker, 1, bumps_epoch=False))
        assert ended is ErrorCode.NOT_ENOUGH_REPLICAS
        assert len(partition.log.producers.verifications) == 1

    def test_first_batch_refused_temporarily_is_not_overtaken(self) -> None:
        """Batches sent after it are rejected too, even if the producer is unknown (KIP-360)."""
        partition = Leading().partition(leadership(isr=(1,)), min_insync_replicas=2)
        verify(partition)
        assert code_of(lambda: write(partition, 0)) is ErrorCode.NOT_ENOUGH_REPLICAS
        partition.update_within_epoch(leadership(partition_epoch=1))
        assert code_of(lambda: write(partition, 1)) is ErrorCode.NOT_ENOUGH_REPLICAS
        assert write(partition, 0) == 0

    def test_transaction_ends_once_its_marker_is_committed(self) -> None:
        """Readers of committed records stop before a transaction until all in-sync replicas have its marker."""
        leading = Leading()
        partition = leading.partition()
        verify(partition)
        write(partition)
        partition.append_marker(PRODUCER, 0, EndMarker(True, 0), 1, bumps_epoch=False)
        for replica in (SECOND, THIRD):
            fetch(partition, replica, 1)
        assert (partition.high_watermark, partition.visible_end(READ_COMMITTED)) == (1, 0)
        for replica in (SECOND, THIRD):
            fetch(partition, replica, 2)
        assert partition.visible_end(READ_COMMITTED) == 2


COORDINATOR_EPOCH = 4


class Asked:
    """A WriteTxnMarkers request and its response."""

    version = 2
    connection = SimpleNamespace(listener="PLAINTEXT")
    api = SimpleNamespace(name="WriteTxnMarkers")

    def __init__(self, topic: str, **changes: Any) -> None:
        marker = {
            "producer_id": PRODUCER,
            "producer_epoch": 0,
            "transaction_result": True,
            "topics": [{"name": topic, "partition_indexes": [0]}],
            "coordinator_epoch": 3,
            "transaction_version": 0,
        }
        self.body: dict[str, Any] = {"markers": [marker | changes]}
        self.code: ErrorCode | None = None
        self.abandoned: list[Callable[[], object]] = []

    def respond(self, body: dict[str, Any]) -> None:
        assert self.code is None, "a request is answered once"
        (row,) = body["markers"]
        assert row["producer_id"] == PRODUCER
        self.code = ErrorCode(row["topics"][0]["partitions"][0]["error_code"])

    def on_abandoned(self, abandoned: Callable[[], object]) -> None:
        self.abandoned.append(abandoned)

    def abort(self, reason: str) -> None:
        raise AssertionError(reason)


class Ending(Leading):
    """A leader of one partition, a marker handler, and a group coordinator that records its notifications."""

    def __init__(self, topic: str = "t", **partition: Any) -> None:
        super().__init__()
        self.topic = topic
        self.led = self.partition(**partition)
        clock: Any = self.clock
        partitions: Any = SimpleNamespace(led_partition=self._led)
        groups: Any = SimpleNamespace(marker_written=self._marker_written)
        self.notified: list[tuple[int, int, bool]] = []
        self._handler = WriteTxnMarkers(clock, partitions, self.metadata(clock), groups, lambda: 1000)

    @staticmethod
    def metadata(clock: Any) -> MetadataCache:
        """Return metadata in which a partition of the transaction topic has leader epoch ``COORDINATOR_EPOCH``."""
        metadata = MetadataCache(clock)
        state = PartitionMetadata(0, 1, COORDINATOR_EPOCH, [1], [1], [])
        metadata.topics[TRANSACTION_STATE] = TopicMetadata(TRANSACTION_STATE, ZERO_UUID, {0: state})
        return metadata

    def _led(self, key: TopicPartition) -> Partition:
        self.led.check_leader()
        return self.led

    def _marker_written(self, partition: int, producer_id: int, *, committed: bool) -> None:
        self.notified.append((partition, producer_id, committed))

    def end(self, **changes: Any) -> Asked:
        asked = Asked(self.topic, **changes)
        request: Any = asked
        self._handler(request)
        self.end_turn()
        return asked

    def all_fetch(self) -> None:
        for replica in (SECOND, THIRD):
            fetch(self.led, replica, self.led.log.log_end_offset)
        self.end_turn()


class TestMarkers:
    def test_coordinator_epoch_from_the_future_is_refused(self) -> None:
        """Such a marker would fence the real coordinator. The error is retriable, as the metadata may be outdated."""
        ending = Ending()
        end_offset = ending.led.log.log_end_offset
        assert ending.end(coordinator_epoch=COORDINATOR_EPOCH + 1).code is ErrorCode.REQUEST_TIMED_OUT
        assert ending.end(coordinator_epoch=2**31 - 1).code is ErrorCode.REQUEST_TIMED_OUT
        assert ending.led.log.log_end_offset == end_offset
        real = ending.end(coordinator_epoch=COORDINATOR_EPOCH)
        ending.all_fetch()
        assert real.code is ErrorCode.NONE

    def test_all_in_sync_replicas_have_the_marker(self) -> None:
        """The coordinator gets its response, and the group is notified, only when the marker is committed."""
        ending = Ending("__consumer_offsets")
        verify(ending.led)
        write(ending.led)
        asked = ending.end(transaction_result=False)
        assert (asked.code, ending.notified) == (None, [])
        ending.all_fetch()
        assert (asked.code, ending.notified) == (ErrorCode.NONE, [(0, PRODUCER, False)])
        assert not ending.led.log.producers.is_in_transaction(PRODUCER, 0)
        assert ending.clock.getDelayedCalls() == []

    def test_group_coordinator_is_not_notified_of_other_topics(self) -> None:
        """The group coordinator is notified only of markers in the offsets topic."""
        ending = Ending()
        asked = ending.end()
        ending.all_fetch()
        assert (asked.code, ending.notified) == (ErrorCode.NONE, [])

    def test_leadership_is_lost(self) -> None:
        """The marker may be lost too: the coordinator retries at the next leader, and the group is not notified."""
        ending = Ending("__consumer_offsets")
        asked = ending.end()
        ending.led.follow(leadership(6, leader=SECOND))
        ending.end_turn()
        assert (asked.code, ending.notified) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, [])

    def test_followers_do_not_fetch(self) -> None:
        """After a timeout, the coordinator gets an error and retries; the second marker is harmless."""
        ending = Ending("__consumer_offsets")
        verify(ending.led)
        write(ending.led)
        asked = ending.end()
        ending.clock.advance(TIMEOUT_S)
        assert (asked.code, ending.notified) == (ErrorCode.REQUEST_TIMED_OUT, [])
        again = ending.end()
        ending.all_fetch()
        assert (again.code, ending.notified) == (ErrorCode.NONE, [(0, PRODUCER, True)])
        assert ending.led.log.log_end_offset == 3

    def test_too_few_in_sync(self) -> None:
        """The marker is not appended, because it might be lost."""
        ending = Ending(first=leadership(isr=(1,)), min_insync_replicas=2)
        assert ending.end().code is ErrorCode.NOT_ENOUGH_REPLICAS
        assert ending.led.log.log_end_offset == 0

    def test_older_coordinator_is_refused(self) -> None:
        ending = Ending()
        ending.end(coordinator_epoch=4)
        assert ending.end(coordinator_epoch=3).code is ErrorCode.TRANSACTION_COORDINATOR_FENCED

    def test_late_marker_does_not_end_the_next_transaction(self) -> None:
        """If epochs are bumped by each transaction, the marker is rejected."""
        ending = Ending()
        ending.end(producer_epoch=1, transaction_version=2)
        verify(ending.led, 1)
        write(ending.led, epoch=1)
        late = ending.end(producer_epoch=1, transaction_version=2)
        assert late.code is ErrorCode.INVALID_PRODUCER_EPOCH
        assert ending.led.log.producers.is_in_transaction(PRODUCER, 1)

    def test_connection_of_the_coordinator_closes(self) -> None:
        """No state is left, and committing the marker has no further effect."""
        ending = Ending("__consumer_offsets")
        asked = ending.end()
        for callback in asked.abandoned:
            callback()
        ending.all_fetch()
        assert (asked.code, ending.notified) == (None, [])
        assert ending.clock.getDelayedCalls() == []
        assert ending.led.watchers == {}
