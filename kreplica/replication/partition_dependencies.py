"""Interfaces that partitions need: topic settings and follower fetchers."""

from __future__ import annotations

from typing import Protocol

from kreplica.replication.partition import Partition
from kreplica.storage.log_config import LogConfig


class PartitionSettings(Protocol):
    """Topic settings that apply to its partitions."""

    @property
    def log(self) -> LogConfig: ...

    @property
    def min_insync_replicas(self) -> int: ...


class Fetching(Protocol):
    """Fetchers that replicate the partitions that this broker follows."""

    def start(self, partition: Partition) -> None:
        """Fetch a partition from the leader in its ``leadership``; -1 means that there is no leader."""

    def stop(self, partition: Partition) -> None:
        """Stop fetching a partition; does nothing if it is not fetched."""


class _NotFetching:
    """Null implementation of ``Fetching``, for a broker without peers."""

    def start(self, partition: Partition) -> None:
        pass

    def stop(self, partition: Partition) -> None:
        pass


NOT_FETCHING = _NotFetching()
