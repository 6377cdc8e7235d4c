"""The rule for the high watermark: what is below it is committed, and only that is shown to consumers.

It is the smallest log end among the replicas that count, and it never goes back while one leader leads.  Which replicas
count: ``in_sync.union``.  It stands still while the in-sync set is smaller than the topic asks for, and while there are
replicas outside of it that may lead (KIP-966): a set that shrank to one must not commit alone what dies with it, and
who is promised that it may lead must not miss what is committed.
"""

from __future__ import annotations

from collections.abc import Iterable


def held_by_all(own_end_offset: int, follower_end_offsets: Iterable[int]) -> int:
    """Up to where every replica that counts has everything."""
    return min(own_end_offset, min(follower_end_offsets, default=own_end_offset))


def may_advance(in_sync_count: int, in_sync_required: int, eligible_count: int) -> bool:
    """Whether anything may be committed at all.

    :param in_sync_count: the size of the committed in-sync set.
    :param in_sync_required: see :func:`kreplica.cluster.eligible_leaders.required`.
    :param eligible_count: of the replicas outside of it that may lead.
    """
    return in_sync_count >= in_sync_required and not eligible_count
