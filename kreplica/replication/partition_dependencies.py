"""What partitions need from others: the settings of their topics, and who fetches for those that follow."""

from __future__ import annotations

from typing import Protocol

from kreplica.replication.partition import Partition
from kreplica.storage.log_config import LogConfig


class PartitionSettings(Protocol):
    """What a topic's settings say to its partitions."""

    @property
    def log(self) -> LogConfig: ...

    @property
    def min_insync_replicas(self) -> int: ...


class Fetching(Protocol):
    """What makes this broker a follower: its fetchers."""

    def start(self, partition: Partition) -> None:
        """Fetch a partition from the leader that its ``leadership`` names; -1 is nobody."""

    def stop(self, partition: Partition) -> None:
        """Change nothing of it any more; one that is not fetched is fine."""


class _NotFetching:
    """For a broker that is alone."""

    def start(self, partition: Partition) -> None:
        pass

    def stop(self, partition: Partition) -> None:
        pass


NOT_FETCHING = _NotFetching()
