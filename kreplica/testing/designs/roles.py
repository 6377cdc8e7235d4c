"""Interface between designs and brokers: the operations of a broker on its replicas.

A design chooses leaders (``race``, ``leader_coordinated``, ``controller_design``) and calls these operations.  In the
product, the controller sends them as LeaderAndIsr and StopReplica to ``kreplica.replication.partitions``.
"""

from __future__ import annotations

from typing import Protocol

from kreplica.testing.designs.layout import Partition


class Roles(Protocol):
    """Operations of a broker on one of its replicas."""

    def lead(self, partition: Partition, epoch: int) -> None:
        """Accept writes."""

    def follow(self, partition: Partition, leader: int, epoch: int) -> None:
        """Truncate the log and fetch from the leader."""

    def stop(self, partition: Partition) -> None:
        """Stop leading or fetching, and keep the files."""

    def delete(self, partition: Partition) -> None:
        """Stop and delete the files."""
