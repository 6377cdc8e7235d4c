"""Table of the authorization matrix: requests of all APIs, with the ACLs that they need.

Requests that change state use names that no other case uses.
"""

from __future__ import annotations

from authorization_bodies import (
    ANY_ACL,
    BOTH,
    BROKER_ID,
    COMMITTED,
    FEATURE,
    MEMBER,
    NEW_ACL,
    PRODUCER,
    add_partitions,
    always,
    broker_settings,
    committed_offsets,
    consumer_heartbeat,
    created_by_metadata,
    delete_topics,
    delete_topics_by_id,
    ip_quota,
    join_group,
    key_store,
    metadata,
    metadata_by_id,
    new_topic,
    offset_delete,
    rows_for_both_names,
    scram,
    topic_settings,
)
from authorization_entries import ABSENT, OTHER, OWN, Entry, acls, fetch, named, produce, topics

from kreplica.wire import messages

READ_TOPIC, WRITE_TOPIC, DESCRIBE_TOPIC = acls("topic read"), acls("topic write"), acls("topic describe")
READ_GROUP, DESCRIBE_GROUP = acls("group read"), acls("group describe")
ALTER, DESCRIBE, CLUSTER_ACTION = acls("cluster alter"), acls("cluster describe"), acls("cluster cluster_action")
ALTER_CONFIGS, DESCRIBE_CONFIGS = acls("cluster alter_configs"), acls("cluster describe_configs")
WRITE_ID, DESCRIBE_ID = acls("transactional_id write"), acls("transactional_id describe")
STALE = {"broker_epoch": 1, "broker_id": BROKER_ID, "controller_id": BROKER_ID, "controller_epoch": 1}
REFUSED_MARKER = {**PRODUCER, "topics": topics(ABSENT, partitions="partition_indexes", index=None)}

TOPIC_ENTRIES = (
    Entry("produce", messages.PRODUCE, produce(), (WRITE_TOPIC,), versions=(7, 8)),
    Entry("produce without response", messages.PRODUCE, produce(acks=0), (WRITE_TOPIC,), is_silent=True),
    Entry(
        "produce in a transaction",
        messages.PRODUCE,
        produce(acks=-1, transactional_id=OWN, transactional=True),
        (WRITE_ID + WRITE_TOPIC,),
        first=3,
    ),
    Entry(
        "produce in a transaction without an id",
        messages.PRODUCE,
        produce(acks=-1, transactional=True),
        (WRITE_TOPIC,),
        first=3,
    ),
    Entry(
        "produce with an unused id", messages.PRODUCE, produce(transactional_id=OWN), (WRITE_TOPIC,), first=3
    ),
    Entry("fetch", messages.FETCH, fetch(), (READ_TOPIC,), first=4, versions=(6, 7, 12, 13)),
    Entry("fetch of a follower", messages.FETCH, fetch(7), (CLUSTER_ACTION,), first=4, versions=(12, 13, 14)),
    Entry(
        "offsets",
        messages.LIST_OFFSETS,
        always(replica_id=-1, topics=topics(timestamp=-1)),
        (DESCRIBE_TOPIC, READ_TOPIC, WRITE_TOPIC, acls("topic delete"), acls("topic alter")),
    ),
    Entry(
        "epochs",
        messages.OFFSET_FOR_LEADER_EPOCH,
        always(replica_id=-1, topics=topics(name="topic", index="partition", leader_epoch=0)),
        (DESCRIBE_TOPIC, CLUSTER_ACTION),
        first=2,
    ),
    Entry("metadata of topics", messages.METADATA, metadata(topics=named(*BOTH)), (DESCRIBE_TOPIC,), last=3),
    Entry(
        "metadata",
        messages.METADATA,
        metadata(topics=named(OWN, OTHER, ABSENT)),
        (DESCRIBE_TOPIC,),
        first=4,
        versions=(8, 9, 10),
    ),
    Entry(
        "metadata of all topics",
        messages.METADATA,
        metadata(topics=None),
        (DESCRIBE_TOPIC,),
        first=1,
        versions=(8, 9),
        only_shared=True,
    ),
    Entry("metadata by id", messages.METADATA, metadata_by_id, (DESCRIBE_TOPIC,), first=12),
    Entry(
        "metadata that creates topics",
        messages.METADATA,
        created_by_metadata,
        (acls("topic describe, topic create"), acls("topic describe, cluster create")),
        first=4,
    ),
    Entry(
        "create topics",
        messages.CREATE_TOPICS,
        rows_for_both_names("topics", new_topic),
        (acls("topic create"), acls("cluster create"), acls("topic create, topic describe_configs")),
        first=2,
        versions=(4, 5),
    ),
    Entry(
        "delete topics",
        messages.DELETE_TOPICS,
        delete_topics,
        (acls("topic delete"),),
        (4, 5),
        first=1,
        resource_type="topic",
    ),
    Entry(
        "delete topics by id",
        messages.DELETE_TOPICS,
        delete_topics_by_id,
        (acls("topic delete"),),
        first=6,
        resource_type="topic",
    ),
    Entry(
        "create partitions",
        messages.CREATE_PARTITIONS,
        rows_for_both_names("topics", lambda name: {"name": name, "count": 2, "assignments": None}, timeout_ms=5000),
        (acls("topic alter"),),
        resource_type="topic",
    ),
    Entry(
        "delete records",
        messages.DELETE_RECORDS,
        always(topics=topics(offset=0), timeout_ms=5000),
        (acls("topic delete"),),
    ),
    Entry(
        "describe producers",
        messages.DESCRIBE_PRODUCERS,
        always(topics=topics(partitions="partition_indexes", index=None)),
        (READ_TOPIC,),
    ),
    Entry(
        "describe settings of topics", messages.DESCRIBE_CONFIGS, topic_settings(), (acls("topic describe_configs"),),
        first=1,
    ),
    Entry("alter settings of topics", messages.ALTER_CONFIGS, topic_settings(), (acls("topic alter_configs"),)),
    Entry(
        "alter some settings of topics",
        messages.INCREMENTAL_ALTER_CONFIGS,
        topic_settings(),
        (acls("topic alter_configs"),),
    ),
    Entry("describe partitions", messages.DESCRIBE_TOPIC_PARTITIONS, always(topics=named(*BOTH)), (DESCRIBE_TOPIC,)),
)

GROUP_ENTRIES = (
    Entry(
        "commit offsets",
        messages.OFFSET_COMMIT,
        always(group_id=OWN, topics=topics(**COMMITTED)),
        (READ_GROUP + READ_TOPIC,),
        first=1,
        last=8,
    ),
    Entry(
        "fetch offsets",
        messages.OFFSET_FETCH,
        committed_offsets(),
        (DESCRIBE_GROUP + DESCRIBE_TOPIC,),
        first=1,
        versions=(2, 7, 8),
    ),
    Entry(
        "fetch all offsets",
        messages.OFFSET_FETCH,
        committed_offsets(all_topics=True),
        (DESCRIBE_GROUP + DESCRIBE_TOPIC,),
        first=2,
        versions=(7, 8),
    ),
    Entry(
        "delete offsets",
        messages.OFFSET_DELETE,
        offset_delete,
        (acls("group delete, topic read"),),
        resource_type="group",
    ),
    Entry(
        "find the coordinator of a group",
        messages.FIND_COORDINATOR,
        always(key=OWN, key_type=0, coordinator_keys=BOTH),
        (DESCRIBE_GROUP,),
        versions=(3, 4),
    ),
    Entry(
        "find the coordinator of a transaction",
        messages.FIND_COORDINATOR,
        always(key=OWN, key_type=1, coordinator_keys=BOTH),
        (DESCRIBE_ID,),
        first=1,
        versions=(3, 4),
    ),
    Entry("join a group", messages.JOIN_GROUP, join_group, (READ_GROUP,), versions=(4, 7)),
    Entry("heartbeat", messages.HEARTBEAT, always(**MEMBER), (READ_GROUP,)),
    Entry(
        "leave a group",
        messages.LEAVE_GROUP,
        always(group_id=OWN, member_id="member", members=[{"member_id": "member"}]),
        (READ_GROUP,),
        versions=(2, 3),
    ),
    Entry(
        "synchronize a group",
        messages.SYNC_GROUP,
        always(**MEMBER, protocol_type="consumer", protocol_name="range", assignments=[]),
        (READ_GROUP,),
    ),
    Entry("synchronize a group without a protocol", messages.SYNC_GROUP, always(**MEMBER), (READ_GROUP,), first=5),
    Entry(
        "describe groups",
        messages.DESCRIBE_GROUPS,
        always(groups=[*BOTH, ABSENT], include_authorized_operations=True),
        (DESCRIBE_GROUP,),
        versions=(3,),
    ),
    Entry(
        "list groups", messages.LIST_GROUPS, always(), (DESCRIBE_GROUP, DESCRIBE), versions=(4,), only_shared=True
    ),
    Entry(
        "delete groups",
        messages.DELETE_GROUPS,
        rows_for_both_names("groups_names", str),
        (acls("group delete"),),
        resource_type="group",
    ),
    Entry("heartbeat of KIP-848", messages.CONSUMER_GROUP_HEARTBEAT, consumer_heartbeat, (READ_GROUP,)),
    Entry(
        "describe groups of KIP-848",
        messages.CONSUMER_GROUP_DESCRIBE,
        always(group_ids=BOTH, include_authorized_operations=True),
        (DESCRIBE_GROUP,),
    ),
)

TRANSACTION_ENTRIES = (
    Entry(
        "idempotent producer",
        messages.INIT_PRODUCER_ID,
        always(transactional_id=None, transaction_timeout_ms=1000),
        (acls("cluster idempotent_write"), WRITE_TOPIC),
    ),
    Entry(
        "transactional producer",
        messages.INIT_PRODUCER_ID,
        lambda context: {"transactional_id": context.names[0], "transaction_timeout_ms": 1000},
        (WRITE_ID,),
    ),
    Entry(
        "add partitions",
        messages.ADD_PARTITIONS_TO_TXN,
        add_partitions(OWN, OTHER, ABSENT),
        (WRITE_ID + WRITE_TOPIC,),
        last=3,
    ),
    Entry("verify partitions", messages.ADD_PARTITIONS_TO_TXN, add_partitions(*BOTH), (CLUSTER_ACTION,), first=4),
    Entry(
        "add offsets",
        messages.ADD_OFFSETS_TO_TXN,
        always(transactional_id=OWN, group_id=OWN, **PRODUCER),
        (WRITE_ID + READ_GROUP,),
    ),
    Entry(
        "end a transaction",
        messages.END_TXN,
        always(transactional_id=OWN, committed=False, **PRODUCER),
        (WRITE_ID,),
    ),
    Entry(
        "commit offsets in a transaction",
        messages.TXN_OFFSET_COMMIT,
        always(transactional_id=OWN, **MEMBER, **PRODUCER, topics=topics(**COMMITTED)),
        (WRITE_ID + READ_GROUP + READ_TOPIC,),
    ),
    Entry(
        "describe transactions",
        messages.DESCRIBE_TRANSACTIONS,
        always(transactional_ids=[*BOTH, ABSENT]),
        (DESCRIBE_ID,),
    ),
    Entry("list transactions", messages.LIST_TRANSACTIONS, always(), (DESCRIBE_ID,), last=1, only_shared=True),
    Entry(
        "write markers", messages.WRITE_TXN_MARKERS, always(markers=[REFUSED_MARKER]), (CLUSTER_ACTION,), last=1
    ),
)

CLUSTER_ENTRIES = (
    Entry("ApiVersions", messages.API_VERSIONS, always(client_software_name="test", client_software_version="1")),
    Entry("SaslHandshake", messages.SASL_HANDSHAKE, always(mechanism="PLAIN"), first=1),
    Entry("SaslAuthenticate", messages.SASL_AUTHENTICATE, always(auth_bytes=b"\0a\0b")),
    Entry("leader and ISR", messages.LEADER_AND_ISR, always(**STALE), (CLUSTER_ACTION,), first=2),
    Entry("stop replica", messages.STOP_REPLICA, always(**STALE), (CLUSTER_ACTION,), first=3),
    Entry("update metadata", messages.UPDATE_METADATA, always(**STALE), (CLUSTER_ACTION,), first=5),
    Entry("controlled shutdown", messages.CONTROLLED_SHUTDOWN, always(**STALE), (CLUSTER_ACTION,), first=2),
    Entry("alter partition", messages.ALTER_PARTITION, always(**STALE), (CLUSTER_ACTION,)),
    Entry("allocate producer ids", messages.ALLOCATE_PRODUCER_IDS, always(**STALE), (CLUSTER_ACTION,)),
    Entry("envelope", messages.ENVELOPE, always(), (CLUSTER_ACTION,)),
    Entry("describe ACLs", messages.DESCRIBE_ACLS, always(**ANY_ACL), (DESCRIBE,), first=1),
    Entry("create ACLs", messages.CREATE_ACLS, always(creations=[NEW_ACL]), (ALTER,), first=1),
    Entry("delete ACLs", messages.DELETE_ACLS, always(filters=[ANY_ACL]), (ALTER,), first=1),
    Entry(
        "describe settings of the broker",
        messages.DESCRIBE_CONFIGS,
        broker_settings(),
        (acls("cluster describe_configs"),),
        first=1,
    ),
    Entry("alter settings of the broker", messages.ALTER_CONFIGS, broker_settings(), (ALTER_CONFIGS,)),
    Entry(
        "alter some settings of the broker",
        messages.INCREMENTAL_ALTER_CONFIGS,
        broker_settings(),
        (ALTER_CONFIGS,),
    ),
    Entry(
        "alter log directories",
        messages.ALTER_REPLICA_LOG_DIRS,
        always(dirs=[{"path": "/absent", "topics": topics(index=None)}]),
        (ALTER,),
        first=1,
    ),
    Entry(
        "describe log directories",
        messages.DESCRIBE_LOG_DIRS,
        always(topics=topics(name="topic", index=None)),
        (DESCRIBE,),
        first=1,
        versions=(3,),
    ),
    Entry(
        "elect leaders",
        messages.ELECT_LEADERS,
        always(topic_partitions=topics(name="topic", index=None), timeout_ms=5000),
        (ALTER,),
    ),
    Entry(
        "reassign partitions",
        messages.ALTER_PARTITION_REASSIGNMENTS,
        always(topics=topics(replicas=None), timeout_ms=5000),
        (ALTER,),
    ),
    Entry(
        "list reassignments",
        messages.LIST_PARTITION_REASSIGNMENTS,
        always(topics=topics(partitions="partition_indexes", index=None)),
        (DESCRIBE,),
    ),
    Entry(
        "describe quotas",
        messages.DESCRIBE_CLIENT_QUOTAS,
        always(components=[{"entity_type": "user", "match_type": 0, "match": "absent"}]),
        (acls("cluster describe_configs"),),
    ),
    Entry(
        "alter quotas",
        messages.ALTER_CLIENT_QUOTAS,
        always(
            entries=[
                {
                    "entity": [{"entity_type": "user", "entity_name": "unused"}],
                    "ops": [{"key": "producer_byte_rate", "value": 1e9, "remove": False}],
                }
            ]
        ),
        (ALTER_CONFIGS,),
    ),
    Entry(
        "describe quotas of an IP address",
        messages.DESCRIBE_CLIENT_QUOTAS,
        always(components=[{"entity_type": "ip", "match_type": 0, "match": "192.0.2.2"}]),
        (acls("cluster describe_configs"),),
    ),
    Entry("alter quotas of an IP address", messages.ALTER_CLIENT_QUOTAS, ip_quota("192.0.2.1"), (ALTER_CONFIGS,)),
    Entry("alter quotas of all IP addresses", messages.ALTER_CLIENT_QUOTAS, ip_quota(None), (ALTER_CONFIGS,)),
    Entry("alter quotas of an invalid address", messages.ALTER_CLIENT_QUOTAS, ip_quota("not/an.ip"), (ALTER_CONFIGS,)),
    Entry(
        "alter quotas of a user and an IP address",
        messages.ALTER_CLIENT_QUOTAS,
        ip_quota("192.0.2.1", {"entity_type": "user", "entity_name": "unused"}),
        (ALTER_CONFIGS,),
    ),
    Entry(
        "alter byte rates of an IP address",
        messages.ALTER_CLIENT_QUOTAS,
        ip_quota("192.0.2.1", key="producer_byte_rate"),
        (ALTER_CONFIGS,),
    ),
    Entry("alter the key store of a listener", *key_store(), (ALTER_CONFIGS,)),
    Entry("alter the key store of a listener to an absent file", *key_store(location="/absent.pem"), (ALTER_CONFIGS,)),
    Entry("alter the key store of all listeners", *key_store(prefix=""), (ALTER_CONFIGS,)),
    Entry("alter the key store of all brokers", *key_store(broker=""), (ALTER_CONFIGS,)),
    Entry("alter the key store of an unknown broker", *key_store(broker="77"), (ALTER_CONFIGS,)),
    Entry(
        "describe SCRAM users",
        messages.DESCRIBE_USER_SCRAM_CREDENTIALS,
        always(users=named("absent")),
        (DESCRIBE,),
    ),
    Entry("alter SCRAM users", messages.ALTER_USER_SCRAM_CREDENTIALS, scram, (ALTER,)),
    Entry("update features", messages.UPDATE_FEATURES, always(feature_updates=[FEATURE]), (ALTER,)),
    Entry(
        "describe the cluster",
        messages.DESCRIBE_CLUSTER,
        always(include_cluster_authorized_operations=True),
        (DESCRIBE, acls("cluster alter, cluster create"), ()),
        last=1,
    ),
    Entry("list client metrics", messages.LIST_CONFIG_RESOURCES, always(resource_types=[16]), (DESCRIBE_CONFIGS,)),
    Entry("get telemetry subscriptions", messages.GET_TELEMETRY_SUBSCRIPTIONS, always()),
    Entry("push telemetry", messages.PUSH_TELEMETRY, always()),
)

OWNER = {"owner_principal_type": "User", "owner_principal_name": OWN}
UNKNOWN_TOKEN = {"hmac": b"unknown", "renew_period_ms": 1, "expiry_time_period_ms": -1}

TOKEN_ENTRIES = (
    Entry("create a token", messages.CREATE_DELEGATION_TOKEN, always(max_lifetime_ms=-1), first=1),
    Entry(
        "create a token for another user",
        messages.CREATE_DELEGATION_TOKEN,
        always(**OWNER, max_lifetime_ms=-1),
        (acls("user create_tokens"),),
        first=3,
    ),
    Entry("renew a token", messages.RENEW_DELEGATION_TOKEN, always(**UNKNOWN_TOKEN), first=1),
    Entry("expire a token", messages.EXPIRE_DELEGATION_TOKEN, always(**UNKNOWN_TOKEN), first=1),
    Entry(
        "describe tokens",
        messages.DESCRIBE_DELEGATION_TOKEN,
        always(owners=[{"principal_type": "User", "principal_name": OWN}]),
        (acls("user describe_tokens"),),
        first=1,
    ),
    Entry("describe no tokens", messages.DESCRIBE_DELEGATION_TOKEN, always(owners=[]), first=1),
)

TABLE = (*TOPIC_ENTRIES, *GROUP_ENTRIES, *TRANSACTION_ENTRIES, *CLUSTER_ENTRIES, *TOKEN_ENTRIES)

NOT_SERVED = (52, 53, 54, 55, 59, 62, 63, 64, 70, 76, 77, 78, 79, 80, 81, 82, 83, 84, 85, 86, 87, 92, 32767, -1)
"""Keys of APIs that Kafka 3.9 serves only with KRaft, or not at all."""
