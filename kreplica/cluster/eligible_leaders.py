"""Who may lead although it left the in-sync set (KIP-966): pure, for the leader and the controller alike.

A replica that leaves an in-sync set which is too small for anything to be committed from then on still holds every
committed record.  It stays eligible until the set is large enough again; until then the high watermark stands still.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence


def required(min_insync_replicas: int, replication_factor: int) -> int:
    """How many replicas must be in sync for anything to be committed.

    A topic with fewer replicas than ``min.insync.replicas`` could otherwise never commit.
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
    """The eligible replicas that go with a new in-sync set.

    :param isr: the in-sync set until now, and ``eligible`` those that were eligible beside it.
    :param in_sync_required: see :func:`required`.
    :param replicas: the assignment; who is not in it any more is not eligible.
    :param unclean: replicas that may have lost the end of their log.
    """
    if len(new_isr) >= in_sync_required:
        return ()
    candidates = dict.fromkeys([*eligible, *isr])
    return tuple(r for r in candidates if r not in new_isr and r in replicas and r not in unclean)
