"""Truncation of followers to the longest common prefix, fetch by fetch."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from kreplica.model import NO_EPOCH
from kreplica.replication.follower import truncation
from kreplica.replication.follower.truncation import Restart
from kreplica.storage.formats.leader_epochs import EpochEntry

Record = tuple[int, int]
"""A record: its leader epoch, and a number that is unique to it."""


@dataclass
class History:
    """A replica's log, and the responses about it that the replica sends as leader."""

    records: list[Record] = field(default_factory=list)
    began: list[EpochEntry] = field(default_factory=list)
    """Epoch in which the replica is leader, even if it has written no record."""

    @property
    def end(self) -> int:
        return len(self.records)

    @property
    def epochs(self) -> list[EpochEntry]:
        found: list[EpochEntry] = []
        for offset, (epoch, _) in enumerate(self.records):
            if not found or epoch > found[-1].epoch:
                found.append(EpochEntry(epoch, offset))
        for entry in self.began:
            if not found or entry.epoch > found[-1].epoch:
                found.append(entry)
        return found

    def diverging(self, last_fetched_epoch: int, fetch_offset: int) -> tuple[int, int] | None:
        """Return the response of this replica as leader to a fetch (KIP-595)."""
        below = [entry for entry in self.epochs if entry.epoch <= last_fetched_epoch]
        above = [entry for entry in self.epochs if entry.epoch > last_fetched_epoch]
        epoch = below[-1].epoch if below else last_fetched_epoch
        end_offset = above[0].start_offset if above else self.end
        if epoch < last_fetched_epoch or end_offset < fetch_offset:
            return epoch, end_offset
        return None


def follow(follower: History, leader: History) -> list[int]:
    """Fetch until the histories agree, and return the log end after each truncation."""
    cuts = []
    follower.began = []
    while follower.records:
        diverging = leader.diverging(follower.records[-1][0], follower.end)
        if diverging is None:
            break
        cut = truncation.truncation_offset(
            *diverging, follower.epochs, log_end_offset=follower.end, high_watermark=0
        )
        assert cut < follower.end, "each response shortens the log"
        del follower.records[cut:]
        cuts.append(cut)
    return cuts


def common(left: History, right: History) -> int:
    size = 0
    for one, other in zip(left.records, right.records, strict=False):
        if one != other:
            break
        size += 1
    return size


def elect_and_write(rng: random.Random, replicas: list[History], epoch: int, numbers: list[int]) -> None:
    """Make any replica leader, as after unclean elections; it writes, and some other replicas follow it."""
    leader = rng.choice(replicas)
    leader.began = [EpochEntry(epoch, leader.end)]
    for _ in range(rng.randrange(4)):
        numbers[0] += 1
        leader.records.append((epoch, numbers[0]))
    for replica in replicas:
        if replica is not leader and rng.random() < 0.5:
            follow(replica, leader)
            replica.records += leader.records[replica.end : rng.randint(replica.end, leader.end)]


@pytest.mark.parametrize("seed", range(300))
def test_longest_common_prefix_remains(seed: int) -> None:
    """After any history, a follower keeps exactly its common prefix with the leader."""
    rng = random.Random(seed)
    replicas = [History() for _ in range(3)]
    numbers = [0]
    for epoch in range(1, rng.randrange(2, 12)):
        elect_and_write(rng, replicas, epoch, numbers)
        for follower in replicas:
            for leader in replicas:
                if follower is not leader:
                    led = History(leader.records, [EpochEntry(epoch + 1, leader.end)])
                    copy = History(list(follower.records))
                    follow(copy, led)
                    assert copy.records == leader.records[: common(follower, leader)], (seed, epoch)


def test_frequent_elections_take_several_responses() -> None:
    """Epochs that alternate between two logs are removed one by one (KIP-279)."""
    leader = History([(1, 1), (1, 2), (3, 3), (5, 5)])
    follower = History([(1, 1), (1, 2), (2, 20), (4, 40), (4, 41)])
    assert follow(follower, leader) == [3, 2]
    assert follower.records == leader.records[:2]


def test_shorter_log_is_not_truncated() -> None:
    leader = History([(1, 1), (1, 2), (3, 3)])
    assert follow(History([(1, 1)]), leader) == []
    assert follow(History([]), leader) == []


def test_logs_without_a_common_prefix() -> None:
    """All epochs of the follower are newer than those of the leader, so its log becomes empty."""
    own = [EpochEntry(7, 3)]
    assert truncation.truncation_offset(2, 9, own, log_end_offset=12, high_watermark=5) == 3


def test_leader_without_the_epoch() -> None:
    """If the leader does not know the epoch, the follower truncates to its high watermark (KIP-101)."""
    own = [EpochEntry(7, 3)]
    assert truncation.truncation_offset(-1, -1, own, log_end_offset=12, high_watermark=5) == 5


@pytest.mark.parametrize(
    ("epochs", "cut"), [([], 5), ([EpochEntry(NO_EPOCH, 0)], 5), ([EpochEntry(0, 0)], 12)]
)
def test_log_without_epochs_is_truncated_to_the_high_watermark(epochs: list[EpochEntry], cut: int) -> None:
    """A log without epochs is truncated to its high watermark; one with epochs is left unchanged."""
    assert truncation.end_of_known_history(epochs, log_end_offset=12, high_watermark=5) == cut


@pytest.mark.parametrize(
    ("leader", "restart"),
    [
        ((0, 10), Restart(10, emptied=False)),
        ((25, 30), Restart(25, emptied=True)),
        ((5, 20), None),
        ((5, 50), None),
        ((20, 20), None),
        ((0, 0), Restart(0, emptied=False)),
    ],
)
def test_offset_out_of_the_leaders_range(leader: tuple[int, int], restart: Restart | None) -> None:
    """Above the leader's end, the follower truncates; below its start, the follower restarts there."""
    start, end = leader
    assert truncation.restart_out_of_range(20, leader_start_offset=start, leader_end_offset=end) == restart


def test_truncation_below_the_high_watermark_is_logged() -> None:
    assert truncation.loses_committed_records(4, 5)
    assert not truncation.loses_committed_records(5, 5)


@pytest.mark.parametrize(
    ("leader_epoch", "cut"),
    [(4, 0), (5, 30), (7, 40), (8, 40), (9, 100), (12, 100)],
)
def test_later_epochs_are_truncated(leader_epoch: int, cut: int) -> None:
    """A batch with an epoch later than the leader's is damaged."""
    epochs = [EpochEntry(5, 0), EpochEntry(7, 30), EpochEntry(9, 40)]
    found = truncation.end_of_possible_history(epochs, leader_epoch=leader_epoch, log_end_offset=100)
    assert found == cut


def test_empty_log_has_no_impossible_epoch() -> None:
    assert truncation.end_of_possible_history([], leader_epoch=0, log_end_offset=0) == 0
