"""Options of a consumer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from kreplica.client.group.options import GroupOptions
from kreplica.client_core.fetched_batches import Isolation


class OffsetReset(Enum):
    """Position to start from if the group has no committed offset or the offset is out of range."""

    EARLIEST = "earliest"
    LATEST = "latest"
    FAIL = "fail"


class Concurrency(Enum):
    """Number of partitions that ``Consumer.run`` processes concurrently; an int is also accepted."""

    SERIAL = "serial"
    """One partition."""

    PARTITION = "partition"
    """All partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """Options of a consumer; times in seconds, sizes in bytes.

    :param group_id: group that stores the offsets and, after ``subscribe``, assigns the partitions.
    :param group: further options of the group membership.
    :param rack_id: rack of the consumer, for fetching from a nearby replica if the leader names one (KIP-392).
    :param offset_reset: position if there is no committed offset, the offset is out of range, or the log was truncated.
    :param auto_commit_s: interval between automatic commits of processed records; requires a group.  None disables
        automatic commits.
    :param fetch_wait_s: time for which a broker waits for ``fetch_size_min`` bytes.
    :param fetch_size_max: maximum size of one response; the first batch is returned even if it is larger.
    :param partition_size_max: maximum size of one partition's records in a response.
    :param buffer_size_max: maximum size of all fetched and requested data before decompression.
    :param patience_s: a partition fails if it cannot be fetched for this time; None retries indefinitely.
    :param pattern_refresh_s: interval between lookups of the topics that match a pattern.
    :param close_timeout_s: time for which ``close`` waits for handlers before it cancels them.
    :raise ValueError: options contradict each other.
    """

    group_id: str | None = None
    group: GroupOptions | None = None
    rack_id: str = ""
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    offset_reset: OffsetReset | str = OffsetReset.EARLIEST
    auto_commit_s: float | None = 5.0
    fetch_wait_s: float = 0.5
    fetch_size_min: int = 1
    fetch_size_max: int = 16 << 20
    partition_size_max: int = 1 << 20
    buffer_size_max: int = 64 << 20
    patience_s: float | None = None
    pattern_refresh_s: float = 30.0
    close_timeout_s: float = 30.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "offset_reset", OffsetReset(self.offset_reset))
        group = self.group
        if group is None and self.group_id is not None:
            group = GroupOptions(group_id=self.group_id)
        if group is not None:
            if self.group_id not in (None, group.group_id):
                raise ValueError(f"group_id {self.group_id!r} differs from group.group_id {group.group_id!r}")
            if self.rack_id and group.rack is None:
                group = replace(group, rack=self.rack_id)
            object.__setattr__(self, "group", group)
            object.__setattr__(self, "group_id", group.group_id)
        if self.auto_commit_s is not None and self.auto_commit_s <= 0:
            raise ValueError("auto_commit_s must be greater than 0 or None")
        if min(self.fetch_size_max, self.partition_size_max, self.buffer_size_max) <= 0:
            raise ValueError("sizes must be greater than 0")
