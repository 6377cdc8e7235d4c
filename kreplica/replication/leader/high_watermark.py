"""Rule for the high watermark, below which all records are committed and visible to consumers.

It is the smallest log end offset among the counted replicas (``isr_membership.union``) and never decreases under one
leader. It does not advance while the ISR is smaller than the topic requires, or while replicas outside the ISR are
eligible to lead (KIP-966): an ISR that shrank to one must not commit records that would be lost with it, and an
eligible replica must not miss committed records. ``LeaderState.advance`` applies these rules, and
also requires a valid lease.
"""

from __future__ import annotations

from collections.abc import Iterable


def smallest_log_end_offset(own_end_offset: int, follower_end_offsets: Iterable[int]) -> int:
    """Return the offset below which every counted replica has all records."""
    return min(own_end_offset, min(follower_end_offsets, default=own_end_offset))


def may_advance(in_sync_count: int, in_sync_required: int, eligible_count: int) -> bool:
    """True if the ISR is large enough and no replica outside it is eligible to lead.

    :param in_sync_count: size of the committed ISR.
    :param in_sync_required: see :func:`kreplica.cluster.eligible_leaders.required_isr_size`.
    :param eligible_count: number of replicas outside the ISR that are eligible to lead.
    """
    return in_sync_count >= in_sync_required and not eligible_count
