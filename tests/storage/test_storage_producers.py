"""Retries of idempotent producers are detected; gaps and old epochs are rejected (KIP-98, KIP-360)."""

from __future__ import annotations

import struct
from types import SimpleNamespace

import pytest
from storage_world import batch, idempotent, marker, open_log, values_of

from kreplica.errors import ErrorCode, KafkaError, StorageError
from kreplica.storage import Origin
from kreplica.storage.log.appending import append_as_follower, append_as_leader
from kreplica.storage.producers.producer_entry import ProducerEntry, RecentBatch
from kreplica.storage.producers.snapshots import decode_snapshot, encode_snapshot


@pytest.fixture
def log(tmp_path):
    return open_log(tmp_path / "t-0")


def append(log, sequence, count=1, **options):
    origin = options.pop("origin", Origin.CLIENT)
    return append_as_leader(log, idempotent(sequence, count, **options), 0, now_ms=1, origin=origin)


def code_of(log, *arguments, **options):
    with pytest.raises(KafkaError) as caught:
        append(log, *arguments, **options)
    return caught.value.code


def test_retry_gets_the_original_offsets(log):
    """Any of the last five batches may be sent again; nothing is appended."""
    for number in range(6):
        append(log, number * 2, 2)
    for number in range(1, 6):
        again = append(log, number * 2, 2)
        assert (again.duplicate, again.base_offset, again.last_offset) == (True, number * 2, number * 2 + 1)
    assert log.log_end_offset == 12


def test_retry_of_a_forgotten_batch(log):
    """A batch before the last five was appended if the log has the producer's batches from sequence 0 on.

    After OUT_OF_ORDER_SEQUENCE_NUMBER, a Java producer would bump its epoch and append the batch again.
    """
    for number in range(7):
        append(log, number * 2, 2)
    log.producers.partition = SimpleNamespace(high_watermark=3)
    assert code_of(log, 0, 2) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, "clients treat a duplicate as committed"
    log.producers.note_rejection(idempotent(0, 2), KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND), 1)
    assert append(log, 14, 2).base_offset == 14, "its producer's later batches are accepted"
    log.producers.partition = SimpleNamespace(high_watermark=6)
    for sequence, count in ((0, 2), (2, 2), (0, 4)):
        assert code_of(log, sequence, count) is ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    for sequence, count in ((5, 3), (3, 4), (17, 2)):
        assert code_of(log, sequence, count) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.log_end_offset == 16
    log.producers.partition = SimpleNamespace(high_watermark=18)
    append(log, 0, epoch=1)
    for sequence in range(1, 7):
        append(log, sequence, epoch=1)
    assert code_of(log, 0, epoch=1) is ErrorCode.DUPLICATE_SEQUENCE_NUMBER


def test_old_batch_of_a_producer_with_an_unknown_start(log):
    """A leader may have accepted a later batch first, so an earlier one may never have been appended."""
    for sequence in range(10, 17):
        append(log, sequence)
    assert code_of(log, 10) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert code_of(log, 9) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_partial_overlap_is_not_a_retry(log):
    """Sequence numbers that overlap with known batches but differ from them are out of order."""
    append(log, 0, 3)
    for sequence, count in ((0, 2), (1, 2), (2, 2), (0, 4)):
        assert code_of(log, sequence, count) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def skip_to(log, sequence, *batches):
    """Let a follower's log start at an offset above its end, as when the leader has deleted all older records.

    :param batches: sequences of the records that it then fetches.
    """
    log.truncate_fully_and_start_at(sequence)
    for first, count in batches:
        append_as_follower(log, idempotent(first, count, base_offset=first), now_ms=1)


def test_retry_of_a_batch_that_the_log_has_never_had(log):
    """A leader that skipped deleted records while it was a follower knows that earlier batches were committed.

    OUT_OF_ORDER_SEQUENCE_NUMBER would make the producer get a new ID and send all of them again.
    """
    append(log, 0, 45)
    skip_to(log, 47, (47, 3), (50, 3))
    assert code_of(log, 45, 2) is ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert append(log, 47, 3).duplicate
    assert append(log, 50, 3).duplicate
    assert append(log, 53).base_offset == 53


def test_retry_before_the_first_known_batch_does_not_clear_a_refusal(log):
    """The rejected batch must still be sent first."""
    skip_to(log, 47, (47, 3))
    log.producers.note_rejection(idempotent(50, 1), KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS), 1)
    assert code_of(log, 45, 2) is ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert code_of(log, 51) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert append(log, 50).base_offset == 50


def test_earlier_sequence_of_a_well_known_producer_is_out_of_order(log):
    """A producer has at most five batches in flight, so an older batch is not a retry; nor is an overlapping one."""
    skip_to(log, 47, *((47 + number, 1) for number in range(4)))
    assert code_of(log, 46, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert code_of(log, 60) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(log, 51)
    assert code_of(log, 45, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_unknown_producer_that_starts_later_may_send_its_first_batch(log):
    """A leader accepts a batch after one that was rejected as too large and is then sent again in parts."""
    skip_to(log, 47)
    append(log, 4, 2)
    assert code_of(log, 0, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert code_of(log, 2, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    skip_to(log, 60, (64, 2))
    assert code_of(log, 0, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_gap_is_known_only_to_a_log_that_has_skipped_records(log):
    """A follower that has all records of its leader knows the first batch of each producer."""
    append_as_follower(log, idempotent(10, 2), now_ms=1)
    assert code_of(log, 8, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_retry_across_the_wrap_of_sequences(log):
    """The first known batch has sequence number 0 after the wrap, and the retried one has the largest number."""
    skip_to(log, 10)
    append_as_follower(log, idempotent(0, 1, base_offset=10), now_ms=1)
    assert code_of(log, 2**31 - 1) is ErrorCode.DUPLICATE_SEQUENCE_NUMBER


def test_gap_is_refused(log):
    """A lost batch must not be skipped."""
    append(log, 0)
    assert code_of(log, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(log, 1)


def test_sequences_wrap_around(log):
    """After 2**31 - 1 comes 0, even within a batch, and retries across the wrap are detected."""
    top = 2**31 - 1
    append(log, top - 1, 1)
    append(log, top, 3)
    assert append(log, top, 3).duplicate
    assert append(log, 2).base_offset == 4


def test_unknown_producer_starts_at_any_sequence(log):
    """The producer's state may have expired (KIP-360)."""
    assert append(log, 77).base_offset == 0
    assert append(log, 78).base_offset == 1


def test_new_epoch_starts_at_zero(log):
    """A producer that was fenced and restarted counts from 0; its old epoch is refused."""
    append(log, 0, 2, epoch=1)
    assert code_of(log, 2, epoch=2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(log, 0, epoch=2).base_offset == 2
    assert code_of(log, 2, epoch=1) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert append(log, 1, epoch=2).base_offset == 3


def test_producers_are_independent(log):
    """Sequence numbers are counted per producer and partition."""
    append(log, 0, producer_id=1)
    append(log, 0, producer_id=2)
    append(log, 1, producer_id=1)
    append_as_leader(log, batch("without id"), 0, now_ms=1)
    assert [value for _, value in values_of(log)] == ["1/0/0", "2/0/0", "1/0/1", "without id"]
    assert len(log.producers) == 2


def test_non_transactional_write_during_a_transaction_is_refused(log):
    append(log, 0, transactional=True)
    assert code_of(log, 1) is ErrorCode.INVALID_TXN_STATE
    append_as_leader(log, marker(7, committed=True), 0, now_ms=1, origin=Origin.COORDINATOR)
    assert append(log, 1).base_offset == 2


def test_marker_fences_earlier_epochs(log):
    """After a marker of a newer epoch, batches of the old epoch are refused (the purpose of KIP-890)."""
    append(log, 0, transactional=True)
    append_as_leader(log, marker(7, committed=False, epoch=1), 0, now_ms=1, origin=Origin.COORDINATOR)
    assert code_of(log, 1, transactional=True) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert append(log, 0, epoch=1, transactional=True).base_offset == 2


def test_followers_accept_all_batches_of_the_leader(tmp_path, log):
    """A follower does not validate batches; afterwards it has the same sequence numbers as the leader."""
    follower = open_log(tmp_path / "f-0")
    for sequence in (5, 6, 9):
        records = idempotent(sequence, base_offset=follower.log_end_offset, leader_epoch=0)
        append_as_follower(follower, records, now_ms=1)
    assert follower.producers.get(7).last_sequence == 9
    assert append(follower, 10).base_offset == 3


class TestSnapshots:
    ENTRIES = (
        ProducerEntry(1, 2, 3, 4, 5, [RecentBatch(10, 20, 2, 5)]),
        ProducerEntry(9, 0, -1, -1, 6, []),
    )

    def test_snapshot_restores_producers(self):
        """The last batch, the epochs and the open transaction of each producer survive."""
        assert decode_snapshot("s", encode_snapshot(self.ENTRIES)) == list(self.ENTRIES)
        assert decode_snapshot("s", encode_snapshot([])) == []

    def test_snapshot_rows_are_ordered(self):
        """Kafka reads a producer's rows in order, so the last one must be the newest."""
        batches = [RecentBatch(sequence, sequence, 0, 10 + sequence) for sequence in range(5)]
        entries = [ProducerEntry(3, 1, 2, 4, 14, batches), ProducerEntry(4, 0, -1, -1, 6, batches[3:4])]
        rows = list(struct.iter_unpack(">qhiqiqiq", encode_snapshot(entries)[10:]))
        assert [row[2] for row in rows if row[0] == 3] == [0, 1, 2, 3, 4]
        assert rows[4] == (3, 1, 4, 4, 0, 14, 2, 4)
        entries[1].timestamp_ms = 13
        assert decode_snapshot("s", encode_snapshot(entries)) == entries

    def test_retries_of_the_last_five_batches_are_detected_after_a_restart(self, tmp_path):
        """A producer with five batches in flight sends all of them again after a broker restart."""
        log = open_log(tmp_path / "r-0")
        for sequence in range(6):
            append(log, sequence)
        log.close()
        log = open_log(tmp_path / "r-0", clean_shutdown=True, recovery_point=6)
        assert [append(log, sequence).duplicate for sequence in range(1, 6)] == [True] * 5
        with pytest.raises(KafkaError):
            append(log, 0)
        assert append(log, 6).base_offset == 6

    def test_damaged_snapshot_is_an_error(self):
        """Every truncation and every flipped bit is detected."""
        data = encode_snapshot(self.ENTRIES)
        for size in range(len(data)):
            with pytest.raises(StorageError, match=r"^s: "):
                decode_snapshot("s", data[:size])
        for position in range(len(data)):
            broken = bytearray(data)
            broken[position] ^= 4
            with pytest.raises(StorageError):
                decode_snapshot("s", bytes(broken))
