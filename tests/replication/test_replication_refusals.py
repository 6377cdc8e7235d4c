"""After any rejection of an idempotent producer's batch, later ones get the same error until it is sent again."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from leading_scene import ALL_REPLICAS, LEADER, SECOND, Leading, leadership

from kreplica.errors import ErrorCode, KafkaError
from kreplica.replication import Partition
from kreplica.testing.simulator.disk import CAPACITY_BYTES
from kreplica.wire.batch_building import NEXT_OFFSET, build_batch
from kreplica.wire.records import Record

SEGMENT_BYTES = 10_000

Appends = Callable[[Partition, int], list[ErrorCode]]
"""Functions that append the three batches from a sequence number on, and return their error codes."""


def batch(sequence: int) -> bytearray:
    record = Record(NEXT_OFFSET, 1000, None, b"value")
    return bytearray(build_batch([record], producer_id=7, producer_epoch=0, base_sequence=sequence))


def code_of(outcome: object) -> ErrorCode:
    return outcome.code if isinstance(outcome, KafkaError) else ErrorCode.NONE


def one_by_one(partition: Partition, first: int) -> list[ErrorCode]:
    outcomes = [partition.append([batch(number)], 1000, all_in_sync=True)[0] for number in range(first, first + 3)]
    return [code_of(outcome) for outcome in outcomes]


def as_a_run(partition: Partition, first: int) -> list[ErrorCode]:
    batches = [batch(sequence) for sequence in range(first, first + 3)]
    return [code_of(outcome) for outcome in partition.append(batches, 1000, all_in_sync=True)]


class TooFewInSync:
    """Another replica must be in sync."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS

    def begin(self, leading: Leading, partition: Partition) -> None:
        partition.update_within_epoch(leadership(isr=(LEADER,), partition_epoch=1))

    def end(self, leading: Leading, partition: Partition) -> None:
        partition.update_within_epoch(leadership(isr=ALL_REPLICAS, partition_epoch=2))


class NoLease:
    """The broker has lost its ZooKeeper lease."""

    code = ErrorCode.NOT_LEADER_OR_FOLLOWER

    def begin(self, leading: Leading, partition: Partition) -> None:
        leading.has_lease = False

    def end(self, leading: Leading, partition: Partition) -> None:
        leading.has_lease = True


class AnotherLeads:
    """The broker is leader again after another one, which appended nothing."""

    code = ErrorCode.NOT_LEADER_OR_FOLLOWER

    def begin(self, leading: Leading, partition: Partition) -> None:
        partition.follow(leadership(6, leader=SECOND))

    def end(self, leading: Leading, partition: Partition) -> None:
        partition.lead(leadership(7))


class DiskFull:
    """The disk is full."""

    code = ErrorCode.KAFKA_STORAGE_ERROR

    def begin(self, leading: Leading, partition: Partition) -> None:
        total, free = leading.disk.usage("/data")
        leading.disk.capacity_bytes = total - free

    def end(self, leading: Leading, partition: Partition) -> None:
        leading.disk.capacity_bytes = CAPACITY_BYTES


class NotDurable:
    """The log was truncated, and this has not been recorded durably yet."""

    code = ErrorCode.KAFKA_STORAGE_ERROR

    def begin(self, leading: Leading, partition: Partition) -> None:
        partition.log.appends_blocked = True

    def end(self, leading: Leading, partition: Partition) -> None:
        partition.log.appends_blocked = False


REFUSALS = (TooFewInSync, NoLease, AnotherLeads, DiskFull, NotDurable)


@pytest.mark.parametrize("appends", [one_by_one, as_a_run])
@pytest.mark.parametrize("written", [0, 3], ids=["new producer", "known producer"])
@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.__name__)
def test_batches_behind_a_refused_one_get_its_error(
    refusal: type[TooFewInSync], written: int, appends: Appends
) -> None:
    """The cause is gone when they arrive; they are appended once the rejected batch has been sent again."""
    leading, obstacle = Leading(), refusal()
    partition = leading.partition(min_insync_replicas=2, segment_bytes=SEGMENT_BYTES)
    if written:
        assert one_by_one(partition, 0) == [ErrorCode.NONE] * 3
    obstacle.begin(leading, partition)
    assert appends(partition, written) == [obstacle.code] * 3
    obstacle.end(leading, partition)
    assert appends(partition, written + 3) == [obstacle.code] * 3
    assert partition.log.log_end_offset == written
    assert appends(partition, written) == [ErrorCode.NONE] * 3
    assert appends(partition, written + 3) == [ErrorCode.NONE] * 3
    assert appends(partition, written + 9) == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER] * 3
