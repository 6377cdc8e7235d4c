"""Who is in sync: pure, each rule with a name of its own.

A replica joins when nothing that was ever acknowledged is missing from its log: when it has reached the high watermark
*and* the start of the leader's epoch (a new leader's high watermark lags, but what it had when it began may have been
acknowledged by its predecessor), as its own fetches in this epoch say, and while it is the incarnation that said so.
It leaves when it has not been caught up for ``replica.lag.time.max.ms``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from kreplica.model import NO_BROKER_EPOCH
from kreplica.replication.leader.followers import UNKNOWN_OFFSET, Progress


def may_join(progress: Progress, *, high_watermark: int, epoch_start_offset: int) -> bool:
    """Whether a follower may be proposed for the in-sync set; its registration is looked at after this."""
    return (
        has_fetched_in_this_epoch(progress)
        and has_known_incarnation(progress)
        and has_reached_high_watermark(progress.log_end_offset, high_watermark)
        and has_reached_epoch_start(progress.log_end_offset, epoch_start_offset)
    )


def has_fetched_in_this_epoch(progress: Progress) -> bool:
    """Whether anything is known of where its log ends, now that it was truncated to match this leader's."""
    return progress.log_end_offset != UNKNOWN_OFFSET


def has_known_incarnation(progress: Progress) -> bool:
    """Whether it said which incarnation of its broker it is (KIP-903)."""
    return progress.broker_epoch != NO_BROKER_EPOCH


def has_reached_high_watermark(log_end_offset: int, high_watermark: int) -> bool:
    """Whether it has everything that this leader has committed."""
    return log_end_offset >= high_watermark


def has_reached_epoch_start(log_end_offset: int, epoch_start_offset: int) -> bool:
    """Whether it has everything that the leaders before may have committed."""
    return log_end_offset >= epoch_start_offset


def is_current_incarnation(broker_epoch: int, registered_epoch: int | None) -> bool:
    """Whether the broker that fetched is the one that is registered (KIP-903).

    :param registered_epoch: the czxid of its registration; None where it has none: it is down.
    """
    return broker_epoch == registered_epoch


def is_of_earlier_incarnation(broker_epoch: int, known_epoch: int) -> bool:
    """Whether a fetch was sent by a process of that broker before the one that has fetched since (KIP-903)."""
    return NO_BROKER_EPOCH < broker_epoch < known_epoch


def is_lagging(progress: Progress, now_s: float, lag_s_max: float) -> bool:
    """Whether it has gone without being caught up for too long.

    ``Progress.looked_at`` comes first: who has everything is never lagging, however long nothing was heard of it.
    """
    return now_s - progress.caught_up_s > lag_s_max


def lagging(
    replicas: Iterable[int],
    followers: Mapping[int, Progress],
    *,
    leader_end_offset: int,
    now_s: float,
    lag_s_max: float,
) -> tuple[int, ...]:
    """Those that may not be in sync.

    :param followers: of the replicas that are followers; one that is not there is the leader.
    """
    late = []
    for replica in replicas:
        progress = followers.get(replica)
        if progress is not None:
            progress.looked_at(leader_end_offset, now_s)
            if is_lagging(progress, now_s, lag_s_max):
                late.append(replica)
    return tuple(late)


def union(isr: Collection[int], proposed: Collection[int]) -> tuple[int, ...]:
    """Whose log counts while a write of the in-sync set is under way (KIP-497): nobody knows yet which of both holds.

    Who leaves may still be elected, and who joins may be already.
    """
    return tuple(dict.fromkeys([*isr, *proposed]))


def expected_version(partition_epoch: int) -> int:
    """The version of the state znode on which a write of it is conditional: the one that its writer knows."""
    return partition_epoch
