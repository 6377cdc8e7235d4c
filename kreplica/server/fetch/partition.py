"""One partition that a client fetches, and what tells of its changes."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any
from uuid import UUID

from kreplica.model import NO_EPOCH
from kreplica.replication import Partition

NO_DIVERGENCE = {"epoch": -1, "end_offset": -1}
"""What an answer says of a partition whose history agrees with the client's (KIP-595)."""

_in_order = attrgetter("topic_partition")

Key = tuple[str | None, UUID, int]
Row = dict[str, Any]


class Wanted:
    """One partition that a client fetches, and what it was last told of it (inside a session).

    :ivar named: whether the request that is being answered names it: a follower acknowledges by that.
    :ivar may_have_missed: whether the client may have thrown away what it was told last: that is told again, in time.
    :ivar watched: where a change of it is waited for.
    """

    __slots__ = (
        "bytes_max",
        "current_leader_epoch",
        "fetch_offset",
        "last_fetched_epoch",
        "log_start_offset",
        "may_have_missed",
        "named",
        "partition",
        "told",
        "topic",
        "topic_id",
        "watched",
    )

    def __init__(self, topic: str | None, topic_id: UUID, row: Row) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partition: int = row["partition"]
        self.told: tuple[int, int] | None = None
        self.watched: Partition | None = None
        self.may_have_missed = False
        self.ask(row)

    def ask(self, row: Row) -> None:
        """Take over what the client asks now."""
        self.named = True
        self.fetch_offset: int = row["fetch_offset"]
        self.bytes_max: int = row["partition_max_bytes"]
        self.current_leader_epoch: int = row.get("current_leader_epoch", NO_EPOCH)
        self.last_fetched_epoch: int = row.get("last_fetched_epoch", NO_EPOCH)
        self.log_start_offset: int = row.get("log_start_offset", -1)

    @property
    def key(self) -> Key:
        return (self.topic, self.topic_id, self.partition)

    def is_news(self, row: Row) -> bool:
        """Whether an answer inside a session has to name this partition."""
        told = (row["high_watermark"], row["log_start_offset"])
        diverges = row.get("diverging_epoch", NO_DIVERGENCE) is not NO_DIVERGENCE
        news = bool(row["error_code"] or row["records"] or told != self.told or diverges or self.may_have_missed)
        self.may_have_missed = False
        # An error is told again and again, until it is gone and the figures are told too.
        self.told = None if row["error_code"] else told
        return news or row["preferred_read_replica"] >= 0


class Watch:
    """Tells which of some wanted partitions changed since they were read.

    :param changed: called with them; each is told once, and watched no more until it is added again.
    :ivar is_awaited: asked of each, while somebody waits: a change that is of no use to him is not told of.
    """

    __slots__ = ("_changed", "_wanted", "is_awaited")

    def __init__(self, changed: Callable[[list[Wanted]], object]) -> None:
        self._changed = changed
        self._wanted: dict[Partition, list[Wanted]] = {}
        self.is_awaited: Callable[[Wanted], bool] | None = None

    def add(self, wanted: Wanted, partition: Partition) -> None:
        """Tell when this one changes."""
        if wanted.watched is partition:
            return
        if wanted.watched is not None:
            self.remove(wanted)
        wanted.watched = partition
        self._wanted.setdefault(partition, []).append(wanted)
        partition.watchers[self] = None

    def remove(self, wanted: Wanted) -> None:
        """Tell of this one no more."""
        partition, wanted.watched = wanted.watched, None
        if partition is not None:
            others = self._wanted[partition]
            others.remove(wanted)
            if not others:
                del self._wanted[partition]
                partition.watchers.pop(self, None)

    def clear(self) -> None:
        """Tell of none any more."""
        for partition, wanted in self._wanted.items():
            partition.watchers.pop(self, None)
            for one in wanted:
                one.watched = None
        self._wanted.clear()

    def changed(self, partitions: set[Partition]) -> None:
        """Called by ``Purgatory``."""
        told: list[Wanted] = []
        is_awaited = self.is_awaited
        for partition in sorted(partitions & self._wanted.keys(), key=_in_order):
            if is_awaited is None or any(map(is_awaited, self._wanted[partition])):
                partition.watchers.pop(self, None)
                told += self._wanted.pop(partition)
        if told:
            for wanted in told:
                wanted.watched = None
            self._changed(told)
