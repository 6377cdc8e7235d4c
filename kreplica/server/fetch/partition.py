"""Partition of a fetch, and notification of its changes."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any
from uuid import UUID

from kreplica.model import NO_EPOCH
from kreplica.replication import Partition

NO_DIVERGENCE = {"epoch": -1, "end_offset": -1}
"""Value of ``diverging_epoch`` if the logs of client and leader agree (KIP-595)."""

_by_partition = attrgetter("topic_partition")

Key = tuple[str | None, UUID, int]
Row = dict[str, Any]


class FetchPartition:
    """Partition that a client fetches, with the last values sent to it in the session.

    :ivar is_requested: the current request contains the partition; a follower thereby acknowledges all records before
        the fetch offset.
    :ivar may_have_missed: the client may have discarded the last response, so the values are sent again.
    :ivar sent: high watermark and log start offset sent last; None if they must be sent.
    :ivar watched: partition whose changes are watched, or None.
    """

    __slots__ = (
        "bytes_max",
        "current_leader_epoch",
        "fetch_offset",
        "is_requested",
        "last_fetched_epoch",
        "log_start_offset",
        "may_have_missed",
        "partition",
        "sent",
        "topic",
        "topic_id",
        "watched",
    )

    def __init__(self, topic: str | None, topic_id: UUID, row: Row) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partition: int = row["partition"]
        self.sent: tuple[int, int] | None = None
        self.watched: Partition | None = None
        self.may_have_missed = False
        self.update(row)

    def update(self, row: Row) -> None:
        """Update the fields from a row of a request."""
        self.is_requested = True
        self.fetch_offset: int = row["fetch_offset"]
        self.bytes_max: int = row["partition_max_bytes"]
        self.current_leader_epoch: int = row.get("current_leader_epoch", NO_EPOCH)
        self.last_fetched_epoch: int = row.get("last_fetched_epoch", NO_EPOCH)
        self.log_start_offset: int = row.get("log_start_offset", -1)

    @property
    def key(self) -> Key:
        return (self.topic, self.topic_id, self.partition)

    def must_send(self, row: Row) -> bool:
        """Return whether a session's response must include this partition, and record the values sent."""
        values = (row["high_watermark"], row["log_start_offset"])
        diverges = row.get("diverging_epoch", NO_DIVERGENCE) is not NO_DIVERGENCE
        has_news = bool(row["error_code"] or row["records"] or values != self.sent or diverges or self.may_have_missed)
        self.may_have_missed = False
        # An error is sent in each response; the values are sent once there is no error.
        self.sent = None if row["error_code"] else values
        return has_news or row["preferred_read_replica"] >= 0


class Watch:
    """Reports changes of partitions since they were read.

    :param changed: called with changed partitions; each is reported once, until it is added again.
    :ivar is_awaited: filter while a fetch waits; changes for which it returns false are not reported.
    """

    __slots__ = ("_changed", "_fetch_partitions", "is_awaited")

    def __init__(self, changed: Callable[[list[FetchPartition]], object]) -> None:
        self._changed = changed
        self._fetch_partitions: dict[Partition, list[FetchPartition]] = {}
        self.is_awaited: Callable[[FetchPartition], bool] | None = None

    def add(self, fetch_partition: FetchPartition, partition: Partition) -> None:
        """Watch a partition."""
        if fetch_partition.watched is partition:
            return
        if fetch_partition.watched is not None:
            self.remove(fetch_partition)
        fetch_partition.watched = partition
        self._fetch_partitions.setdefault(partition, []).append(fetch_partition)
        if not partition.watchers:
            partition.watchers = {}
        partition.watchers[self] = None

    def remove(self, fetch_partition: FetchPartition) -> None:
        """Stop watching a partition."""
        partition, fetch_partition.watched = fetch_partition.watched, None
        if partition is not None:
            fetch_partitions = self._fetch_partitions[partition]
            fetch_partitions.remove(fetch_partition)
            if not fetch_partitions:
                del self._fetch_partitions[partition]
                partition.watchers.pop(self, None)

    def clear(self) -> None:
        """Stop watching all partitions."""
        for partition, fetch_partitions in self._fetch_partitions.items():
            partition.watchers.pop(self, None)
            for each in fetch_partitions:
                each.watched = None
        self._fetch_partitions.clear()

    def changed(self, partitions: set[Partition]) -> None:
        """Report changed partitions; called by ``Purgatory``."""
        changed: list[FetchPartition] = []
        is_awaited = self.is_awaited
        for partition in sorted(partitions & self._fetch_partitions.keys(), key=_by_partition):
            if is_awaited is None or any(map(is_awaited, self._fetch_partitions[partition])):
                partition.watchers.pop(self, None)
                changed += self._fetch_partitions.pop(partition)
        if changed:
            for fetch_partition in changed:
                fetch_partition.watched = None
            self._changed(changed)
