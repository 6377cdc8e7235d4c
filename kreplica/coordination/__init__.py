"""Coordinator state stored in the partitions of an internal topic; used for groups and transactions.

The leader of such a partition coordinates the groups or transactional IDs stored in it. Data flow: request -> shard ->
state log -> commit -> shard's memory -> response. A new leader rebuilds the memory from the log.

* ``shards``: partitions that this broker coordinates
* ``state_log``: appends to one partition; ``loading``: replay of one partition
* ``hashing``: partition of a group or transactional ID
* ``cluster_view``: cluster metadata for coordinators; ``brokers``: connections to brokers
* ``end_offsets``: end offsets of partitions, wherever their leaders are; ``memory_totals``: memory used for clients
"""

from kreplica.coordination.brokers import BrokerConnections
from kreplica.coordination.cluster_view import ClusterView
from kreplica.coordination.end_offsets import EndOffsets
from kreplica.coordination.hashing import partition_of
from kreplica.coordination.shards import Shard, Shards
from kreplica.coordination.state_log import Pair, StateLog, StateLogConfig

__all__ = [
    "BrokerConnections",
    "ClusterView",
    "EndOffsets",
    "Pair",
    "Shard",
    "Shards",
    "StateLog",
    "StateLogConfig",
    "partition_of",
]
