"""Compaction keeps the last record of each key, and everything else that readers and producers still need."""

from __future__ import annotations

from dataclasses import replace

import pytest
from storage_world import SMALL, bases_of, batch, flush, idempotent, marker, open_log, read_bytes, records_of

from kreplica.errors import StorageError
from kreplica.runtime.os_disk import OsDisk
from kreplica.storage import Origin
from kreplica.storage.compaction.compaction import KEY_ENTRY_SIZE, Compaction, plan_compaction
from kreplica.storage.log.appending import append_as_leader
from kreplica.storage.log.segment_replacement import replace_segments
from kreplica.storage.log.timestamp_search import offset_for_timestamp
from kreplica.wire.batches import iter_headers, parse_header
from kreplica.wire.compression import Codec

COMPACTED = replace(SMALL, cleanup_policy=frozenset({"compact"}), delete_retention_ms=1000)
NOW_MS = 5000


def append(log, *pairs, **options):
    return append_as_leader(log, batch(*pairs, **options), 0, now_ms=1)


def compact(log, *, now_ms=NOW_MS, memory=2**20, cleaned_offset=0):
    plan = plan_compaction(log, cleaned_offset, log.log_end_offset, now_ms)
    assert plan is not None
    compaction = Compaction(plan, OsDisk(), now_ms, memory)
    compaction.read_keys()
    for group in compaction.groups():
        target = compaction.write_group(group)
        assert replace_segments(log, [source.segment for source in group], target)
    return compaction.end_offset


def contents(log):
    return [(record.offset, record.key, record.value) for record in records_of(read_bytes(log))]


@pytest.fixture
def log(tmp_path):
    return open_log(tmp_path / "t-0", COMPACTED)


@pytest.mark.parametrize("codec", Codec)
def test_last_record_of_each_key_stays(log, codec):
    """A reader from the start gets the latest value of every key, at its offset, with its timestamp."""
    for number in range(60):
        append(log, (f"key {number % 7}", f"value {number}".ljust(50)), (f"once {number}", "x"), codec=codec)
    log.roll(1)
    before = {record.offset: record for record in records_of(read_bytes(log))}
    last = {record.key: record for record in before.values()}
    size = log.segments.size_bytes
    assert compact(log) == 120
    found = records_of(read_bytes(log))
    assert {record.key: record for record in found} == last
    assert len(found) == 67
    assert all(before[record.offset] == record for record in found)
    assert log.segments.size_bytes < size


def test_active_segment_is_not_compacted(log):
    append(log, ("k", "1"))
    log.roll(1)
    append(log, ("k", "2"))
    append(log, ("k", "3"))
    compact(log)
    assert [value for _, _, value in contents(log)] == [b"1", b"2", b"3"]
    log.roll(1)
    compact(log)
    assert [value for _, _, value in contents(log)] == [b"3"]
    assert log.read(0, size_max=1000, offset_max=3).first_offset == 2


def test_tombstones_stay_for_delete_retention_ms(log):
    """The time is measured from the first compaction."""
    append(log, ("gone", "1"), ("kept", "1"))
    append(log, ("gone", None))
    log.roll(1)
    compact(log)
    assert contents(log) == [(1, b"kept", b"1"), (2, b"gone", None)]
    header = [header for _, header in iter_headers(read_bytes(log))][1]
    assert header.has_delete_horizon
    assert header.base_timestamp == NOW_MS + 1000
    assert records_of(read_bytes(log))[1].timestamp_ms == 1000
    compact(log, now_ms=NOW_MS + 999)
    assert len(contents(log)) == 2
    compact(log, now_ms=NOW_MS + 1000)
    assert contents(log) == [(1, b"kept", b"1")]


def test_small_segments_are_merged(log):
    """Offsets and timestamps can still be found."""
    for number in range(80):
        append(log, (f"key {number % 20}", f"value {number}".ljust(60)), timestamp_ms=1000 + number)
    log.roll(1)
    many = len(bases_of(log))
    compact(log)
    compact(log)
    assert len(bases_of(log)) < many / 2
    for number in range(60, 80):
        assert log.read(number, size_max=1, offset_max=80).first_offset == number
        assert offset_for_timestamp(log, 1000 + number, 80).offset == number
    reopened = open_log(log.path, COMPACTED)
    assert contents(reopened) == contents(log)
    assert reopened.log_end_offset == 80


def test_little_memory_needs_several_passes(log):
    """If not all keys fit into memory, the log is compacted part by part; no pass loses a record."""
    log.config = replace(COMPACTED, min_cleanable_dirty_ratio=0)
    for number in range(60):
        append(log, (f"key {number % 15}", f"value {number}".ljust(40)))
    log.roll(1)
    last = {key: value for _, key, value in contents(log)}
    ends = [0]
    while ends[-1] < 60:
        ends.append(compact(log, memory=4 * KEY_ENTRY_SIZE, cleaned_offset=ends[-1]))
        assert {key: value for _, key, value in contents(log)} == last
        assert ends[-1] > ends[-2]
    assert len(ends) > 4


def test_producers_keep_their_last_sequence(log, tmp_path):
    """The last batch of a producer is kept, without records, so that a retry is still detected."""
    for sequence in range(3):
        append(log, ("k", str(sequence)), producer_id=5, producer_epoch=1, base_sequence=sequence)
    append(log, ("k", "last"))
    log.roll(1)
    compact(log)
    assert contents(log) == [(3, b"k", b"last")]
    headers = [header for _, header in iter_headers(read_bytes(log))]
    assert [(header.base_offset, header.record_count, header.last_sequence) for header in headers] == [
        (2, 0, 2),
        (3, 1, -1),
    ]
    for file in (tmp_path / "t-0").glob("*.snapshot"):
        file.unlink()
    again = open_log(tmp_path / "t-0", COMPACTED)
    retry = batch(("k", "2"), producer_id=5, producer_epoch=1, base_sequence=2)
    assert append_as_leader(again, retry, 0, now_ms=1).duplicate


def test_aborted_records_are_removed_before_their_marker(log):
    """The marker is removed only after the delete horizon."""

    def transaction(name, sequence, committed):
        append(log, (name, name), producer_id=5, producer_epoch=0, base_sequence=sequence, transactional=True)
        append_as_leader(log, marker(5, committed=committed), 0, now_ms=1, origin=Origin.COORDINATOR)

    transaction("aborted", 0, False)
    transaction("committed", 1, True)
    append(log, ("other", "x"), producer_id=5, producer_epoch=0, base_sequence=2)
    log.roll(1)

    def batches():
        return [(header.base_offset, header.is_control) for _, header in iter_headers(read_bytes(log))]

    compact(log)
    assert batches() == [(1, True), (2, False), (3, True), (4, False)]
    assert len(log.segments.aborted_transactions(0, 5)) == 1
    compact(log)
    compact(log, now_ms=NOW_MS + 5000)
    assert batches() == [(2, False), (3, True), (4, False)]
    assert log.segments.aborted_transactions(0, 5) == []


def test_record_aborted_in_a_later_segment_hides_nothing(log):
    """The last committed record of a key is kept if a later aborted transaction wrote to the key.

    The marker of this transaction is in the active segment, which is not compacted.
    """
    append(log, ("k", "committed"))
    append(log, ("k", "aborted"), producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    log.roll(1)
    append_as_leader(log, marker(5, committed=False), 0, now_ms=1, origin=Origin.COORDINATOR)
    compact(log)
    assert contents(log)[0] == (0, b"k", b"committed")
    assert [header.base_offset for _, header in iter_headers(read_bytes(log))] == [0, 1, 2]
    assert [offset for offset, _, _ in contents(log)] == [0, 2]


def reopen_without_snapshots(tmp_path):
    """Open the log from its batches alone."""
    return open_log(tmp_path / "t-0", COMPACTED, recovery_point=0)


def test_marker_stays_while_records_of_its_transaction_do(tmp_path, log):
    """The records may be in segments that are compacted separately.

    Without the marker, a reader would assign them to the producer's next transaction, and drop them if that transaction
    is aborted.
    """

    def write(sequence, key):
        append(log, (key, "x" * 700), producer_id=5, producer_epoch=0, base_sequence=sequence, transactional=True)

    def end(committed):
        append_as_leader(log, marker(5, committed=committed), 0, now_ms=1, origin=Origin.COORDINATOR)
        log.roll(1)

    write(0, "committed")
    log.roll(1)
    append(log, ("other", "x" * 700))
    end(True)
    write(1, "aborted")
    end(False)
    for number in range(3):
        compact(log, now_ms=NOW_MS + 5000 * number)
    flush(log)
    log.segments.release()
    log = reopen_without_snapshots(tmp_path)
    assert contents(log)[0][:2] == (0, b"committed")
    assert log.last_stable_offset(log.log_end_offset) == log.log_end_offset


def test_empty_batch_opens_no_transaction(tmp_path, log):
    """The last batch of a producer is kept without its records, and so is the marker that ends its transaction."""
    append(log, ("k", "aborted"), producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    append_as_leader(log, marker(5, committed=False), 0, now_ms=1, origin=Origin.COORDINATOR)
    log.roll(1)
    for number in range(3):
        compact(log, now_ms=NOW_MS + 5000 * number)
    assert [header.record_count for _, header in iter_headers(read_bytes(log))] == [0, 1]
    flush(log)
    log.segments.release()
    log = reopen_without_snapshots(tmp_path)
    assert log.producers.get(5).last_sequence == 0
    assert log.last_stable_offset(2) == 2


def test_last_epoch_of_a_producer_is_kept_with_its_marker(tmp_path, log):
    """The last marker of a producer is kept if no other batch has the producer's last epoch (KIP-890)."""
    append(log, ("k", "v"), producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    append_as_leader(log, marker(5, committed=False, epoch=1), 0, now_ms=1, origin=Origin.COORDINATOR)
    append(log, ("other", "v"))
    log.roll(1)
    for number in range(3):
        compact(log, now_ms=NOW_MS + 5000 * number)
    assert [header.base_offset for _, header in iter_headers(read_bytes(log))] == [1, 2]
    flush(log)
    log.segments.release()
    assert reopen_without_snapshots(tmp_path).producers.get(5).epoch == 1


def test_open_transaction_limits_compaction(log):
    """Nothing at or after the last stable offset is compacted."""
    append(log, ("k", "1"))
    append(log, ("k", "2"), producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    log.roll(1)
    append(log, ("k", "3"))
    log.roll(1)
    assert plan_compaction(log, 0, log.log_end_offset, NOW_MS) is None


class TestPlan:
    def test_log_is_compacted_only_if_dirty_enough(self, log):
        """``min.cleanable.dirty.ratio`` and ``max.compaction.lag.ms`` determine when."""
        for number in range(4):
            append(log, ("k", str(number)), timestamp_ms=1000)
        log.roll(1)
        append(log, ("k", "x"), timestamp_ms=1000)
        log.roll(1)
        assert plan_compaction(log, 0, 5, NOW_MS).dirty_ratio == 1
        assert plan_compaction(log, 4, 5, NOW_MS) is None
        assert plan_compaction(log, 5, 5, NOW_MS) is None
        log.config = replace(COMPACTED, max_compaction_lag_ms=3999)
        assert plan_compaction(log, 4, 5, NOW_MS).overdue
        log.config = replace(COMPACTED, min_cleanable_dirty_ratio=0.1)
        assert plan_compaction(log, 4, 5, NOW_MS).dirty_offset == 4

    def test_young_records_are_not_compacted(self, log):
        """``min.compaction.lag.ms`` protects younger records."""
        append(log, ("k", "1"), timestamp_ms=1000)
        log.roll(1)
        append(log, ("k", "2"), timestamp_ms=4000)
        log.roll(1)
        log.config = replace(COMPACTED, min_compaction_lag_ms=2000)
        assert plan_compaction(log, 0, 2, NOW_MS).end_offset == 1


def test_damaged_batch_stops_compaction(log, tmp_path):
    """A batch with a wrong CRC must not be rewritten with a correct one."""
    append(log, ("k", "1"))
    append(log, ("k", "2"))
    log.roll(1)
    file = tmp_path / "t-0" / "00000000000000000000.log"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(StorageError, match="damaged"):
        compact(log)
    assert file.read_bytes() == data
    assert not list((tmp_path / "t-0").glob("*.cleaned"))


def test_truncation_during_compaction_discards_the_result(log):
    for number in range(10):
        append(log, ("k", str(number)))
    log.roll(1)
    plan = plan_compaction(log, 0, 10, NOW_MS)
    compaction = Compaction(plan, OsDisk(), NOW_MS, 2**20)
    compaction.read_keys()
    (group, *_) = compaction.groups()
    target = compaction.write_group(group)
    log.truncate_to(3)
    before = contents(log)
    assert not replace_segments(log, [source.segment for source in group], target)
    compaction.discard(target)
    assert contents(log) == before
    assert contents(open_log(log.path, COMPACTED)) == before


def test_batches_without_removed_records_are_copied(log):
    """Idempotent producers' batches are copied unchanged if all their records are kept."""
    sent = idempotent(0, 1)
    log.config = replace(log.config, cleanup_policy=frozenset({"delete"}))
    append(log, ("a", "1"), ("b", "2"), codec=Codec.SNAPPY)
    append_as_leader(log, sent, 0, now_ms=1)
    log.roll(1)
    before = read_bytes(log)
    compact(log)
    assert read_bytes(log)[: parse_header(before).size] == before[: parse_header(before).size]
