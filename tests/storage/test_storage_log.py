"""A log used by a leader, a follower and a reader."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from storage_world import (
    SMALL,
    bases_of,
    batch,
    fill,
    idempotent,
    marker,
    offsets_of,
    open_log,
    read_bytes,
    records_of,
    values_of,
)

from kreplica.errors import ErrorCode, KafkaError, StorageError
from kreplica.storage import AppendResult, LogConfig, Origin
from kreplica.storage.log.appending import append_as_follower, append_as_leader
from kreplica.storage.log.retention import delete_expired
from kreplica.storage.log.timestamp_search import offset_for_timestamp
from kreplica.storage.log_config import CODECS
from kreplica.wire.batches import parse_header, verify_crc
from kreplica.wire.compression import Codec


def append(log, records, epoch=0, **options):
    return append_as_leader(log, records, epoch, now_ms=2000, **options)


def code_of(call, *arguments, **options):
    with pytest.raises(KafkaError) as caught:
        call(*arguments, **options)
    return caught.value.code


class TestLeader:
    def test_offsets_are_consecutive(self, tmp_path):
        """Each record gets the next offset, and can be read at this offset."""
        log = open_log(tmp_path / "t-0")
        assert append(log, batch("a", "b")) == AppendResult(0, 1, -1, False, 61 + 2 * 8)
        assert append(log, batch("c")).base_offset == 2
        assert values_of(log) == [(0, "a"), (1, "b"), (2, "c")]
        assert log.log_end_offset == 3

    def test_batch_is_stored_unchanged(self, tmp_path):
        """Only the offset and the leader epoch are set; the producer's CRC is kept."""
        log = open_log(tmp_path / "t-0")
        append(log, batch("first"))
        sent = batch("a", "b", codec=Codec.GZIP)
        append(log, sent, epoch=9)
        stored = read_bytes(log, 1)
        header = parse_header(stored)
        assert (header.base_offset, header.partition_leader_epoch) == (1, 9)
        assert bytes(sent[16:]) == stored[16:]
        assert verify_crc(stored, header)

    def test_read_only_memory_is_copied(self, tmp_path):
        """The caller's bytes are not changed."""
        log = open_log(tmp_path / "t-0")
        fill(log, 3)
        sent = bytes(batch("a"))
        for records in (sent, memoryview(sent)):
            append(log, records, epoch=5)
        assert sent == bytes(batch("a"))
        assert offsets_of(log) == [0, 1, 2, 3, 4]

    def test_log_append_time(self, tmp_path):
        """The broker's clock replaces the producer's timestamps in the response and in every record."""
        log = open_log(tmp_path / "t-0", replace(SMALL, message_timestamp_type="LogAppendTime"))
        assert append(log, batch("a", "b", timestamp_ms=77)).log_append_time_ms == 2000
        assert [record.timestamp_ms for record in records_of(read_bytes(log))] == [2000, 2000]
        assert verify_crc(read_bytes(log), parse_header(read_bytes(log)))

    def test_missing_max_timestamp_is_computed(self, tmp_path):
        """A batch without a maximum timestamp in its header can still be found by timestamp."""
        sent = batch("a", "b", timestamp_ms=500)
        unset = bytearray(sent)
        unset[35:43] = (-1).to_bytes(8, "big", signed=True)
        from crc32c import crc32c

        unset[17:21] = crc32c(memoryview(unset)[21:]).to_bytes(4, "big")
        log = open_log(tmp_path / "t-0")
        append(log, unset)
        assert offset_for_timestamp(log, 501, 2).offset == 1

    @pytest.mark.parametrize("sent", Codec)
    @pytest.mark.parametrize("name", ["uncompressed", "gzip", "snappy", "lz4", "zstd", "producer"])
    def test_compression_type_of_the_topic(self, tmp_path, sent, name):
        """Records are stored unchanged with the topic's codec."""
        log = open_log(tmp_path / "t-0", replace(SMALL, compression_type=name, message_timestamp_type="LogAppendTime"))
        append(log, batch("a" * 50, "b" * 50, codec=sent))
        header = parse_header(read_bytes(log))
        assert header.codec == {"uncompressed": Codec.NONE, "producer": sent}.get(name, CODECS[name])
        assert verify_crc(read_bytes(log), header)
        found = records_of(read_bytes(log))
        assert [(record.offset, record.timestamp_ms, record.value[:1]) for record in found] == [
            (0, 2000, b"a"),
            (1, 2000, b"b"),
        ]

    @pytest.mark.parametrize(
        ("records", "config", "code"),
        [
            (batch("x" * 300), {"max_message_bytes": 200}, ErrorCode.MESSAGE_TOO_LARGE),
            (batch("x" * 300), {"segment_bytes": 200}, ErrorCode.RECORD_LIST_TOO_LARGE),
            (batch("a")[:-1], {}, ErrorCode.CORRUPT_MESSAGE),
            (batch("a")[:-1] + b"!", {}, ErrorCode.CORRUPT_MESSAGE),
            (batch("a") + batch("b"), {}, ErrorCode.INVALID_RECORD),
            (bytearray(), {}, ErrorCode.INVALID_RECORD),
            (batch("a"), {"cleanup_policy": frozenset({"compact"})}, ErrorCode.INVALID_RECORD),
            (marker(1, committed=True), {}, ErrorCode.INVALID_RECORD),
            (batch("a", timestamp_ms=1000), {"message_timestamp_before_max_ms": 999}, ErrorCode.INVALID_TIMESTAMP),
            (batch("a", timestamp_ms=3001), {"message_timestamp_after_max_ms": 1000}, ErrorCode.INVALID_TIMESTAMP),
        ],
    )
    def test_refused_batch_leaves_no_trace(self, tmp_path, records, config, code):
        """The batch is rejected with the right error code, and the log is unchanged, even after a restart."""
        log = open_log(tmp_path / "t-0", replace(SMALL, **config))
        assert code_of(append, log, records) is code
        assert (log.log_end_offset, log.segments.size_bytes, log.leader_epochs.entries) == (0, 0, ())
        assert not (tmp_path / "t-0" / "00000000000000000000.log").exists()
        again = open_log(tmp_path / "t-0")
        assert (again.log_end_offset, again.segments.size_bytes, again.leader_epochs.entries) == (0, 0, ())

    def test_compacted_topics_accept_records_with_keys(self, tmp_path):
        """Compressed batches are decompressed for the check."""
        log = open_log(tmp_path / "t-0", replace(SMALL, cleanup_policy=frozenset({"compact"})))
        append(log, batch(("k", "v"), ("k", None), codec=Codec.ZSTD))
        assert code_of(append, log, batch(("k", "v"), (None, "v"), codec=Codec.ZSTD)) is ErrorCode.INVALID_RECORD


class TestRolling:
    def test_roll_by_size(self, tmp_path):
        """A batch that does not fit into the segment starts a new one; every offset stays readable."""
        log = open_log(tmp_path / "t-0")
        fill(log, 30)
        assert len(bases_of(log)) > 4
        assert all(segment.size <= SMALL.segment_bytes for segment in log.segments)
        assert offsets_of(log) == list(range(30))

    def test_roll_by_time_of_the_records(self, tmp_path):
        """The record timestamps in a segment span at most ``segment.ms``."""
        log = open_log(tmp_path / "t-0", LogConfig(segment_ms=100))
        for timestamp_ms in (1000, 1100, 1101, 1150):
            append(log, batch("a", timestamp_ms=timestamp_ms))
        assert bases_of(log) == [0, 2]

    def test_roll_by_full_index(self, tmp_path):
        log = open_log(tmp_path / "t-0", LogConfig(segment_index_bytes=60, index_interval_bytes=1))
        fill(log, 20)
        assert len(bases_of(log)) > 3
        assert all(path.stat().st_size <= 60 for path in (tmp_path / "t-0").glob("*.timeindex"))
        assert offsets_of(log) == list(range(20))

    def test_roll_on_request(self, tmp_path):
        """An empty active segment is not rolled again."""
        log = open_log(tmp_path / "t-0")
        fill(log, 2)
        log.roll(1)
        log.roll(1)
        assert bases_of(log) == [0, 2]
        assert values_of(log, offset_max=2)[-1] == (1, "value 1")


def test_index_entries_in_memory_are_bounded(tmp_path):
    log = open_log(tmp_path / "t-0", LogConfig(index_interval_bytes=1))
    fill(log, 1200)
    assert (tmp_path / "t-0" / "00000000000000000000.index").stat().st_size >= 1024 * 8


class TestFollower:
    def test_follower_log_equals_the_leader_log(self, tmp_path):
        """Bytes, offsets and epochs are the same."""
        leader, follower = open_log(tmp_path / "a-0"), open_log(tmp_path / "b-0", replace(SMALL, segment_bytes=500))
        fill(leader, 5, epoch=1)
        fill(leader, 5, epoch=4)
        copied = read_bytes(leader)
        result = append_as_follower(follower, copied, now_ms=1)
        assert (result.base_offset, result.last_offset, result.size) == (0, 9, len(copied))
        assert read_bytes(follower) == copied
        assert follower.leader_epochs.entries == leader.leader_epochs.entries == ((1, 0), (4, 5))
        assert len(bases_of(follower)) > len(bases_of(leader))

    def test_partial_last_batch_is_ignored(self, tmp_path):
        """Fetch responses may end within a batch."""
        leader, follower = open_log(tmp_path / "a-0"), open_log(tmp_path / "b-0")
        fill(leader, 3)
        copied = read_bytes(leader)
        assert append_as_follower(follower, copied[:-1], now_ms=1).last_offset == 1
        assert append_as_follower(follower, copied[:10], now_ms=1).size == 0
        assert append_as_follower(follower, read_bytes(leader, 2), now_ms=1).last_offset == 2

    def test_damaged_and_unordered_batches_are_refused(self, tmp_path):
        """A damaged batch, everything after it, and batches with existing offsets are not appended."""
        leader, follower = open_log(tmp_path / "a-0"), open_log(tmp_path / "b-0")
        fill(leader, 3)
        copied = bytearray(read_bytes(leader))
        damaged = bytearray(copied)
        damaged[len(copied) // 2] ^= 1
        assert append_as_follower(follower, damaged, now_ms=1).last_offset == 0
        rest = damaged[len(copied) // 3 :]
        assert code_of(append_as_follower, follower, rest, now_ms=1) is ErrorCode.CORRUPT_MESSAGE
        append_as_follower(follower, copied[len(copied) // 3 :], now_ms=1)
        assert code_of(append_as_follower, follower, copied, now_ms=1) is ErrorCode.OFFSET_OUT_OF_RANGE
        assert read_bytes(follower) == copied

    def test_gaps_of_a_compacted_leader_are_kept(self, tmp_path):
        """A fetch within a gap returns the next batch."""
        follower = open_log(tmp_path / "b-0")
        for offset in (3, 10):
            append_as_follower(follower, batch("a", base_offset=offset, leader_epoch=0), now_ms=1)
        assert follower.log_end_offset == 11
        assert follower.read(5, size_max=1000, offset_max=11).first_offset == 10


class TestReading:
    @pytest.fixture
    def log(self, tmp_path):
        log = open_log(tmp_path / "t-0")
        for index in range(12):
            append(log, batch(*[f"{index}.{part}".ljust(60) for part in range(3)], timestamp_ms=1000 + 10 * index))
        return log

    def test_read_returns_whole_batches_from_any_offset(self, log):
        for offset in range(36):
            part = log.read(offset, size_max=10_000, offset_max=36)
            assert part.first_offset == offset - offset % 3
            assert parse_header(part.ranges[0].read()).base_offset == part.first_offset
            assert part.size == sum(piece.size for piece in part.ranges)

    def test_read_ends_at_the_given_offset(self, log):
        """A consumer receives no batch that extends beyond the high watermark."""
        for offset_max in range(37):
            seen = [offset for offset, _ in values_of(log, offset_max=offset_max)]
            assert seen == list(range(offset_max - offset_max % 3))

    def test_read_size(self, log):
        """The first batch is returned whole if requested; otherwise the result has at most the given size."""
        first = parse_header(read_bytes(log)).size
        assert log.read(4, size_max=1, offset_max=36).size == first
        assert log.read(4, size_max=1, offset_max=36, at_least_one=False).size == 0
        assert log.read(4, size_max=first + 1, offset_max=36).size == first + 1
        assert log.read(35, size_max=1, offset_max=36).size == first

    def test_read_out_of_range(self, log):
        """Offsets below the start or beyond the end are errors; at the end the result is empty."""
        log.advance_log_start_offset(4)
        assert code_of(log.read, 3, size_max=1, offset_max=36) is ErrorCode.OFFSET_OUT_OF_RANGE
        assert code_of(log.read, 37, size_max=1, offset_max=36) is ErrorCode.OFFSET_OUT_OF_RANGE
        assert log.read(36, size_max=1, offset_max=36).ranges == []
        assert log.read(4, size_max=1, offset_max=36).first_offset == 3

    def test_offset_by_timestamp_is_exact(self, log):
        """The result is the first record that is not earlier, even in a compressed batch, but not beyond the bound."""
        append(log, batch("x", "y", "z", timestamp_ms=2000, codec=Codec.LZ4))
        stamps = {record.offset: record.timestamp_ms for record in records_of(read_bytes(log))}
        for wanted in range(995, 2004):
            expected = min((offset for offset, stamp in stamps.items() if stamp >= wanted), default=None)
            found = offset_for_timestamp(log, wanted, 39)
            assert (found and found.offset) == expected
            assert found is None or found.timestamp_ms == stamps[found.offset]
        assert offset_for_timestamp(log, 2001, 37) is None

    def test_special_timestamps(self, log):
        """The special timestamps select the latest and earliest offset, and the record with the highest timestamp."""
        append(log, batch("late", timestamp_ms=9999), epoch=3)
        append(log, batch("early", timestamp_ms=1), epoch=3)
        log.advance_log_start_offset(5)
        assert offset_for_timestamp(log, -1, 30)[1:] == (30, 0)
        assert offset_for_timestamp(log, -2, 30)[1:] == (5, 0)
        assert offset_for_timestamp(log, -4, 30)[1:] == (5, 0)
        assert offset_for_timestamp(log, -3, 38) == (9999, 36, 3)

    def test_read_data_stays_valid(self, log, tmp_path):
        """A response that is being sent is not affected by retention, eviction or deletion of the log."""
        part = log.read(0, size_max=10_000, offset_max=36).ranges[0]
        before = part.read()
        log.advance_log_start_offset(36)
        delete_expired(log, 1, 36)
        log.take_offline(StorageError("deleted"))
        os.rename(log.path, tmp_path / "gone")
        assert part.read() == before


class TestTruncation:
    @pytest.fixture
    def log(self, tmp_path):
        log = open_log(tmp_path / "t-0")
        fill(log, 10, epoch=1)
        fill(log, 10, epoch=2, first=10)
        return log

    def test_truncation_removes_offsets_epochs_and_bytes(self, log):
        """Later appends continue as if the removed records had never existed."""
        assert log.truncate_to(9) == 9
        assert values_of(log)[-1] == (8, "value 8")
        assert log.leader_epochs.entries == ((1, 0),)
        assert append(log, batch("other"), epoch=5).base_offset == 9
        assert values_of(log)[-2:] == [(8, "value 8"), (9, "other")]
        assert log.leader_epochs.entries == ((1, 0), (5, 9))

    def test_truncation_removes_whole_batches(self, log):
        append(log, batch("a", "b", "c"))
        assert log.truncate_to(21) == 20
        assert log.log_end_offset == 20

    def test_truncation_beyond_the_end_changes_nothing(self, log):
        before = read_bytes(log)
        assert log.truncate_to(20) == 20
        assert read_bytes(log) == before

    def test_truncate_fully(self, log):
        """The replica restarts at the leader's log start offset."""
        log.truncate_fully_and_start_at(1000)
        assert (log.log_start_offset, log.log_end_offset, log.segments.size_bytes) == (1000, 1000, 0)
        assert log.leader_epochs.entries == ()
        assert append(log, batch("a"), epoch=3).base_offset == 1000
        assert values_of(log) == [(1000, "a")]

    def test_truncation_during_a_sync(self, log):
        """The sync does not cover records written after the truncation."""
        under_way = log.unsynced()
        log.truncate_to(5)
        fill(log, 15, epoch=3)
        log.mark_synced(under_way)
        assert log.durability.recovery_point <= 5

    def test_truncation_restores_producer_state(self, tmp_path):
        """The sequences continue from the remaining batches."""
        log = open_log(tmp_path / "p-0")
        for sequence in range(12):
            append(log, idempotent(sequence))
        log.truncate_to(4)
        assert code_of(append, log, idempotent(5)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert append(log, idempotent(3)).duplicate
        assert append(log, idempotent(4)).base_offset == 4


class TestTransactions:
    def test_open_committed_and_aborted_transactions(self, tmp_path):
        """Readers of committed records stop at the first open transaction, and receive the list of aborted ones."""
        log = open_log(tmp_path / "t-0")
        append(log, idempotent(0, 2, producer_id=1, transactional=True))
        append(log, idempotent(0, 2, producer_id=2, transactional=True))
        append(log, marker(2, committed=False), origin=Origin.COORDINATOR)
        assert log.last_stable_offset(5) == 0
        append(log, marker(1, committed=True), origin=Origin.COORDINATOR)
        assert log.last_stable_offset(5) == 0, "the marker is not below the high watermark"
        assert log.last_stable_offset(6) == 6
        assert log.segments.aborted_transactions(0, 6) == [(2, 2, 4, 0)]
        assert log.segments.aborted_transactions(5, 6) == []

    def test_transactions_survive_a_kill(self, tmp_path):
        """Open transactions and the index of aborted ones are restored from the batches."""
        log = open_log(tmp_path / "t-0")
        for round_ in range(4):
            append(log, idempotent(2 * round_, 2, producer_id=2, transactional=True))
            append(log, marker(2, committed=round_ % 2 == 1), origin=Origin.COORDINATOR)
            fill(log, 3)
        append(log, idempotent(0, 1, producer_id=1, transactional=True))
        again = open_log(tmp_path / "t-0")
        end = log.log_end_offset
        assert again.segments.aborted_transactions(0, end) == log.segments.aborted_transactions(0, end)
        assert len(again.segments.aborted_transactions(0, end)) == 2
        assert again.last_stable_offset(end) == log.last_stable_offset(end) == end - 1

    def test_old_coordinators_and_producers_are_fenced(self, tmp_path):
        """A marker of an older coordinator epoch or producer epoch is refused."""
        log = open_log(tmp_path / "t-0")
        append(log, marker(1, committed=True, epoch=3, coordinator_epoch=5), origin=Origin.COORDINATOR)
        old = marker(1, committed=True, epoch=3, coordinator_epoch=4)
        assert code_of(append, log, old, origin=Origin.COORDINATOR) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
        old = marker(1, committed=True, epoch=2, coordinator_epoch=5)
        assert code_of(append, log, old, origin=Origin.COORDINATOR) is ErrorCode.INVALID_PRODUCER_EPOCH
