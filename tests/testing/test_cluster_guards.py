"""The storms are tested: guards of replication that are taken away, they miss.

Guards whose absence takes a rare order of events to show have scripted tests instead, which say which order
(``docs/replication.md`` names them).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from test_cluster_storms import storm

from kreplica.replication import in_sync
from kreplica.storage.producers import ProducerStates

pytestmark = [
    pytest.mark.soak,
    pytest.mark.filterwarnings("ignore:.*<coroutine object:pytest.PytestUnraisableExceptionWarning"),
]

SEEDS_MAX = 50


def always(*_: Any, **__: Any) -> bool:
    return True


Guard = tuple[Any, str, Callable[..., Any]]

WITHOUT: dict[str, tuple[Guard, ...]] = {
    "who joins has fetched, and has all": (
        (in_sync, "has_fetched_in_this_epoch", always),
        (in_sync, "has_reached_high_watermark", always),
        (in_sync, "has_reached_epoch_start", always),
    ),
    "who joins has the high watermark and the epoch's start": (
        (in_sync, "has_reached_high_watermark", always),
        (in_sync, "has_reached_epoch_start", always),
    ),
    "both in-sync sets count": ((in_sync, "union", lambda isr, proposed: tuple(proposed)),),
    "retries are known": ((ProducerStates, "check", lambda self, header, marker, origin: None),),
}


@pytest.mark.parametrize("name", WITHOUT)
def test_a_guard_taken_away_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within 50 seeds a storm without the guard breaks a rule, loses a record, or does not end well."""
    for where, guard, without in WITHOUT[name]:
        monkeypatch.setattr(where, guard, without)
    for seed in range(1, SEEDS_MAX + 1):
        try:
            storm(seed)
        except Exception:
            return
    pytest.fail(f"{SEEDS_MAX} seeds did not miss it: {name}")
