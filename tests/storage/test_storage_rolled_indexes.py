"""Indexes of a segment that was closed exactly at the recovery point."""

from __future__ import annotations

from random import Random

import pytest
from storage_world import SMALL, fill, flush, open_log

from kreplica.storage.log.retention import delete_expired
from kreplica.storage.log.timestamp_search import offset_for_timestamp
from kreplica.testing.simulator.disk import MemoryDisk

RECORD_COUNT = 40


@pytest.mark.parametrize("seed", range(20))
def test_synced_indexes_survive_a_power_loss(seed: int) -> None:
    """If a lost index were read as zeros, these would be timestamps of 1970, and retention would remove the records."""
    disk = MemoryDisk(directories=["/data/log"])
    log = open_log("/data/log", SMALL, disk)
    appended = 0
    for first in range(RECORD_COUNT):
        fill(log, 1, first=first)
        flush(log)
        appended += 1
        if Random(f"{seed}/{first}").random() < 0.05:
            break
    disk.power_loss(Random(seed))
    found = open_log("/data/log", SMALL, disk, recovery_point=log.durability.recovery_point)
    assert found.log_end_offset == appended
    assert delete_expired(found, now_ms=2000, high_watermark=appended) == 0
    for offset in range(appended):
        at = offset_for_timestamp(found, 1000 + offset, appended)
        assert at is not None
        assert at.offset == offset
