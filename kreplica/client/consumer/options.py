"""How a consumer reads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from kreplica.client.group.options import GroupOptions
from kreplica.client_core.fetched_batches import Isolation


class OffsetReset(Enum):
    """Where to read on in a partition for which the group has no offset, or of which the offset is gone."""

    EARLIEST = "earliest"
    LATEST = "latest"
    FAIL = "fail"


class Concurrency(Enum):
    """How many partitions ``Consumer.run`` works on at the same time; a number may be given as well."""

    SERIAL = "serial"
    """One."""

    PARTITION = "partition"
    """All that there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """How a consumer reads; seconds and bytes.

    :param group_id: of whom it reads, where its offsets are kept; ``group`` says more of how it takes part.
    :param rack_id: where the consumer is: it reads from a replica nearby, where the leader names one (KIP-392).
    :param offset_reset: where to read on without an offset, and where an offset is out of range or its log was cut.
    :param auto_commit_s: so often the offsets of what was gone past are committed, where there is a group; None: never.
    :param fetch_wait_s: so long a broker waits for ``fetch_size_min`` bytes.
    :param fetch_size_max: of one answer; ``partition_size_max`` of one partition in it.  A batch that is larger comes
        nevertheless.
    :param buffer_size_max: of all that was fetched, and of what was asked for, together; decompressed it may be more.
    :param patience_s: a partition that cannot be read for so long fails; None: it is tried for ever.
    :param pattern_refresh_s: so often the cluster is asked for topics that match a pattern.
    :param close_timeout_s: so long ``close`` waits for handlers that are under way; then they are cancelled.
    :raise ValueError: the options contradict themselves.
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
                raise ValueError(f"two groups: {self.group_id!r} and {group.group_id!r}")
            if self.rack_id and group.rack is None:
                group = replace(group, rack=self.rack_id)
            object.__setattr__(self, "group", group)
            object.__setattr__(self, "group_id", group.group_id)
        if self.auto_commit_s is not None and self.auto_commit_s <= 0:
            raise ValueError("auto_commit_s is more than 0, or None")
        if min(self.fetch_size_max, self.partition_size_max, self.buffer_size_max) <= 0:
            raise ValueError("sizes are more than 0")
