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
* ``log_dirs``: what log directories delay
* ``groups``: listing, describing and deleting groups, and putting members out
* ``group_offsets``: what groups committed, and how far they lag behind
* ``transactions``: transactions and producers, and ending those that hang
"""

from kreplica.client_core.admin.admin import Admin
from kreplica.client_core.admin.brokers import (
    BrokerVersions,
    ClusterDescription,
    Features,
    Levels,
)
from kreplica.client_core.admin.group_offsets import PartitionLag
from kreplica.client_core.admin.groups import (
    GroupDescription,
    GroupListing,
    GroupState,
    GroupType,
    MemberDescription,
    MemberToRemove,
)
from kreplica.client_core.admin.log_dirs import LogDir, Replica, ReplicaSize
from kreplica.client_core.admin.operations import AclOperation
from kreplica.client_core.admin.outcomes import Outcomes
from kreplica.client_core.admin.partitions import EARLIEST_LOCAL, HIGH_WATERMARK, LATEST_TIERED
from kreplica.client_core.admin.reassignments import ElectionType, Reassignment
from kreplica.client_core.admin.topics import (
    CreatedTopic,
    PartitionDescription,
    TopicDescription,
    TopicListing,
)
from kreplica.client_core.admin.transactions import (
    ProducerIdentity,
    ProducerState,
    TransactionDescription,
    TransactionListing,
    TransactionState,
)
from kreplica.client_core.configs import (
    AlterOperation,
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    ResourceKind,
)
from kreplica.client_core.topics import BROKERS_DEFAULT, NewTopic

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
