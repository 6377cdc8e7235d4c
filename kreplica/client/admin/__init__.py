"""Administering a cluster.

* ``admin``: ``Admin``, which has the methods of all subjects
* ``outcomes``: what became of each item of a request over several
* ``asking``: who is asked, and how often
* ``brokers``: the cluster as a whole: brokers, versions, features
* ``operations``: what a client may do with something
* ``topics``: making, describing, widening and deleting topics
* ``configs``: settings of topics and brokers
* ``partitions``: offsets by time, deleting records
* ``reassignments``: elections of leaders, moves of replicas
* ``log_dirs``: what log directories hold
* ``groups``: listing, describing and deleting groups, and putting members out
* ``group_offsets``: what groups committed, and how far they lag behind
* ``transactions``: transactions and producers, and ending those that hang
"""

from kreplica.client.admin.admin import Admin
from kreplica.client.admin.brokers import (
    BrokerVersions,
    ClusterDescription,
    Features,
    Levels,
)
from kreplica.client.admin.group_offsets import PartitionLag
from kreplica.client.admin.groups import (
    GroupDescription,
    GroupListing,
    GroupState,
    GroupType,
    MemberDescription,
    MemberToRemove,
)
from kreplica.client.admin.log_dirs import LogDir, Replica, ReplicaSize
from kreplica.client.admin.operations import AclOperation
from kreplica.client.admin.outcomes import Outcomes
from kreplica.client.admin.partitions import EARLIEST_LOCAL, HIGH_WATERMARK, LATEST_TIERED
from kreplica.client.admin.reassignments import ElectionType, Reassignment
from kreplica.client.admin.topics import (
    CreatedTopic,
    PartitionDescription,
    TopicDescription,
    TopicListing,
)
from kreplica.client.admin.transactions import (
    ProducerIdentity,
    ProducerState,
    TransactionDescription,
    TransactionListing,
    TransactionState,
)
from kreplica.sansio.configs import (
    AlterOperation,
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    ResourceKind,
)
from kreplica.sansio.topics import BROKERS_DEFAULT, NewTopic

__all__ = [
    "BROKERS_DEFAULT",
    "EARLIEST_LOCAL",
    "HIGH_WATERMARK",
    "LATEST_TIERED",
    "AclOperation",
    "Admin",
    "AlterOperation",
    "BrokerVersions",
    "ClusterDescription",
    "ConfigChange",
    "ConfigEntry",
    "ConfigResource",
    "ConfigSource",
    "ConfigSynonym",
    "ConfigType",
    "CreatedTopic",
    "ElectionType",
    "Features",
    "GroupDescription",
    "GroupListing",
    "GroupState",
    "GroupType",
    "Levels",
    "LogDir",
    "MemberDescription",
    "MemberToRemove",
    "NewTopic",
    "Outcomes",
    "PartitionDescription",
    "PartitionLag",
    "ProducerIdentity",
    "ProducerState",
    "Reassignment",
    "Replica",
    "ReplicaSize",
    "ResourceKind",
    "TopicDescription",
    "TopicListing",
    "TransactionDescription",
    "TransactionListing",
    "TransactionState",
]
