"""Administration of a cluster; both clients run these coroutines.

* ``admin``: ``Admin``, which has the methods of all subjects
* ``request_routing``: routing and retries of requests for several items; ``outcomes``: results per item
* ``brokers``: brokers, API versions, features; ``operations``: authorized operations
* ``topics``: topics; ``partitions``: offsets by time and deletion of records
* ``configs``: configurations of topics and brokers
* ``reassignments``: leader elections and reassignments of replicas; ``log_dirs``: log directories
* ``groups``: consumer groups; ``group_offsets``: committed offsets and lag
* ``delegation_tokens``: delegation tokens
* ``transactions``: transactions and producers, including hanging transactions
"""

from kreplica.client_core.admin.admin import Admin
from kreplica.client_core.admin.brokers import (
    BrokerVersions,
    ClusterDescription,
    Features,
    Levels,
)
from kreplica.client_core.admin.delegation_tokens import DelegationToken
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
    "DelegationToken",
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
