"""The leader selectors: who leads, as pure functions of what the controller knows.  They change nothing.

``replicas`` is the assignment in order: its first replica is the preferred leader.  Each selector answers the leader
and the in-sync set that follow, or None where nobody may lead.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple


class Election(NamedTuple):
    """Who leads and who is in sync; ``unclean`` where acknowledged records may be lost by it."""

    leader: int
    isr: tuple[int, ...]
    unclean: bool = False


def elect_new(replicas: Sequence[int], live: Collection[int]) -> Election | None:
    """For a partition that has no state yet: the first live replica leads, all live ones are in sync (all empty)."""
    alive = tuple(replica for replica in replicas if replica in live)
    return Election(alive[0], alive) if alive else None


def elect_offline(
    replicas: Sequence[int],
    isr: Sequence[int],
    live: Collection[int],
    *,
    eligible: Collection[int] = (),
    unclean_allowed: bool = False,
    last: Collection[int] = (),
) -> Election | None:
    """For a partition whose leader is gone: the first live in-sync replica, in the order of the assignment.

    :param eligible: replicas that left the in-sync set while the high watermark stood still (KIP-966): they hold every
        committed record, so they may lead when no member of the in-sync set lives.
    :param unclean_allowed: whether any live replica may lead where nobody else can.
    :param last: live replicas that come after the others, because they have just started.
    """
    candidates = [replica for replica in replicas if replica in live]
    if last:
        candidates.sort(key=last.__contains__)
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
    """The first replica of the assignment, where it lives and is in sync; the in-sync set stays."""
    preferred = replicas[0] if replicas else None
    if preferred is not None and preferred in live and preferred in isr:
        return Election(preferred, tuple(isr))
    return None


def elect_reassigned(target: Sequence[int], isr: Sequence[int], live: Collection[int]) -> Election | None:
    """The first live in-sync replica among those that the partition moves to; the in-sync set stays."""
    for replica in target:
        if replica in live and replica in isr:
            return Election(replica, tuple(isr))
    return None


def elect_for_shutdown(
    replicas: Sequence[int], isr: Sequence[int], live: Collection[int], stopping: Collection[int]
) -> Election | None:
    """The first live in-sync replica that is not shutting down; those that are leave the in-sync set."""
    for replica in replicas:
        if replica in live and replica in isr and replica not in stopping:
            return Election(replica, tuple(r for r in isr if r not in stopping))
    return None
