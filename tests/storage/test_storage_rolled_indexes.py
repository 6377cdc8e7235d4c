"""Indexes of a segment that was closed exactly at the recovery point."""

from __future__ import annotations

from random import Random

import pytest
from storage_world import SMALL, fill, open_log

from kreplica.testing.simulator.disk import MemoryDisk

RECORDS_COUNT = 40


@pytest.mark.parametrize("seed", range(20))
def test_synced_indexes_survive_a_power_loss(seed: int) -> None:
    """Zeros in place of a lost index would be timestamps of 1970, and retention would remove the records at once."""
    disk = MemoryDisk(directories=["/data/log"])
    log = open_log("/data/log", SMALL, disk)
    appended = 0
    for first in range(RECORDS_COUNT):
        fill(log, 1, first=first)
        log.flush()
        appended += 1
        if Random(f"{seed}/{first}").random() < 0.05:
            break
    disk.power_loss(Random(seed))
    found = open_log("/data/log", SMALL, disk, recovery_point=log.recovery_point)
    assert found.log_end_offset == appended
    assert found.delete_expired(now_ms=2000, high_watermark=appended) == 0
    for offset in range(appended):
        at = found.offset_for_timestamp(1000 + offset, appended)
        assert at is not None
        assert at.offset == offset
