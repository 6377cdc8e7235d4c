"""Old segments are removed by time, size and log start offset, and never above the high watermark."""

from __future__ import annotations

from dataclasses import replace

import pytest
from storage_world import SMALL, bases_of, batch, fill, offsets_of, open_log

from kreplica.storage.log.appending import append_as_leader
from kreplica.storage.log.retention import delete_expired

FOREVER = replace(SMALL, retention_ms=-1, retention_bytes=-1)


@pytest.fixture
def log(tmp_path):
    log = open_log(tmp_path / "t-0", FOREVER)
    fill(log, 24)
    assert len(bases_of(log)) > 3
    return log


def test_nothing_is_removed_without_a_limit(log):
    assert delete_expired(log, 10**15, 24) == 0
    assert offsets_of(log) == list(range(24))


def test_retention_by_time(log, tmp_path):
    """A segment is removed with all its files when its last record is older than ``retention.ms``."""
    first, second = bases_of(log)[:2]
    log.config = replace(FOREVER, retention_ms=100)
    last_ms = 1000 + second - 1
    assert delete_expired(log, last_ms + 100, 24) == 0
    assert delete_expired(log, last_ms + 101, 24) > 0
    assert log.log_start_offset == second
    assert offsets_of(log) == list(range(second, 24))
    assert not list((tmp_path / "t-0").glob(f"{first:020d}.*"))


def test_retention_by_time_of_the_active_segment(log):
    """An idle log becomes empty, because its active segment is rolled first."""
    log.config = replace(FOREVER, retention_ms=100)
    delete_expired(log, 10_000, 24)
    assert (log.log_start_offset, log.log_end_offset, log.segments.size_bytes) == (24, 24, 0)
    fill(log, 1)
    assert offsets_of(log) == [24]
    assert offsets_of(open_log(log.path, FOREVER)) == [24]


def test_retention_by_size(log):
    """Segments are removed as long as at least ``retention.bytes`` remain."""
    size = log.segments.size_bytes
    log.config = replace(FOREVER, retention_bytes=size - 1)
    assert delete_expired(log, 1, 24) == 0
    log.config = replace(FOREVER, retention_bytes=1000)
    delete_expired(log, 1, 24)
    assert 1000 <= log.segments.size_bytes < 2000


def test_uncommitted_records_are_kept(log):
    log.config = replace(FOREVER, retention_ms=0)
    second = bases_of(log)[1]
    delete_expired(log, 10**15, second)
    assert log.log_start_offset == second
    delete_expired(log, 10**15, second + 1)
    assert log.log_start_offset == second


def test_segments_of_deleted_records_are_removed_for_every_policy(log):
    """After DeleteRecords, whole segments below the start offset are removed, even in a compacted topic."""
    third = bases_of(log)[2]
    log.config = replace(FOREVER, cleanup_policy=frozenset({"compact"}), retention_ms=0)
    log.advance_log_start_offset(third + 1)
    assert bases_of(log)[0] == 0
    delete_expired(log, 10**15, 24)
    assert bases_of(log)[0] == third
    assert offsets_of(log)[0] == log.log_start_offset == third + 1


def test_records_without_timestamps_expire_by_file_age(tmp_path):
    log = open_log(tmp_path / "t-0", replace(FOREVER, retention_ms=1000))
    append_as_leader(log, batch("a", timestamp_ms=-1), 0, now_ms=1)
    log.roll(1)
    written_ms = (tmp_path / "t-0" / "00000000000000000000.log").stat().st_mtime_ns // 10**6
    assert delete_expired(log, written_ms + 1000, 1) == 0
    assert delete_expired(log, written_ms + 1001, 1) > 0


def test_producer_state_expires(tmp_path):
    """After ``producer.id.expiration.ms`` without a batch, a producer may start at any sequence number again."""
    log = open_log(tmp_path / "t-0", FOREVER, producer_expiration_ms=1000)
    append_as_leader(log, batch("a", timestamp_ms=2000, producer_id=1, producer_epoch=0, base_sequence=0), 0, now_ms=1)
    delete_expired(log, 2999, 1)
    assert len(log.producers) == 1
    delete_expired(log, 3000, 1)
    assert len(log.producers) == 0
