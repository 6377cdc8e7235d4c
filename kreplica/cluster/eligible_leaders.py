"""Eligible leader replicas (KIP-966): replicas that left the ISR but still hold all committed records. Pure functions.

A replica whose departure makes the ISR too small for commits holds every committed record. It stays eligible until the
ISR is large enough again; until then the high watermark does not advance.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence


def required_isr_size(min_insync_replicas: int, replication_factor: int) -> int:
    """Return the minimum ISR size for commits.

    Limited by the replication factor, because a topic with fewer replicas could otherwise never commit.
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
    :param replicas: current assignment; other replicas are not eligible.
    :param unclean: replicas that may have lost the end of their log.
    """
    if len(new_isr) >= in_sync_required:
        return ()
    candidates = dict.fromkeys([*eligible, *isr])
    return tuple(r for r in candidates if r not in new_isr and r in replicas and r not in unclean)
