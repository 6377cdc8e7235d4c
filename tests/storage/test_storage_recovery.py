"""Logs can be opened after a stop, a kill, a torn write or damage; the recovery is logged."""

from __future__ import annotations

import dataclasses
import shutil

import pytest
from storage_world import SMALL, bases_of, batch, fill, idempotent, offsets_of, open_log, read_bytes, values_of

from kreplica.errors import ErrorCode, KafkaError, StorageError
from kreplica.storage.formats.leader_epochs import FILE_NAME
from kreplica.storage.log.appending import append_as_follower, append_as_leader
from kreplica.storage.segments.batch_search import find_batch
from kreplica.storage.segments.segment import Segment


@pytest.fixture
def path(tmp_path):
    return tmp_path / "orders-0"


def active_of(path):
    return sorted(path.glob("*.log"))[-1]


def test_kill_loses_no_written_record(path):
    log = open_log(path)
    fill(log, 25, epoch=3)
    again = open_log(path, recovery_point=7)
    assert read_bytes(again) == read_bytes(log)
    assert again.leader_epochs.entries == ((3, 0),)
    assert again.durability.recovery_point == 7


def test_no_scan_after_an_orderly_stop(path, monkeypatch):
    """With the clean-shutdown marker, the duration of a start does not depend on the size of the logs."""
    log = open_log(path)
    fill(log, 25)
    append_as_leader(log, idempotent(0, 3), 0, now_ms=1)
    before = read_bytes(log)
    log.close()
    monkeypatch.setattr(Segment, "reset", lambda self: pytest.fail("a segment was recovered"))
    again = open_log(path, clean_shutdown=True)
    assert again.log_end_offset == again.durability.recovery_point == 28
    assert read_bytes(again) == before
    assert append_as_leader(again, idempotent(0, 3), 0, now_ms=1).duplicate


@pytest.mark.parametrize("cut", [1, 60, 62, 170])
def test_torn_tail_is_truncated(path, cut):
    """Only the incomplete batch at the end is removed."""
    fill(open_log(path), 3)
    file = active_of(path)
    size = file.stat().st_size
    with open(file, "r+b") as content:
        content.truncate(size - cut)
    log = open_log(path)
    assert offsets_of(log) == list(range(3 - -(-cut // (size // 3))))
    assert file.stat().st_size == log.segments.size_bytes
    fill(log, 1)
    assert offsets_of(open_log(path)) == offsets_of(log)


def test_zeros_and_garbage_at_the_end_are_truncated(path):
    """A file system may leave zeros or old bytes where an append was in progress."""
    fill(open_log(path), 3)
    whole = active_of(path).read_bytes()
    for tail in (bytes(500), b"\x01" * 300, whole[:100], whole):
        active_of(path).write_bytes(whole + tail)
        assert offsets_of(open_log(path)) == [0, 1, 2]
        assert active_of(path).read_bytes() == whole


def test_flipped_bit_above_the_recovery_point_ends_the_log(path):
    """Records that were not durable are dropped from the first damaged batch on, with all later segments."""
    fill(open_log(path), 25)
    second = sorted(path.glob("*.log"))[1]
    first_offset = int(second.stem)
    damage(second, -1)
    log = open_log(path, recovery_point=first_offset)
    end = log.log_end_offset
    assert first_offset < end < 25
    assert offsets_of(log) == list(range(end))
    assert bases_of(log)[-1] == first_offset
    fill(log, 3)
    assert offsets_of(open_log(path)) == list(range(end + 3))


@pytest.mark.parametrize("wrong", [1, 2], ids=["in the middle", "the last one"])
@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_batch_with_an_impossible_offset_ends_the_log(path, policy, wrong):
    """The checksum does not cover a batch's offset; in a compacted log, the last batch's offset cannot be verified."""
    config = dataclasses.replace(SMALL, cleanup_policy=frozenset({policy}))
    fill(open_log(path), 3)
    file = active_of(path)
    size = file.stat().st_size // 3
    damage(file, wrong * size + 5)
    log = open_log(path, config)
    if policy == "compact" and wrong == 2:
        assert offsets_of(log)[:2] == [0, 1]
        assert len(offsets_of(log)) == 3
    else:
        assert offsets_of(log) == list(range(wrong))


def test_gaps_of_compaction_are_kept(path, tmp_path):
    """A follower of a compacted log has gaps in its active segment too."""
    leader = open_log(tmp_path / "leader-0")
    fill(leader, 21)
    config = dataclasses.replace(SMALL, cleanup_policy=frozenset({"compact"}))
    log = open_log(path, config)
    for offset in (0, 5, 6, 20):
        append_as_follower(log, read_bytes(leader, offset, offset + 1), now_ms=1)
    assert offsets_of(open_log(path, config)) == [0, 5, 6, 20]


def test_flipped_bit_below_the_recovery_point_is_an_error(path):
    """Durable records are never truncated silently: the replica is offline, and its files stay unchanged."""
    fill(open_log(path), 25)
    files = {file: file.read_bytes() for file in path.glob("*.log")}
    file = active_of(path)
    damage(file, -1)
    with pytest.raises(StorageError, match=file.name):
        open_log(path, recovery_point=25)
    assert file.stat().st_size == len(files[file])


def test_segment_that_lost_its_end_ends_the_log(path):
    """After a power loss, later files may exist even if the end of an earlier one is lost; no gap may remain."""
    log = open_log(path)
    fill(log, 25)
    first = sorted(path.glob("*.log"))[0]
    with open(first, "r+b") as content:
        content.truncate(find_batch(log.segments.first, 3)[0])
    again = open_log(path)
    assert offsets_of(again) == [0, 1, 2]
    fill(again, 5, epoch=1, first=3)
    assert offsets_of(open_log(path)) == list(range(8))


def damage(file, position):
    data = bytearray(file.read_bytes())
    data[position] ^= 0x10
    file.write_bytes(data)


def test_missing_and_damaged_indexes_are_rebuilt(path):
    """Every offset can still be found."""
    log = open_log(path)
    fill(log, 25)
    before = read_bytes(log)
    log.close()
    kept = {file.name: file.read_bytes() for file in path.glob("*index")}
    for file in path.glob("*index"):
        file.unlink()
    again = open_log(path, clean_shutdown=True)
    assert read_bytes(again) == before
    again.close()
    assert {file.name: file.read_bytes() for file in path.glob("*index")} == kept
    for file in path.glob("*index"):
        file.write_bytes(b"\x01" * 48)
    assert read_bytes(open_log(path)) == before


def test_index_padded_by_kafka(path):
    """Kafka preallocates the active segment's indexes, so zeros remain in them if it is killed."""
    log = open_log(path)
    fill(log, 25)
    before = read_bytes(log)
    log.close()
    for file in path.glob("*index"):
        file.write_bytes(file.read_bytes().ljust(1200, b"\0"))
    assert read_bytes(open_log(path, clean_shutdown=True)) == before


def test_damaged_leader_epochs_are_rebuilt_from_the_batches(path):
    log = open_log(path)
    for epoch in (1, 4, 9):
        fill(log, 6, epoch=epoch)
    for text in (b"", b"0\n2\n1 0\n", b"0\n3\n1 0\n4 6\n9 1", b"nonsense"):
        (path / FILE_NAME).write_bytes(text)
        assert open_log(path).leader_epochs.entries == ((1, 0), (4, 6), (9, 12))
    (path / FILE_NAME).unlink()
    assert open_log(path).leader_epochs.entries == ((1, 0), (4, 6), (9, 12))


def test_damaged_snapshots_are_skipped(path):
    """Producers' sequence numbers are read from the last valid snapshot and later batches, or only from the batches."""
    log = open_log(path)
    for sequence in range(20):
        append_as_leader(log, idempotent(sequence, 1), 0, now_ms=1)
    log.close()
    for count in (2, 1):
        snapshots = sorted(path.glob("*.snapshot"))
        assert len(snapshots) == count
        snapshots[-1].write_bytes(snapshots[-1].read_bytes()[:-3])
        again = open_log(path, clean_shutdown=True)
        assert append_as_leader(again, idempotent(19), 0, now_ms=1).duplicate
        assert append_as_leader(again, idempotent(20), 0, now_ms=1).base_offset == 20
        again.truncate_to(20)


def test_leftovers_of_a_deletion_are_removed(path):
    """Files marked as deleted, and indexes without a segment, are removed at the next start."""
    log = open_log(path)
    fill(log, 25)
    first = sorted(path.glob("*.log"))[0]
    first.rename(f"{first}.deleted")
    second = bases_of(log)[1]
    again = open_log(path)
    assert again.log_start_offset == second
    assert offsets_of(again) == list(range(second, 25))
    assert not list(path.glob("*.deleted"))
    assert not list(path.glob("00000000000000000000.*"))


def test_start_offset_is_kept(path):
    """Deleted records stay deleted; if the start offset is beyond the end (after data loss), the log restarts there."""
    fill(open_log(path), 5)
    assert offsets_of(open_log(path, log_start_offset=3)) == [3, 4]
    shutil.rmtree(path)
    fill(open_log(path), 2)
    log = open_log(path, log_start_offset=10)
    assert (log.log_start_offset, log.log_end_offset) == (10, 10)
    fill(log, 1)
    assert offsets_of(open_log(path, log_start_offset=10)) == [10]


def test_empty_directory_is_an_empty_log(path):
    """The log starts at offset 0, even if it is opened a second time."""
    assert open_log(path).log_end_offset == 0
    assert open_log(path, clean_shutdown=True).log_end_offset == 0


def test_restart_keeps_sequences_of_many_segments(path):
    """A retry of an idempotent producer is detected after any number of kills and rolls."""
    sequence = 0
    for _ in range(4):
        log = open_log(path, SMALL)
        if sequence:
            assert append_as_leader(log, idempotent(sequence - 1), 0, now_ms=1).duplicate
        for _ in range(7):
            append_as_leader(log, idempotent(sequence), 0, now_ms=1)
            sequence += 1
    with pytest.raises(KafkaError) as caught:
        append_as_leader(log, idempotent(sequence + 1), 0, now_ms=1)
    assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [value for _, value in values_of(log)] == [f"7/0/{number}" for number in range(28)]


def test_repeated_batches_are_not_read_twice(path):
    """A repeated write above the recovery point is truncated."""
    log = open_log(path)
    append_as_leader(log, batch("a", "b"), 0, now_ms=1)
    file = active_of(path)
    file.write_bytes(file.read_bytes() * 2)
    assert values_of(open_log(path)) == [(0, "a"), (1, "b")]
