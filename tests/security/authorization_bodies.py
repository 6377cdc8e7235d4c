"""Bodies of the requests of the authorization matrix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from authorization_entries import ABSENT, OTHER, OWN, Context, Row, topics

from kreplica.model import ZERO_UUID
from kreplica.wire.messages import INCREMENTAL_ALTER_CONFIGS
from kreplica.wire.messages.api import Api

BROKER_ID = 1
TOPIC, BROKER = 2, 4
"""Types of resources that have settings."""

BOTH = [OWN, OTHER]
PRODUCER = {"producer_id": 1, "producer_epoch": 0}
MEMBER = {"group_id": OWN, "generation_id": 1, "member_id": "member", "generation_id_or_member_epoch": 1}
ANY_ACL = {
    "resource_type_filter": 2,
    "resource_name_filter": ABSENT,
    "pattern_type_filter": 3,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
NEW_ACL = {
    "resource_type": 2,
    "resource_name": "unused",
    "resource_pattern_type": 3,
    "principal": "User:unused",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
FEATURE = {"feature": "metadata.version", "max_version_level": 1}
COMMITTED = {"committed_offset": 1, "committed_metadata": ""}


def always(**body: Any) -> Callable[[Context], Row]:
    """Return a function that returns this body for every case."""
    return lambda _: body


def rows_for_both_names(field: str, row: Callable[[str], Any], **more: Any) -> Callable[[Context], Row]:
    """Return a function that builds a body with a row for each of the two names of the case."""
    return lambda context: {field: [row(name) for name in context.names], **more}


def new_topic(name: str) -> Row:
    return {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}


def resource(kind: int, name: str, setting: str, value: str) -> Row:
    configs = [{"name": setting, "value": value, "config_operation": 0}]
    return {"resource_type": kind, "resource_name": name, "configs": configs, "configuration_keys": [setting]}


def topic_settings() -> Callable[[Context], Row]:
    return always(resources=[resource(TOPIC, name, "retention.ms", "1000000") for name in BOTH])


def broker_settings() -> Callable[[Context], Row]:
    return always(resources=[resource(BROKER, str(BROKER_ID), "leader.replication.throttled.rate", "1000000000")])


def ip_quota(
    address: str | None, *other_parts: Row, key: str = "connection_creation_rate"
) -> Callable[[Context], Row]:
    """Return the body of AlterClientQuotas for an IP address, or for all addresses.

    :param other_parts: other parts of the entity.
    """
    entity = [{"entity_type": "ip", "entity_name": address}, *other_parts]
    return always(entries=[{"entity": entity, "ops": [{"key": key, "value": 1e6, "remove": False}]}])


def key_store(
    location: str | None = None, prefix: str = "listener.name.tls.", broker: str = str(BROKER_ID)
) -> tuple[Api, Callable[[Context], Row]]:
    """Return IncrementalAlterConfigs, and a body that changes the location of a key store.

    :param location: the new location; by default that of the current key store.
    """

    def body(context: Context) -> Row:
        name = f"{prefix}ssl.keystore.location"
        return {"resources": [resource(BROKER, broker, name, location or context.key_store)]}

    return INCREMENTAL_ALTER_CONFIGS, body


def add_partitions(*names: str) -> Callable[[Context], Row]:
    rows = topics(*names, index=None)
    transaction = {"transactional_id": OWN, **PRODUCER, "verify_only": True, "topics": rows}
    body = {"v3_and_below_transactional_id": OWN, "v3_and_below_topics": rows, "transactions": [transaction]}
    return always(**body, v3_and_below_producer_id=1, v3_and_below_producer_epoch=0)


def metadata(**more: Any) -> Callable[[Context], Row]:
    operations = {"include_topic_authorized_operations": True, "include_cluster_authorized_operations": True}
    return lambda context: {"allow_auto_topic_creation": False, **operations, **more}


def metadata_by_id(context: Context) -> Row:
    ids = [*(context.topic_ids[name] for name in BOTH), UUID(int=7)]
    return {**metadata()(context), "topics": [{"topic_id": each, "name": None} for each in ids]}


def created_by_metadata(context: Context) -> Row:
    rows = [{"topic_id": ZERO_UUID, "name": name} for name in context.names]
    return {**metadata()(context), "allow_auto_topic_creation": True, "topics": rows}


def delete_topics(context: Context) -> Row:
    names = [*context.names, ABSENT]
    rows = [{"name": name, "topic_id": ZERO_UUID} for name in names]
    return {"topics": rows, "topic_names": names, "timeout_ms": 5000}


def delete_topics_by_id(context: Context) -> Row:
    rows = [{"name": None, "topic_id": context.topic_ids[name]} for name in context.names]
    return {"topics": [*rows, {"name": None, "topic_id": UUID(int=7)}], "timeout_ms": 5000}


def committed_offsets(*, all_topics: bool = False) -> Callable[[Context], Row]:
    rows = None if all_topics else topics(partitions="partition_indexes", index=None)
    return always(group_id=OWN, topics=rows, groups=[{"group_id": name, "topics": rows} for name in BOTH])


def scram(context: Context) -> Row:
    more = {"mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": bytes(32)}
    return {"deletions": [{"name": "unknown", "mechanism": 1}], "upsertions": [{"name": context.names[0], **more}]}


def offset_delete(context: Context) -> Row:
    return {"group_id": context.names[0], "topics": topics()}


def join_group(context: Context) -> Row:
    protocol = {"name": "range", "metadata": b""}
    more = {"session_timeout_ms": 6000, "rebalance_timeout_ms": 6000, "member_id": "", "protocol_type": "consumer"}
    return {"group_id": context.names[0], "protocols": [protocol], **more}


def consumer_heartbeat(context: Context) -> Row:
    more = {"member_id": "", "member_epoch": 0, "rebalance_timeout_ms": 1000, "topic_partitions": []}
    return {"group_id": context.names[0], "subscribed_topic_names": BOTH, **more}
