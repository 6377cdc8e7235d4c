"""Leader selectors: pure functions that choose the leader of a partition.

``replicas`` is the assignment in order; its first replica is the preferred leader.  Each selector returns the leader
and the resulting ISR, or None if no replica can lead.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple


class Election(NamedTuple):
    """Result of an election; ``unclean`` if it may lose acknowledged records."""

    leader: int
    isr: tuple[int, ...]
    unclean: bool = False


def elect_new(replicas: Sequence[int], live: Collection[int]) -> Election | None:
    """Elect the first live replica of a new partition; all live replicas are in sync, because all logs are empty."""
    alive = tuple(replica for replica in replicas if replica in live)
    return Election(alive[0], alive) if alive else None


def elect_offline(
    replicas: Sequence[int],
    isr: Sequence[int],
    live: Collection[int],
    *,
    eligible: Collection[int] = (),
    unclean_allowed: bool = False,
    restarted: Collection[int] = (),
) -> Election | None:
    """Elect a replacement for a lost leader: the first live in-sync replica in the order of the assignment.

    :param eligible: replicas that left the ISR while the high watermark did not advance (KIP-966).  They have
        every committed record, so they can lead if no in-sync replica is live.
    :param unclean_allowed: True if any live replica can lead as a last resort.
    :param restarted: live replicas whose brokers have just restarted; elected only if no other replica can lead.
    """
    candidates = [replica for replica in replicas if replica in live]
    if restarted:
        candidates.sort(key=restarted.__contains__)
    for replica in candidates:
        if replica in isr:
            return Election(replica, tuple(r for r in isr if r in live))
    for replica in candidates:
        if replica in eligible:
            return Election(replica, (replica,))
    if unclean_allowed and candidates:
        return Election(candidates[0], (candidates[0],), unclean=True)
    return None


def elect_preferred(replicas: Sequence[int], isr: Sequence[int], live: Collection[int]) -> Election | None:
    """Elect the first replica of the assignment if it is live and in sync; the ISR is unchanged."""
    preferred = replicas[0] if replicas else None
    if preferred is not None and preferred in live and preferred in isr:
        return Election(preferred, tuple(isr))
    return None


def elect_reassigned(target: Sequence[int], isr: Sequence[int], live: Collection[int]) -> Election | None:
    """Elect the first live in-sync replica of a reassignment's target; the ISR is unchanged."""
    for replica in target:
        if replica in live and replica in isr:
            return Election(replica, tuple(isr))
    return None


def elect_for_shutdown(
    replicas: Sequence[int], isr: Sequence[int], live: Collection[int], stopping: Collection[int]
) -> Election | None:
    """Elect the first live in-sync replica that is not shutting down; replicas that are shutting down leave the ISR."""
    for replica in replicas:
        if replica in live and replica in isr and replica not in stopping:
            return Election(replica, tuple(r for r in isr if r not in stopping))
    return None
