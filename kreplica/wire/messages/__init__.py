"""Messages of all APIs, by subject; each API is a constant of this package.

* ``api``: ``Api``, the description of one API
* ``produce``: Produce and InitProducerId
* ``fetch``: Fetch, ListOffsets and OffsetForLeaderEpoch
* ``metadata``: brokers, topics, partitions and their leaders
* ``versions``: ApiVersions, the first request of a connection (KIP-35, KIP-511)
* ``security``: SASL handshake and authentication
* ``acls``, ``delegation_tokens``, ``scram``: administration of access control and credentials
* ``client_quotas``: quotas of users and client IDs
* ``groups``: consumer groups: membership, assignment and administration
* ``offsets``: committed offsets of groups, and DeleteRecords
* ``topics``: creation, deletion, and addition of partitions
* ``configs``: configurations of topics, brokers and client metrics
* ``telemetry``: metrics that clients push
* ``transactions``: partitions and offsets of transactions, their end, and administration
* ``reassignments``: leader elections and partition reassignments
* ``log_dirs``: description of log directories, and replica moves between them
* ``control``: commands from the controller to brokers, and requests from brokers about their partitions
* ``cluster``: requests from brokers to the controller, except those about partitions
* ``consumer_protocol``: content of the ``metadata`` and ``assignment`` bytes of classic consumers
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kreplica.wire.messages.acls import CREATE_ACLS, DELETE_ACLS, DESCRIBE_ACLS
from kreplica.wire.messages.api import Api
from kreplica.wire.messages.client_quotas import ALTER_CLIENT_QUOTAS, DESCRIBE_CLIENT_QUOTAS
from kreplica.wire.messages.cluster import ALLOCATE_PRODUCER_IDS, ENVELOPE, UPDATE_FEATURES
from kreplica.wire.messages.configs import (
    ALTER_CONFIGS,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_CONFIG_RESOURCES,
)
from kreplica.wire.messages.control import (
    ALTER_PARTITION,
    CONTROLLED_SHUTDOWN,
    LEADER_AND_ISR,
    STOP_REPLICA,
    UPDATE_METADATA,
)
from kreplica.wire.messages.delegation_tokens import (
    CREATE_DELEGATION_TOKEN,
    DESCRIBE_DELEGATION_TOKEN,
    EXPIRE_DELEGATION_TOKEN,
    RENEW_DELEGATION_TOKEN,
)
from kreplica.wire.messages.fetch import FETCH, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH
from kreplica.wire.messages.groups import (
    CONSUMER_GROUP_DESCRIBE,
    CONSUMER_GROUP_HEARTBEAT,
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    SYNC_GROUP,
)
from kreplica.wire.messages.log_dirs import ALTER_REPLICA_LOG_DIRS, DESCRIBE_LOG_DIRS
from kreplica.wire.messages.metadata import DESCRIBE_CLUSTER, DESCRIBE_TOPIC_PARTITIONS, METADATA
from kreplica.wire.messages.offsets import DELETE_RECORDS, OFFSET_COMMIT, OFFSET_DELETE, OFFSET_FETCH
from kreplica.wire.messages.produce import INIT_PRODUCER_ID, PRODUCE
from kreplica.wire.messages.reassignments import (
    ALTER_PARTITION_REASSIGNMENTS,
    ELECT_LEADERS,
    LIST_PARTITION_REASSIGNMENTS,
)
from kreplica.wire.messages.scram import ALTER_USER_SCRAM_CREDENTIALS, DESCRIBE_USER_SCRAM_CREDENTIALS
from kreplica.wire.messages.security import SASL_AUTHENTICATE, SASL_HANDSHAKE
from kreplica.wire.messages.telemetry import GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY
from kreplica.wire.messages.topics import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS
from kreplica.wire.messages.transactions import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    LIST_TRANSACTIONS,
    TXN_OFFSET_COMMIT,
    WRITE_TXN_MARKERS,
)
from kreplica.wire.messages.versions import API_VERSIONS

APIS: Mapping[int, Api] = MappingProxyType(
    {
        api.key: api
        for api in (
            PRODUCE,
            FETCH,
            LIST_OFFSETS,
            METADATA,
            LEADER_AND_ISR,
            STOP_REPLICA,
            UPDATE_METADATA,
            CONTROLLED_SHUTDOWN,
            OFFSET_COMMIT,
            OFFSET_FETCH,
            FIND_COORDINATOR,
            JOIN_GROUP,
            HEARTBEAT,
            LEAVE_GROUP,
            SYNC_GROUP,
            DESCRIBE_GROUPS,
            LIST_GROUPS,
            SASL_HANDSHAKE,
            API_VERSIONS,
            CREATE_TOPICS,
            DELETE_TOPICS,
            DELETE_RECORDS,
            INIT_PRODUCER_ID,
            OFFSET_FOR_LEADER_EPOCH,
            ADD_PARTITIONS_TO_TXN,
            ADD_OFFSETS_TO_TXN,
            END_TXN,
            WRITE_TXN_MARKERS,
            TXN_OFFSET_COMMIT,
            DESCRIBE_ACLS,
            CREATE_ACLS,
            DELETE_ACLS,
            DESCRIBE_CONFIGS,
            ALTER_CONFIGS,
            ALTER_REPLICA_LOG_DIRS,
            DESCRIBE_LOG_DIRS,
            SASL_AUTHENTICATE,
            CREATE_PARTITIONS,
            CREATE_DELEGATION_TOKEN,
            RENEW_DELEGATION_TOKEN,
            EXPIRE_DELEGATION_TOKEN,
            DESCRIBE_DELEGATION_TOKEN,
            DELETE_GROUPS,
            ELECT_LEADERS,
            INCREMENTAL_ALTER_CONFIGS,
            ALTER_PARTITION_REASSIGNMENTS,
            LIST_PARTITION_REASSIGNMENTS,
            OFFSET_DELETE,
            DESCRIBE_CLIENT_QUOTAS,
            ALTER_CLIENT_QUOTAS,
            DESCRIBE_USER_SCRAM_CREDENTIALS,
            ALTER_USER_SCRAM_CREDENTIALS,
            ALTER_PARTITION,
            UPDATE_FEATURES,
            ENVELOPE,
            DESCRIBE_CLUSTER,
            DESCRIBE_PRODUCERS,
            DESCRIBE_TRANSACTIONS,
            LIST_TRANSACTIONS,
            ALLOCATE_PRODUCER_IDS,
            CONSUMER_GROUP_HEARTBEAT,
            CONSUMER_GROUP_DESCRIBE,
            GET_TELEMETRY_SUBSCRIPTIONS,
            PUSH_TELEMETRY,
            LIST_CONFIG_RESOURCES,
            DESCRIBE_TOPIC_PARTITIONS,
        )
    }
)
"""All APIs by key."""

__all__ = [
    "ADD_OFFSETS_TO_TXN",
    "ADD_PARTITIONS_TO_TXN",
    "ALLOCATE_PRODUCER_IDS",
    "ALTER_CLIENT_QUOTAS",
    "ALTER_CONFIGS",
    "ALTER_PARTITION",
    "ALTER_PARTITION_REASSIGNMENTS",
    "ALTER_REPLICA_LOG_DIRS",
    "ALTER_USER_SCRAM_CREDENTIALS",
    "APIS",
    "API_VERSIONS",
    "CONSUMER_GROUP_DESCRIBE",
    "CONSUMER_GROUP_HEARTBEAT",
    "CONTROLLED_SHUTDOWN",
    "CREATE_ACLS",
    "CREATE_DELEGATION_TOKEN",
    "CREATE_PARTITIONS",
    "CREATE_TOPICS",
    "DELETE_ACLS",
    "DELETE_GROUPS",
    "DELETE_RECORDS",
    "DELETE_TOPICS",
    "DESCRIBE_ACLS",
    "DESCRIBE_CLIENT_QUOTAS",
    "DESCRIBE_CLUSTER",
    "DESCRIBE_CONFIGS",
    "DESCRIBE_DELEGATION_TOKEN",
    "DESCRIBE_GROUPS",
    "DESCRIBE_LOG_DIRS",
    "DESCRIBE_PRODUCERS",
    "DESCRIBE_TOPIC_PARTITIONS",
    "DESCRIBE_TRANSACTIONS",
    "DESCRIBE_USER_SCRAM_CREDENTIALS",
    "ELECT_LEADERS",
    "END_TXN",
    "ENVELOPE",
    "EXPIRE_DELEGATION_TOKEN",
    "FETCH",
    "FIND_COORDINATOR",
    "GET_TELEMETRY_SUBSCRIPTIONS",
    "HEARTBEAT",
    "INCREMENTAL_ALTER_CONFIGS",
    "INIT_PRODUCER_ID",
    "JOIN_GROUP",
    "LEADER_AND_ISR",
    "LEAVE_GROUP",
    "LIST_CONFIG_RESOURCES",
    "LIST_GROUPS",
    "LIST_OFFSETS",
    "LIST_PARTITION_REASSIGNMENTS",
    "LIST_TRANSACTIONS",
    "METADATA",
    "OFFSET_COMMIT",
    "OFFSET_DELETE",
    "OFFSET_FETCH",
    "OFFSET_FOR_LEADER_EPOCH",
    "PRODUCE",
    "PUSH_TELEMETRY",
    "RENEW_DELEGATION_TOKEN",
    "SASL_AUTHENTICATE",
    "SASL_HANDSHAKE",
    "STOP_REPLICA",
    "SYNC_GROUP",
    "TXN_OFFSET_COMMIT",
    "UPDATE_FEATURES",
    "UPDATE_METADATA",
    "WRITE_TXN_MARKERS",
    "Api",
]
