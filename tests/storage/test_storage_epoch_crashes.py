"""Leader epochs are kept in memory between rolls, but after any crash each record still has its epoch."""

from __future__ import annotations

from random import Random

import pytest
from storage_world import SMALL, batch, flush, open_log, read_bytes
from test_storage_crash import TINY, DyingDisk, PowerCut

from kreplica.model import NO_EPOCH
from kreplica.storage.log.appending import append_as_follower, append_as_leader
from kreplica.testing.simulator.disk import MemoryDisk
from kreplica.wire.batches import iter_headers

PATH = "/data/orders-0"


def many_epochs(log, done):
    """Run elections (some leaders write nothing), rolls, syncs, and a truncation to another history."""
    for number in range(24):
        if number % 2 == 0:
            log.begin_leader_epoch(number)
        if number % 4 < 2:
            append_as_leader(log, batch(f"{number}"), number // 2 * 2, now_ms=1)
        if number % 5 == 0:
            flush(log)
            done["synced"] = log.durability.recovery_point
        if number == 15:
            # Records of the last leader were never committed: a newer leader continues after those of an older epoch.
            cut = log.log_end_offset - 2
            done["synced"] = min(done["synced"], cut)
            log.truncate_to(cut)
            for offset in range(cut, cut + 4):
                follow = batch(f"other {offset}", base_offset=offset, leader_epoch=8)
                append_as_follower(log, follow, now_ms=1)
    log.close()
    done["synced"] = log.durability.recovery_point


def in_batches(log):
    """Return the epochs in the batches, each with its first offset."""
    found = []
    for _, header in iter_headers(read_bytes(log)):
        if not found or header.partition_leader_epoch != found[-1][0]:
            found.append((header.partition_leader_epoch, header.base_offset))
    return found


def check(log):
    """Assert that the epoch file agrees with the batches; it may contain one more epoch, without records."""
    with_records = [entry for entry in log.leader_epochs.entries if entry.start_offset < log.log_end_offset]
    assert with_records == in_batches(log)
    assert all(log.leader_epochs.epoch_of(offset) != NO_EPOCH for offset in range(log.log_end_offset))


def crash_at(cut, *, seed):
    """Stop at this change: a kill keeps all written data, a power loss only synced data."""
    disk = DyingDisk()
    done = {"synced": 0}
    disk.changes_left = cut
    with pytest.raises(PowerCut):
        many_epochs(open_log(PATH, TINY, disk), done)
    disk.changes_left = None
    if seed is not None:
        disk.power_loss(Random(seed))
    return open_log(PATH, TINY, disk, recovery_point=done["synced"]), disk


def changes():
    reference = DyingDisk()
    many_epochs(open_log(PATH, TINY, reference), {"synced": 0})
    assert reference.changes > 40
    return range(reference.changes)


def test_kill_at_any_write_keeps_the_epoch_of_every_record():
    """After the next start, followers still truncate to the correct offset."""
    for cut in changes():
        log, disk = crash_at(cut, seed=None)
        check(log)
        append_as_leader(log, batch("carries on"), 99, now_ms=1)
        log.close()
        check(open_log(PATH, TINY, disk, clean_shutdown=True))


def test_power_loss_at_any_write_keeps_epochs_consistent():
    """Whichever files are lost, the remaining epochs and records are consistent, even after another kill."""
    for cut in changes():
        for seed in range(4):
            log, disk = crash_at(cut, seed=seed)
            check(log)
            append_as_leader(log, batch("carries on"), 99, now_ms=1)
            check(open_log(PATH, TINY, disk, recovery_point=log.durability.recovery_point))


def test_leader_change_writes_nothing():
    """The leaders of ten thousand partitions change without a single disk write."""
    disk = DyingDisk()
    log = open_log(PATH, SMALL, disk)
    append_as_leader(log, batch("a"), 0, now_ms=1)
    before = disk.changes
    for epoch in range(1, 50):
        log.begin_leader_epoch(epoch)
    assert disk.changes == before
    assert log.leader_epochs.entries == ((0, 0), (49, 1))


def test_lost_epoch_truncates_no_committed_record():
    """A leader epoch without records is lost in a kill; a follower of that epoch truncates to the same offset as
    before."""
    disk = MemoryDisk(directories=["/data"])
    log = open_log(PATH, SMALL, disk)
    append_as_leader(log, batch("a", "b"), 4, now_ms=1)
    log.begin_leader_epoch(5)
    asked = range(4, 8)
    before = [log.leader_epochs.end_offset_for(epoch, log.log_end_offset) for epoch in asked]
    again = open_log(PATH, SMALL, disk)
    again.begin_leader_epoch(7)
    log.begin_leader_epoch(7)
    assert before[1] == (5, 2)
    for epoch in asked:
        kept = log.leader_epochs.end_offset_for(epoch, 2)
        assert again.leader_epochs.end_offset_for(epoch, 2)[1] == kept[1] == 2
