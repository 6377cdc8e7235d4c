"""Partitions as a broker holds them: who may append, what is committed, who waits.  Decides no leadership.

* ``partition`` one partition, by its role; ``replica`` what it does with its log in any; ``writable_replica`` appending
* ``partitions`` all of this broker's, and ``partition_needs`` from others; ``leadership`` what it was told of one
* ``fencing`` which commands are obeyed
* ``damage`` pure: what a replica may do whose stored bytes are damaged
* ``waiting`` fetches and produces that wait

Leading:

* ``led`` one partition that is led; ``followers`` what its fetches say of each follower
* ``high_watermark`` pure: what is committed; ``lease`` how long anything may be
* ``in_sync`` pure: who is in sync, rule by rule; ``isr_proposal`` pure: the state that follows
* ``isr_writes`` writes such states; ``isr_notifications`` tells the controller
* ``intercepted`` appends what produce interceptors made of a batch
* ``lag_watch`` looks after followers that are not heard of

Following:

* ``fetchers`` whom this broker follows; ``fetcher`` one leader; ``fetcher_config`` the settings of both
* ``followed`` one partition that is followed; ``truncation`` pure: where its log is cut
* ``fetch_session`` pure: what requests name (KIP-227); ``fetch_requests`` their bytes
* ``leader_range`` what a leader has
* ``retries`` what is to be done again later
* ``throttle`` how fast replicas that move are copied

Serving:

* ``replica_selection`` pure: from which one a consumer reads (KIP-392)
"""

from kreplica.replication.fencing import ControlFence
from kreplica.replication.leadership import Leadership
from kreplica.replication.partition import Partition
from kreplica.replication.partition_dependencies import PartitionSettings
from kreplica.replication.partitions import Partitions
from kreplica.replication.purgatory import Waiting, Wakeups
from kreplica.replication.replica import READ_COMMITTED, READ_UNCOMMITTED
from kreplica.replication.writable_replica import Role

__all__ = [
    "READ_COMMITTED",
    "READ_UNCOMMITTED",
    "ControlFence",
    "Leadership",
    "Partition",
    "PartitionSettings",
    "Partitions",
    "Role",
    "Waiting",
    "Wakeups",
]
