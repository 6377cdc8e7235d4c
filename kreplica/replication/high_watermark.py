"""The rule for the high watermark: what is below it is committed, and only that is shown to consumers.

It is the smallest log end among the replicas that count, and it never goes back while one leader leads.  Which replicas
count: the in-sync set together with those whose joining is being written (KIP-497's idea, so that leader and controller
cannot disagree about a record that is acknowledged).  It stands still while the in-sync set is smaller than the topic
asks for (KIP-966): a set that shrank to one must not commit alone what dies with it.
"""

from __future__ import annotations

from collections.abc import Iterable


def advance(current: int, log_end_offsets: Iterable[int], *, in_sync_count: int, in_sync_required: int) -> int:
    """The high watermark that follows.

    :param current: what it is now.
    :param log_end_offsets: of each replica that counts, the leader included; at least one.
    :param in_sync_count: the size of the committed in-sync set.
    :param in_sync_required: see :func:`required`.
    """
    if in_sync_count < in_sync_required:
        return current
    return max(current, min(log_end_offsets))


def required(min_insync_replicas: int, replication_factor: int) -> int:
    """How many replicas must be in sync for anything to be committed.

    A topic with fewer replicas than ``min.insync.replicas`` could otherwise never commit.
    """
    return min(min_insync_replicas, replication_factor)
