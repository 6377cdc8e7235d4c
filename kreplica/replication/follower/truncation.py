"""Where a follower cuts its log so that it is a prefix of its leader's.  Pure.

A record is known by its offset and the leader epoch that wrote it: one epoch has one leader, so two logs that agree in
both agree in everything before.  A follower names with each fetch the epoch of its last record, and a leader whose
history differs answers with the largest of its own epochs up to that one and where it ended (KIP-101, KIP-595).  What
is cut then is not in the leader's log for certain; whether what is left is, the next fetch asks (KIP-279).  So the cuts
end at the longest common prefix, and never take a record that both have.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from kreplica.model import NO_EPOCH
from kreplica.storage.formats.leader_epochs import EpochEntry

UNKNOWN_OFFSET = -1


def cut_at_divergence(
    epoch: int, end_offset: int, own_epochs: Sequence[EpochEntry], *, log_end_offset: int, high_watermark: int
) -> int:
    """The new log end after a leader answered with a diverging epoch.

    :param epoch: the leader's largest epoch that is not above the follower's last; -1 where it knows none.
    :param end_offset: where that epoch ended in the leader's log; -1 where it does not say.
    :param own_epochs: the follower's, oldest first.
    :param high_watermark: the follower's: all that is left to go by where the leader says nothing.
    :return: at most ``log_end_offset``.
    """
    if end_offset == UNKNOWN_OFFSET:
        return min(high_watermark, log_end_offset)
    # The leader has no epoch between the one it names and our last: whatever we have of those is ours alone.
    newer = bisect_right(own_epochs, epoch, key=lambda entry: entry.epoch)
    own_end = own_epochs[newer].start_offset if newer < len(own_epochs) else log_end_offset
    return min(own_end, end_offset, log_end_offset)


def cut_of_unknown_history(own_epochs: Sequence[EpochEntry], *, log_end_offset: int, high_watermark: int) -> int:
    """Where a follower cuts before its first fetch from a new leader: nowhere, where it can name its last epoch.

    A log without epochs cannot be compared; what was committed is all of it that every leader has.
    """
    if own_epochs and own_epochs[-1].epoch != NO_EPOCH:
        return log_end_offset
    return min(high_watermark, log_end_offset)


def cut_of_impossible_history(own_epochs: Sequence[EpochEntry], *, leader_epoch: int, log_end_offset: int) -> int:
    """Where a follower cuts because no leader can have written what follows: nowhere, in a log that is not damaged.

    The epoch of a batch is not in its checksum; a bit that flips there can put it ahead of every leader to come, and
    none could say where that epoch ended.

    :param own_epochs: the follower's, oldest first.
    :param leader_epoch: that of the leader which it follows now; whatever it has was written in this one or before.
    """
    possible = bisect_right(own_epochs, leader_epoch, key=lambda entry: entry.epoch)
    return own_epochs[possible].start_offset if possible < len(own_epochs) else log_end_offset


class Restart(NamedTuple):
    """Where a follower goes on whose offset its leader does not have.

    :param offset: its log end from then on.
    :param emptied: whether nothing of its log is left: there would be a hole before ``offset`` otherwise.
    """

    offset: int
    emptied: bool


def restart_out_of_range(log_end_offset: int, *, leader_start_offset: int, leader_end_offset: int) -> Restart | None:
    """What to do where the leader answered OFFSET_OUT_OF_RANGE to the follower's log end.

    :return: None where it lies within the leader's log by now.
    """
    if leader_end_offset < log_end_offset:
        # Only an unclean election makes a leader of a replica that has less.
        return Restart(leader_end_offset, emptied=False)
    if leader_start_offset > log_end_offset:
        return Restart(leader_start_offset, emptied=True)
    return None


def loses_committed_records(cut_offset: int, high_watermark: int) -> bool:
    """Whether a cut takes what was committed: nothing but an unclean election may lead to one."""
    return cut_offset < high_watermark
