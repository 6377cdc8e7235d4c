"""Rules for truncating a follower's log to a prefix of its leader's log. Pure functions.

Offset and leader epoch identify a record: an epoch has one leader, so logs that agree on both for one record agree on
all earlier records. Each fetch contains the epoch of the follower's last record. If the leader's history differs, the
leader returns its largest epoch up to the follower's epoch, and the end of that epoch (KIP-101, KIP-595). Records after
that end are certainly not in the leader's log; the next fetch checks the earlier ones (KIP-279). Truncation therefore
ends at the longest common prefix and never removes a record that both logs have. ``follower_state``
applies these rules.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from kreplica.model import NO_EPOCH
from kreplica.storage.formats.leader_epochs import EpochEntry

UNKNOWN_OFFSET = -1


def truncation_offset(
    epoch: int, end_offset: int, own_epochs: Sequence[EpochEntry], *, log_end_offset: int, high_watermark: int
) -> int:
    """Return the new log end offset after the leader returned a diverging epoch.

    :param epoch: the leader's largest epoch that is not above the follower's last one; -1 if it has none.
    :param end_offset: end of that epoch in the leader's log; -1 if unknown.
    :param own_epochs: the follower's epochs, oldest first.
    :param high_watermark: the follower's high watermark; limits the result if the leader returned no end offset.
    :return: at most ``log_end_offset``.
    """
    if end_offset == UNKNOWN_OFFSET:
        return min(high_watermark, log_end_offset)
    # The leader has no epoch between ``epoch`` and our last one: records of later epochs exist only here.
    newer = bisect_right(own_epochs, epoch, key=lambda entry: entry.epoch)
    own_end = own_epochs[newer].start_offset if newer < len(own_epochs) else log_end_offset
    return min(own_end, end_offset, log_end_offset)


def end_of_known_history(own_epochs: Sequence[EpochEntry], *, log_end_offset: int, high_watermark: int) -> int:
    """Return the log end offset for the first fetch from a new leader; it is unchanged if the last epoch is known.

    A log without epochs cannot be compared, so only committed records are kept.
    """
    if own_epochs and own_epochs[-1].epoch != NO_EPOCH:
        return log_end_offset
    return min(high_watermark, log_end_offset)


def end_of_possible_history(own_epochs: Sequence[EpochEntry], *, leader_epoch: int, log_end_offset: int) -> int:
    """Return the log end offset without records of epochs above the current leader epoch.

    Only damage produces such records: a batch's epoch is not covered by its checksum. No leader could return the end
    of such an epoch.

    :param own_epochs: the follower's epochs, oldest first.
    :param leader_epoch: epoch of the current leader, which cannot have later records.
    """
    possible = bisect_right(own_epochs, leader_epoch, key=lambda entry: entry.epoch)
    return own_epochs[possible].start_offset if possible < len(own_epochs) else log_end_offset


class Restart(NamedTuple):
    """New position of a follower whose offset is outside the leader's log.

    :param offset: new log end offset.
    :param emptied: True if the whole log is removed, because it would otherwise have a gap before ``offset``.
    """

    offset: int
    emptied: bool


def restart_out_of_range(log_end_offset: int, *, leader_start_offset: int, leader_end_offset: int) -> Restart | None:
    """Return the restart position after OFFSET_OUT_OF_RANGE for the follower's log end.

    :return: None if the offset is now within the leader's log.
    """
    if leader_end_offset < log_end_offset:
        # Only an unclean election can elect a replica with a shorter log.
        return Restart(leader_end_offset, emptied=False)
    if leader_start_offset > log_end_offset:
        return Restart(leader_start_offset, emptied=True)
    return None


def loses_committed_records(cut_offset: int, high_watermark: int) -> bool:
    """True if the truncation removes committed records, which happens only after an unclean election."""
    return cut_offset < high_watermark
