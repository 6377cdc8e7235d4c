"""Rules for membership in the ISR, as pure functions.

A follower joins once it has fetched up to the high watermark and up to the start of the leader epoch, in this epoch and
with its current broker epoch. The start of the epoch matters because a new leader's high watermark lags, while its
predecessor may have acknowledged all records that the new leader had at the start. A follower leaves if it has not been
caught up for ``replica.lag.time.max.ms``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from kreplica.model import NO_BROKER_EPOCH
from kreplica.replication.leader.followers import Progress
from kreplica.replication.role import UNKNOWN_OFFSET


def may_join(progress: Progress, *, high_watermark: int, epoch_start_offset: int) -> bool:
    """True if a follower may be proposed for the ISR; its registration is checked later."""
    return (
        has_fetched_in_this_epoch(progress)
        and has_known_incarnation(progress)
        and has_reached_high_watermark(progress.log_end_offset, high_watermark)
        and has_reached_epoch_start(progress.log_end_offset, epoch_start_offset)
    )


def has_fetched_in_this_epoch(progress: Progress) -> bool:
    """True if the follower has fetched in this leader epoch, so its log matches the leader's up to its fetch offset."""
    return progress.log_end_offset != UNKNOWN_OFFSET


def has_known_incarnation(progress: Progress) -> bool:
    """True if the follower's fetch contained its broker epoch (KIP-903)."""
    return progress.broker_epoch != NO_BROKER_EPOCH


def has_reached_high_watermark(log_end_offset: int, high_watermark: int) -> bool:
    """True if the follower has every record that this leader committed."""
    return log_end_offset >= high_watermark


def has_reached_epoch_start(log_end_offset: int, epoch_start_offset: int) -> bool:
    """True if the follower has every record that earlier leaders may have committed."""
    return log_end_offset >= epoch_start_offset


def is_current_incarnation(broker_epoch: int, registered_epoch: int | None) -> bool:
    """True if the broker that fetched is the one that is registered now (KIP-903).

    :param registered_epoch: czxid of the broker's registration; None if it is not registered.
    """
    return broker_epoch == registered_epoch


def is_of_earlier_incarnation(broker_epoch: int, known_epoch: int) -> bool:
    """True if a fetch was sent before the broker restarted and fetched again (KIP-903)."""
    return NO_BROKER_EPOCH < broker_epoch < known_epoch


def is_lagging(progress: Progress, now_s: float, lag_s_max: float) -> bool:
    """True if the follower has been behind the leader's log end for too long.

    Call ``Progress.mark_if_caught_up`` first, because a follower that has all records is never lagging.
    """
    return now_s - progress.caught_up_s > lag_s_max


def find_lagging(
    replicas: Iterable[int],
    followers: Mapping[int, Progress],
    *,
    leader_end_offset: int,
    now_s: float,
    lag_s_max: float,
) -> tuple[int, ...]:
    """Return the replicas that must leave the ISR or may not join it, because they lag.

    :param followers: progress by replica; the leader is absent.
    """
    lagging_replicas = []
    for replica in replicas:
        progress = followers.get(replica)
        if progress is not None:
            progress.mark_if_caught_up(leader_end_offset, now_s)
            if is_lagging(progress, now_s, lag_s_max):
                lagging_replicas.append(replica)
    return tuple(lagging_replicas)


def union(isr: Collection[int], proposed: Collection[int]) -> tuple[int, ...]:
    """Return the replicas counted while an ISR write is pending (KIP-497).

    Until its outcome is known, a leaving replica may still be elected and a joining one may already be in the ISR.
    """
    return tuple(dict.fromkeys([*isr, *proposed]))


def expected_version(partition_epoch: int) -> int:
    """Return the state znode version that a conditional write expects."""
    return partition_epoch
