"""The storms are tested: whichever guard of replication is taken away, some seed notices."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from test_cluster_storms import storm

from kreplica.controller import decisions
from kreplica.replication import Partitions, fencing, followed, followers, high_watermark, in_sync, truncation
from kreplica.storage.producers import ProducerStates
from kreplica.zookeeper import ZooKeeperClient

pytestmark = [
    pytest.mark.soak,
    pytest.mark.filterwarnings("ignore:.*<coroutine object:pytest.PytestUnraisableExceptionWarning"),
]

SEEDS_MAX = 500


def always(*_: Any, **__: Any) -> bool:
    return True


def never(*_: Any, **__: Any) -> bool:
    return False


def cut_at_high_watermark(*_: Any, log_end_offset: int, high_watermark: int) -> int:
    return min(high_watermark, log_end_offset)


Guard = tuple[Any, str, Callable[..., Any]]

WITHOUT: dict[str, tuple[Guard, ...]] = {
    "commands are for this incarnation": ((fencing, "is_stale_broker_epoch", never),),
    "a role is taken for a new epoch only": ((fencing, "is_new_epoch", always),),
    "an older epoch is refused": ((fencing, "is_current_epoch", always),),
    "followers are anew in each epoch": ((followers, "is_of_epoch", always),),
    "who joins has fetched, and has all": (
        (in_sync, "has_fetched_in_this_epoch", always),
        (in_sync, "has_reached_high_watermark", always),
        (in_sync, "has_reached_epoch_start", always),
    ),
    "who joins has the high watermark and the epoch's start": (
        (in_sync, "has_reached_high_watermark", always),
        (in_sync, "has_reached_epoch_start", always),
    ),
    "who joins has the epoch's start": ((in_sync, "has_reached_epoch_start", always),),
    "who joins is the one that is registered": ((in_sync, "is_current_incarnation", always),),
    "in-sync sets are written conditionally": ((in_sync, "expected_version", lambda _: -1),),
    "both in-sync sets count": ((in_sync, "union", lambda isr, proposed: tuple(proposed)),),
    "answers are for the offset that was asked": ((followed, "matches_offset", always),),
    "answers are for the epoch that asked": ((followed, "matches_epoch", always),),
    "logs are cut where epochs part": ((truncation, "cut_at_divergence", cut_at_high_watermark),),
    "too few commit nothing": ((high_watermark, "may_advance", always),),
    "who may have lost something leaves": ((decisions, "has_lost_nothing", always),),
    "a leader has a lease": ((ZooKeeperClient, "session_may_have_expired", property(never)),),
    "a leadership ends with its session": ((Partitions, "session_lost", never),),
    "retries are known": ((ProducerStates, "check", lambda self, header, marker, origin: None),),
}


@pytest.fixture(scope="module")
def score() -> Iterator[dict[str, int]]:
    """Of each guard, the seed that missed it; printed at the end."""
    found: dict[str, int] = {}
    yield found
    lines = [f"  {name:<60} seed {seed}" for name, seed in found.items()]
    print(f"\n{len(found)} of {len(WITHOUT)} guards are missed:", *lines, sep="\n", file=sys.__stdout__)


@pytest.mark.parametrize("name", WITHOUT)
def test_a_guard_taken_away_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch, score: dict[str, int]) -> None:
    """Within 500 seeds a storm without the guard breaks a rule, loses a record, or does not end well."""
    for where, guard, without in WITHOUT[name]:
        monkeypatch.setattr(where, guard, without)
    for seed in range(1, SEEDS_MAX + 1):
        try:
            storm(seed)
        except Exception:
            score[name] = seed
            return
    pytest.fail(f"{SEEDS_MAX} seeds did not miss it: {name}")
