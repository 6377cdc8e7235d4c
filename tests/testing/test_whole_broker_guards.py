"""Mutation tests of the crash runs, which must fail if any one guard is missing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from test_whole_broker_crashes import kills, power_losses, power_losses_unsynced

from kreplica.replication import Partition
from kreplica.storage.durability.unflushed import Unsynced
from kreplica.storage.producers.producer_state import ProducerStates
from kreplica.storage.recovery import loading

SEEDS_MAX = 10


@pytest.mark.parametrize(
    ("where", "guard", "without", "run"),
    [
        (Partition, "acknowledgeable_end_offset", property(lambda self: self.log.log_end_offset), power_losses),
        (Unsynced, "sync", lambda self: None, power_losses),
        (Unsynced, "_sync_names", lambda self: None, power_losses),
        (ProducerStates, "check", lambda self, header, origin: None, kills),
        (loading, "verify_crc", lambda data, header: True, power_losses_unsynced),
    ],
    ids=["acks wait for the sync", "files are synced", "names are synced", "retries are known", "CRCs are checked"],
)
def test_a_missing_guard_is_detected(
    monkeypatch: pytest.MonkeyPatch, where: Any, guard: str, without: Any, run: Callable[[int], None]
) -> None:
    """Without the guard, one of ten seeds fails, which proves that the guard is needed and tested."""
    monkeypatch.setattr(where, guard, without)
    for seed in range(1, SEEDS_MAX + 1):
        try:
            run(seed)
        except (AssertionError, TimeoutError):
            return
    pytest.fail(f"{SEEDS_MAX} seeds did not detect the missing guard {guard}")
