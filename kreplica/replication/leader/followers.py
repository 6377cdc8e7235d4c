"""A leader's view of its followers, derived only from their fetches in the current leader epoch."""

from __future__ import annotations

from collections.abc import Mapping

from kreplica.model import NO_BROKER_EPOCH
from kreplica.replication.leadership import Leadership
from kreplica.replication.role import UNKNOWN_OFFSET
from kreplica.runtime.empty_dict import EMPTY_DICT


class Progress:
    """Fetch progress of one follower in one leader epoch.

    :ivar leader_epoch: the epoch in which this state was collected.
    :ivar broker_epoch: broker epoch of the last fetch; ``NO_BROKER_EPOCH`` before the first fetch, or if the fetch
        contained none.
    :ivar log_end_offset: offset of the last fetch, so the follower has all records below it; ``UNKNOWN_OFFSET`` before
        the first fetch.
    :ivar log_start_offset: start of the follower's log; ``UNKNOWN_OFFSET`` if the follower did not send it.
    :ivar sent_offset: first offset of the last response that contained records.
    :ivar caught_up_s: last time at which the follower had all of the leader's records, by the leader's clock.
    """

    __slots__ = (
        "_fetched_s",
        "_leader_end_offset",
        "broker_epoch",
        "caught_up_s",
        "leader_epoch",
        "log_end_offset",
        "log_start_offset",
        "sent_offset",
    )

    def __init__(self, leader_epoch: int, caught_up_s: float) -> None:
        self.leader_epoch = leader_epoch
        self.broker_epoch = NO_BROKER_EPOCH
        self.log_end_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        self.sent_offset = UNKNOWN_OFFSET
        self.caught_up_s = caught_up_s
        self._leader_end_offset = UNKNOWN_OFFSET
        self._fetched_s = caught_up_s

    def fetched(self, broker_epoch: int, fetch_offset: int, leader_end_offset: int, now_s: float) -> None:
        """Record a fetch; the follower has all records below its offset.

        Under load a fetch rarely requests the leader's log end, because records keep arriving. A follower that requests
        the log end of its previous fetch was caught up at that time.
        """
        if fetch_offset >= leader_end_offset:
            self.caught_up_s = now_s
        elif self._leader_end_offset != UNKNOWN_OFFSET and fetch_offset >= self._leader_end_offset:
            self.caught_up_s = max(self.caught_up_s, self._fetched_s)
        self.broker_epoch = broker_epoch
        self.log_end_offset = fetch_offset
        self._leader_end_offset = leader_end_offset
        self._fetched_s = now_s

    def mark_if_caught_up(self, leader_end_offset: int, now_s: float) -> None:
        """Treat a follower that has all records as caught up even if it sends no fetch."""
        if self.log_end_offset >= leader_end_offset:
            self.caught_up_s = now_s


def followers_in_epoch(
    earlier: Mapping[int, Progress], leadership: Leadership, own_id: int, now_s: float
) -> Mapping[int, Progress]:
    """Return the followers at the start of a leader epoch, or after a change of the replicas within it.

    :param earlier: earlier progress; used only if it was collected in the same epoch.
    """
    if leadership.replicas == (own_id,):
        return EMPTY_DICT
    followers = {}
    for replica in leadership.replicas:
        if replica != own_id:
            progress = earlier.get(replica)
            if progress is None or not is_of_epoch(progress.leader_epoch, leadership.leader_epoch):
                progress = Progress(leadership.leader_epoch, now_s)
            followers[replica] = progress
    return followers


def is_of_epoch(progress_epoch: int, leader_epoch: int) -> bool:
    """True if the state belongs to this leader epoch; logs may be truncated between epochs."""
    return progress_epoch == leader_epoch
