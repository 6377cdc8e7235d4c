"""Eligible leader replicas (KIP-966): replicas that left the ISR but hold all committed records. Pure functions.

If the departure of a replica makes the ISR too small for commits, the high watermark does not advance until the ISR is
large enough again. Until then, the replica holds every committed record and stays eligible.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence


def required_isr_size(min_insync_replicas: int, replication_factor: int) -> int:
    """Return the minimum ISR size for commits.

    It is limited to the replication factor, because otherwise a topic with fewer replicas could never commit.
    """
    return min(min_insync_replicas, replication_factor)


def eligible_after(
    isr: Collection[int],
    eligible: Sequence[int],
    new_isr: Collection[int],
    *,
    in_sync_required: int,
    replicas: Collection[int],
    unclean: Collection[int] = (),
) -> tuple[int, ...]:
    """Return the eligible leader replicas for a new ISR.

    :param isr: previous ISR.
    :param eligible: previous eligible leader replicas.
    :param in_sync_required: see :func:`required_isr_size`.
    :param replicas: currently assigned replicas; others are not eligible.
    :param unclean: replicas that may have lost the end of their log.
    """
    if len(new_isr) >= in_sync_required:
        return ()
    candidates = dict.fromkeys([*eligible, *isr])
    return tuple(r for r in candidates if r not in new_isr and r in replicas and r not in unclean)
