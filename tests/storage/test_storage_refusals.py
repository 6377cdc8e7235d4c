"""Batches after a rejected one get its retriable error until it is sent again; real gaps are out of order."""

from __future__ import annotations

import errno
from types import SimpleNamespace

import pytest
from storage_world import idempotent, open_log, values_of

from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import TopicPartition
from kreplica.storage.log.appending import append_all_as_leader, append_as_follower, append_as_leader
from kreplica.storage.log.results import AppendResult
from kreplica.storage.log_config import LogConfig
from kreplica.storage.producers.rejected_batches import (
    KEPT_MS,
    LOGS_MISSING_MAX,
    REJECTIONS_MAX,
    RESENT_WITHIN_MS,
    Rejections,
    RejectionsWithoutLog,
)
from kreplica.testing.simulator.disk import MemoryDisk
from kreplica.wire.batches import SEQUENCE_MASK, parse_header

FULL = ErrorCode.NOT_ENOUGH_REPLICAS
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
NOW_MS = 1000


@pytest.fixture
def log(tmp_path):
    return open_log(tmp_path / "t-0")


def append(log, sequence, count=1, **options):
    return append_as_leader(log, idempotent(sequence, count, **options), 0, now_ms=NOW_MS)


def reject(log, sequence, count=1, code=FULL, now_ms=NOW_MS, **options):
    log.producers.note_rejection(idempotent(sequence, count, **options), KafkaError(code), now_ms)


def code_of(log, sequence, count=1, **options):
    """Append a batch, and return the error code; NONE if it succeeds."""
    try:
        append(log, sequence, count, **options)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


@pytest.mark.parametrize("code", [code for code in ErrorCode if code.retriable])
@pytest.mark.parametrize("written", [0, 3], ids=["new producer", "known producer"])
def test_batches_behind_a_refused_one_get_its_error(log, written, code):
    """They get it until the rejected batch is appended, however often they are retried; then they are accepted."""
    if written:
        append(log, 0, written)
    reject(log, written, 2, code)
    for _ in range(2):
        assert [code_of(log, written + 2), code_of(log, written + 3, 4)] == [code, code]
    assert [code_of(log, written, 2), code_of(log, written + 2), code_of(log, written + 3, 4)] == [ErrorCode.NONE] * 3
    assert not log.producers.rejections.by_producer


def test_later_batches_of_a_refused_run_wait_too(log):
    """Only the first batch is sent again: the third must not be out of order before the second is sent again too."""
    append(log, 0)
    reject(log, 1)
    assert code_of(log, 2) is FULL
    assert code_of(log, 3) is FULL
    append(log, 1)
    assert code_of(log, 3) is FULL
    append(log, 2)
    append(log, 3)


def test_gap_is_out_of_order(log):
    """The missing batch was never rejected, so it may never be sent."""
    append(log, 0)
    reject(log, 5)
    assert code_of(log, 2) is OUT_OF_ORDER
    assert code_of(log, 5) is OUT_OF_ORDER
    assert code_of(log, 6) is OUT_OF_ORDER


def test_old_batch_is_a_duplicate_while_another_is_refused(log):
    """The batch precedes the rejected one, and is older than the last five."""
    for sequence in range(8):
        append(log, sequence)
    reject(log, 8)
    log.producers.partition = SimpleNamespace(high_watermark=8)
    assert code_of(log, 0) is ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert append(log, 5).duplicate


def test_sequences_wrap_around(log):
    """The rejected batch spans the wrap from 2**31 - 1 to 0."""
    append(log, SEQUENCE_MASK - 2, 1)
    reject(log, SEQUENCE_MASK - 1, 4)
    assert code_of(log, 2) is FULL
    assert code_of(log, SEQUENCE_MASK) is FULL
    append(log, SEQUENCE_MASK - 1, 4)
    append(log, 2)


def test_unknown_producer_may_start_before_the_refused_batch(log):
    """The producer's batches did not arrive in the order in which they were sent."""
    reject(log, 2)
    reject(log, 0)
    reject(log, 1)
    assert code_of(log, 1) is FULL
    assert code_of(log, 9, producer_id=8) is ErrorCode.NONE
    assert [code_of(log, sequence) for sequence in (0, 1, 2)] == [ErrorCode.NONE] * 3


def test_higher_epoch_discards_refusals(log):
    """A producer that bumped its epoch does not retry batches of the old epoch."""
    append(log, 0, 2)
    reject(log, 2)
    assert code_of(log, 1, epoch=1) is OUT_OF_ORDER
    append(log, 0, epoch=1)
    assert not log.producers.rejections.by_producer
    reject(log, 0, epoch=2)
    reject(log, 2, epoch=1)
    assert code_of(log, 1, epoch=2) is FULL
    append(log, 0, epoch=2)


def test_final_refusal_ends_the_wait(log):
    """The producer does not retry this batch: later ones are out of order, and the producer renumbers them."""
    append(log, 0)
    reject(log, 1)
    assert code_of(log, 2) is FULL
    reject(log, 1, code=ErrorCode.MESSAGE_TOO_LARGE)
    assert code_of(log, 2) is OUT_OF_ORDER


def test_final_refusal_behind_a_refused_batch(log):
    """The first batch is still awaited; after the dropped batch there is a gap."""
    append(log, 0)
    for sequence in (1, 2, 3):
        reject(log, sequence)
    reject(log, 2, code=ErrorCode.INVALID_RECORD)
    assert code_of(log, 3) is FULL
    append(log, 1)
    assert code_of(log, 3) is OUT_OF_ORDER
    append(log, 2)
    append(log, 3)


def test_replicated_batch_is_not_awaited(tmp_path):
    """A follower rejected a batch that the leader then appended."""
    follower = open_log(tmp_path / "f-0")
    reject(follower, 0, code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    reject(follower, 1, code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    for sequence in range(3):
        records = idempotent(sequence, base_offset=follower.log_end_offset, leader_epoch=0)
        append_as_follower(follower, records, now_ms=1)
    assert not follower.producers.rejections.by_producer
    assert code_of(follower, 4) is OUT_OF_ORDER
    append(follower, 3)


def test_batch_resent_without_the_refused_one_is_out_of_order(log):
    """Another leader acknowledged the rejected batch and lost its record: the producer must soon learn of the gap."""
    append(log, 0)
    reject(log, 1)
    reject(log, 2)
    reject(log, 2, now_ms=NOW_MS + RESENT_WITHIN_MS - 1)
    assert code_of(log, 2) is FULL
    reject(log, 2, now_ms=NOW_MS + RESENT_WITHIN_MS)
    assert code_of(log, 2) is OUT_OF_ORDER


def test_refused_batch_is_awaited_while_it_is_resent(log):
    """It is awaited however long its leader rejects it, and later batches that arrive for the first time wait too."""
    append(log, 0)
    for now_ms in range(NOW_MS, NOW_MS + 5 * RESENT_WITHIN_MS, RESENT_WITHIN_MS // 2):
        reject(log, 1, now_ms=now_ms)
        reject(log, 2, now_ms=now_ms + 1)
    reject(log, 3, now_ms=NOW_MS + 10 * RESENT_WITHIN_MS)
    assert [code_of(log, 2), code_of(log, 3), code_of(log, 4)] == [FULL] * 3


def test_refusals_expire(log):
    """The time is measured from the last rejection of the first batch; later batches do not prolong it."""
    reject(log, 0)
    reject(log, 0, now_ms=NOW_MS + 10)
    reject(log, 1, now_ms=NOW_MS + 500)
    log.producers.expire(NOW_MS + KEPT_MS)
    assert code_of(log, 1) is FULL
    log.producers.expire(NOW_MS + 10 + KEPT_MS)
    assert code_of(log, 1) is ErrorCode.NONE


def test_refusals_of_many_producers_are_bounded(log):
    """The producer with the oldest rejection is evicted."""
    for producer_id in range(REJECTIONS_MAX + 1):
        reject(log, 0, producer_id=producer_id)
    assert code_of(log, 3, producer_id=0) is ErrorCode.NONE
    assert code_of(log, 3, producer_id=1) is FULL


def test_refusals_before_the_log_is_open():
    """Rejections are kept until the log is open, for a bounded number of partitions."""
    without_log = RejectionsWithoutLog()
    header = parse_header(idempotent(4))
    for partition in range(LOGS_MISSING_MAX + 1):
        without_log.note(TopicPartition("t", partition), header, FULL, NOW_MS)
    behind = parse_header(idempotent(5))
    codes = []
    for partition in range(3):
        rejections = Rejections()
        rejections.add_missing(without_log.pop(TopicPartition("t", partition)) or Rejections())
        codes.append(rejections.code_for(behind, None))
    assert codes == [None, FULL, FULL]


def full_once(**config):
    """Return a log with one batch of a producer; the next write fails because its disk is full."""
    disk = MemoryDisk(lambda: 0, directories=["/data"])
    log = open_log("/data/t-0", LogConfig(**config), disk)
    append(log, 0)
    disk.fail("write", "/data/t-0/*.log", errno.ENOSPC, times=1)
    return log


def test_full_disk():
    """The next batch fits, and must not be out of order."""
    log = full_once()
    codes = [code_of(log, sequence) for sequence in (1, 2, 1, 2)]
    assert codes == [ErrorCode.KAFKA_STORAGE_ERROR] * 2 + [ErrorCode.NONE] * 2


def test_full_disk_within_a_run():
    """The run is rejected as a whole, and so are later batches in the request."""
    size = len(idempotent(1))
    log = full_once(segment_bytes=4 * size)
    batches = [idempotent(sequence) for sequence in range(1, 7)]
    outcomes = append_all_as_leader(log, batches, 0, now_ms=NOW_MS)
    assert [outcome.code for outcome in outcomes] == [ErrorCode.KAFKA_STORAGE_ERROR] * 6
    outcomes = append_all_as_leader(log, [bytearray(each) for each in batches], 0, now_ms=NOW_MS)
    assert all(isinstance(outcome, AppendResult) for outcome in outcomes)
    assert [value for _, value in values_of(log)] == [f"7/0/{sequence}" for sequence in range(7)]
