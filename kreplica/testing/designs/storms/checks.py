"""Checkers of a storm: no acknowledged record is lost, and no two leaders acknowledge records."""

from __future__ import annotations

from kreplica.testing.designs.storms.replica import Entry, StormReplica

LOST = "acknowledged record lost"
TWO_LEADERS = "two leaders acknowledge"


class Violation(Exception):
    """A checker found a violation.

    :ivar kind: ``LOST`` or ``TWO_LEADERS``.
    """

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind


class AcknowledgedRecords:
    """All records that a leader acknowledged: those below its high watermark."""

    def __init__(self) -> None:
        self._entries: dict[int, Entry] = {}
        self._newest: StormReplica | None = None
        self._newest_epoch = 0

    def acknowledged(self, leader: StormReplica, start: int) -> None:
        """Check records that a leader acknowledges, from this offset up to its high watermark.

        :raise Violation: a newer leader accepts writes but lacks them.
        """
        for offset in range(start, leader.high_watermark):
            entry = leader.log[offset]
            newest = self._newest
            if newest is not None and leader.epoch < self._newest_epoch and newest.log[offset : offset + 1] != [entry]:
                raise Violation(
                    TWO_LEADERS,
                    f"broker {leader.broker_id} acknowledges record {entry[1]} at offset {offset}, "
                    f"after broker {newest.broker_id} became the leader without it",
                )
            self._entries[offset] = entry

    def opened(self, leader: StormReplica) -> None:
        """Check a new leader that accepts writes.

        :raise Violation: the leader lacks acknowledged records.
        """
        for offset, entry in self._entries.items():
            if leader.log[offset : offset + 1] != [entry]:
                raise Violation(
                    LOST, f"broker {leader.broker_id} leads without record {entry[1]}, acknowledged at offset {offset}"
                )
        if leader.epoch >= self._newest_epoch:
            self._newest, self._newest_epoch = leader, leader.epoch
