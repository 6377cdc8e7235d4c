"""Partitions of a broker: roles, replication between leader and followers, and the high watermark.

The controller decides who leads; this package applies its commands. ``partitions`` holds all partitions of a broker,
``partition`` one of them by its role, ``replica`` and ``writable_replica`` its log. ``leader`` has the leader role
(ISR, high watermark, lease), ``follower`` the follower role (fetchers, truncation), ``purgatory`` the delayed
operations.
"""

from kreplica.replication.fencing import ControlFence
from kreplica.replication.leadership import Leadership
from kreplica.replication.partition import Partition
from kreplica.replication.partition_dependencies import PartitionSettings
from kreplica.replication.partitions import Partitions
from kreplica.replication.purgatory import DelayedOperation, Purgatory
from kreplica.replication.replica import READ_COMMITTED, READ_UNCOMMITTED
from kreplica.replication.writable_replica import Role

__all__ = [
    "READ_COMMITTED",
    "READ_UNCOMMITTED",
    "ControlFence",
    "DelayedOperation",
    "Leadership",
    "Partition",
    "PartitionSettings",
    "Partitions",
    "Purgatory",
    "Role",
]
