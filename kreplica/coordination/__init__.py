"""What the coordinators of groups and of transactions stand on: state that lives in a partition of an internal topic.

Whoever leads such a partition coordinates what is kept in it.  Data flows one way: request -> shard -> state log ->
committed -> shard's memory -> answer; a new leader reads the log, and has the same memory.

* ``hashing`` which partition keeps what is known of a group or a transactional id
* ``shards`` the partitions that this broker coordinates: start here
* ``state_log`` what is appended to one of them, and when it counts
* ``loading`` reading one from its start
* ``cluster_view`` what coordinators see of the cluster; ``brokers`` connections to its other brokers
* ``log_ends`` where partitions' logs end, whoever leads them
"""

from kreplica.coordination.brokers import BrokerConnections
from kreplica.coordination.cluster_view import ClusterView
from kreplica.coordination.hashing import partition_of
from kreplica.coordination.log_ends import LogEnds
from kreplica.coordination.shards import Shard, Shards
from kreplica.coordination.state_log import Pair, StateLog, StateLogConfig

__all__ = [
    "BrokerConnections",
    "ClusterView",
    "LogEnds",
    "Pair",
    "Shard",
    "Shards",
    "StateLog",
    "StateLogConfig",
    "partition_of",
]
