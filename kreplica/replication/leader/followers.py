"""What a leader knows of its followers: only what their fetches said, and only in its own leader epoch."""

from __future__ import annotations

from collections.abc import Mapping

from kreplica.model import NO_BROKER_EPOCH
from kreplica.replication.leadership import Leadership

UNKNOWN_OFFSET = -1


class Progress:
    """One follower's, made when a leader epoch begins.

    :ivar leader_epoch: the epoch in which all of this was learnt.
    :ivar broker_epoch: of the incarnation that fetched last; ``NO_BROKER_EPOCH`` before, or where it does not say.
    :ivar log_end_offset: it has everything below, for it asked for this; ``UNKNOWN_OFFSET`` before its first fetch.
    :ivar log_start_offset: where its log starts; ``UNKNOWN_OFFSET`` where it does not say.
    :ivar sent_offset: from where on it was last sent records.
    :ivar caught_up_s: when it last had everything that the leader had, on the leader's clock.
    """

    __slots__ = (
        "_leader_end_offset",
        "_seen_s",
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
        self._seen_s = caught_up_s

    def fetched(self, broker_epoch: int, fetch_offset: int, leader_end_offset: int, now_s: float) -> None:
        """It asked for an offset, so it has everything before it.

        Under load a fetch hardly ever asks for the leader's end, for the leader goes on meanwhile.  So whoever asks for
        what was the end at its last fetch was caught up then.
        """
        if fetch_offset >= leader_end_offset:
            self.caught_up_s = now_s
        elif self._leader_end_offset != UNKNOWN_OFFSET and fetch_offset >= self._leader_end_offset:
            self.caught_up_s = max(self.caught_up_s, self._seen_s)
        self.broker_epoch = broker_epoch
        self.log_end_offset = fetch_offset
        self._leader_end_offset = leader_end_offset
        self._seen_s = now_s

    def looked_at(self, leader_end_offset: int, now_s: float) -> None:
        """Time passes also for who has everything and is not heard of, because there is nothing to say."""
        if self.log_end_offset >= leader_end_offset:
            self.caught_up_s = now_s


def in_epoch(known: Mapping[int, Progress], leadership: Leadership, own_id: int, now_s: float) -> dict[int, Progress]:
    """The followers of a leader whose epoch begins, or whose replicas change within its epoch.

    :param known: what was known; of use only where it was learnt in this very epoch.
    """
    followers = {}
    for replica in leadership.replicas:
        if replica != own_id:
            progress = known.get(replica)
            if progress is None or not is_of_epoch(progress.leader_epoch, leadership.leader_epoch):
                progress = Progress(leadership.leader_epoch, now_s)
            followers[replica] = progress
    return followers


def is_of_epoch(learnt_in: int, leader_epoch: int) -> bool:
    """Whether what was learnt in one leader epoch holds in another: logs were truncated in between."""
    return learnt_in == leader_epoch
