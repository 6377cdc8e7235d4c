"""Partitions of a broker: roles, replication between leader and followers, and the high watermark.

The controller assigns the leader; this package applies its commands.

* ``partitions``: all partitions of a broker; ``partition``: one partition, with its log and its ``role``
* ``leader``: the leader role (appends, ISR, high watermark, lease)
* ``follower``: the follower role (fetchers, truncation)
* ``purgatory``: delayed operations
"""

from kreplica.replication.controller_fence import ControlFence
from kreplica.replication.leadership import Leadership
from kreplica.replication.partition import READ_COMMITTED, READ_UNCOMMITTED, Partition
from kreplica.replication.partition_dependencies import PartitionSettings
from kreplica.replication.partitions import Partitions
from kreplica.replication.purgatory import DelayedOperation, Purgatory

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
]
