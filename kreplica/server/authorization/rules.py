"""The authorization rules of each API, by API key, as in Kafka.

APIs without a rule require no permission: ApiVersions and DescribeCluster, which reveal little; ListGroups and
ListTransactions, whose responses are filtered; SASL; client telemetry; delegation tokens, whose owners need no
permission and whose handlers check all other clients.  Other modules of this package check Metadata, Produce,
OffsetFetch, FindCoordinator, DeleteTopics and AddPartitionsToTxn.
``docs/how-to/plugins.md`` lists the consequences.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kreplica.errors import ErrorCode
from kreplica.interfaces import CLUSTER, Operation, Resource
from kreplica.server.authorization.error_rows import ErrorRowBuilder, config_resource, name_row, with_partitions
from kreplica.server.authorization.permissions import group, topic, transactional_id
from kreplica.server.authorization.request_rules import RequestRule, Requirement, cluster, only_code
from kreplica.server.authorization.row_rules import RowRule
from kreplica.wire import messages

Row = dict[str, Any]
Rule = RequestRule | RowRule

_TOPIC_CONFIGS = 2


def _each_topic(operation: Operation, field: str | None = "name") -> Callable[[Any], tuple[Operation, Resource]]:
    return lambda row: (operation, topic(row if field is None else row[field]))


def _each_group(operation: Operation) -> Callable[[Any], tuple[Operation, Resource]]:
    return lambda name: (operation, group(name))


def _config(on_topic: Operation, on_cluster: Operation) -> Callable[[Row], tuple[Operation, Resource]]:
    def requirement(row: Row) -> tuple[Operation, Resource]:
        if row["resource_type"] == _TOPIC_CONFIGS:
            return on_topic, topic(row["resource_name"])
        return on_cluster, CLUSTER

    return requirement


def _member(body: Row) -> Sequence[Requirement]:
    return [(Operation.READ, group(body["group_id"]))]


def _transaction(body: Row) -> Sequence[Requirement]:
    return [(Operation.WRITE, transactional_id(body["transactional_id"]))]


def _producer(body: Row) -> Sequence[Requirement]:
    if body["transactional_id"] is not None:
        return _transaction(body)
    return [(Operation.IDEMPOTENT_WRITE, CLUSTER)]


def _added_offsets(body: Row) -> Sequence[Requirement]:
    return [*_transaction(body), *_member(body)]


def _no_producer(_: Row, code: int) -> Row:
    return {"error_code": code, "producer_epoch": -1}


def _committed(response_field: str = "topics") -> Callable[[Row, int], Row]:
    error_row = with_partitions()
    return lambda body, code: {"error_code": code, response_field: [error_row(row, code) for row in body["topics"]]}


def _rows_of_topics(
    request_field: str, response_field: str, error_row: ErrorRowBuilder
) -> Callable[[Row, int], Row]:
    """Return a function that builds a rejection with a row for each topic of the request."""

    def rejection(body: Row, code: int) -> Row:
        return {"error_code": code, response_field: [error_row(row, code) for row in body[request_field] or ()]}

    return rejection


def _markers(body: Row, code: int) -> Row:
    error_row = with_partitions(partitions="partition_indexes", index=None)
    return {
        "markers": [
            {"producer_id": marker["producer_id"], "topics": [error_row(row, code) for row in marker["topics"]]}
            for marker in body["markers"]
        ]
    }


def _each(request_field: str, response_field: str, kept: str | None = None) -> Callable[[Row, int], Row]:
    """Return a function that builds a rejection with a row for each row of the request.

    :param kept: field that is copied from the request row to the response row.
    """

    def rejection(body: Row, code: int) -> Row:
        rows = [{} if kept is None else {kept: row[kept]} for row in body[request_field]]
        return {response_field: [{**row, "error_code": code} for row in rows]}

    return rejection


def _log_dirs(body: Row, code: int) -> Row:
    error_row = with_partitions("name", partitions="partitions", index=None)
    rows = [error_row(topic, code) for directory in body["dirs"] for topic in directory["topics"]]
    return {"results": [{"topic_name": row["name"], "partitions": row["partitions"]} for row in rows]}


def _no_scram_users(_: Row, code: int) -> Row:
    return {"error_code": code, "results": [{"user": "", "error_code": code}]}  # as in Kafka


def _scram_users(body: Row, code: int) -> Row:
    users = dict.fromkeys(row["name"] for row in (*body["deletions"], *body["upsertions"]))
    return {"results": [{"user": user, "error_code": code} for user in users]}


_ELECTIONS = (
    "topic_partitions",
    "replica_election_results",
    with_partitions("topic", index=None, response_field="partition_result", response_index="partition_id"),
)
_REASSIGNMENTS = with_partitions(
    partitions="partition_indexes", index=None, replicas=[], adding_replicas=[], removing_replicas=[]
)
_CLUSTER_ACTION = RequestRule(cluster(Operation.CLUSTER_ACTION), only_code)
_MEMBER = RequestRule(_member, only_code)

RULES: Mapping[int, Sequence[Rule]] = {
    # Requests between brokers.
    messages.LEADER_AND_ISR.key: [_CLUSTER_ACTION],
    messages.STOP_REPLICA.key: [_CLUSTER_ACTION],
    messages.UPDATE_METADATA.key: [_CLUSTER_ACTION],
    messages.CONTROLLED_SHUTDOWN.key: [_CLUSTER_ACTION],
    messages.ALLOCATE_PRODUCER_IDS.key: [_CLUSTER_ACTION],
    messages.WRITE_TXN_MARKERS.key: [RequestRule(cluster(Operation.CLUSTER_ACTION), _markers)],
    # Topics.
    messages.CREATE_TOPICS.key: [
        RowRule(
            "topics",
            "topics",
            _each_topic(Operation.CREATE),
            name_row(error_message=None, topic_config_error_code=int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)),
            Operation.CREATE,
        )
    ],
    messages.CREATE_PARTITIONS.key: [RowRule("topics", "results", _each_topic(Operation.ALTER), name_row())],
    messages.DELETE_RECORDS.key: [
        RowRule("topics", "topics", _each_topic(Operation.DELETE), with_partitions(low_watermark=-1))
    ],
    messages.LIST_OFFSETS.key: [
        RowRule("topics", "topics", _each_topic(Operation.DESCRIBE), with_partitions(old_style_offsets=[]))
    ],
    messages.OFFSET_FOR_LEADER_EPOCH.key: [
        RowRule(
            "topics",
            "topics",
            _each_topic(Operation.DESCRIBE, "topic"),
            with_partitions("topic", index="partition", response_index="partition"),
            Operation.CLUSTER_ACTION,
        )
    ],
    messages.DESCRIBE_PRODUCERS.key: [
        RowRule(
            "topics",
            "topics",
            _each_topic(Operation.READ),
            with_partitions(partitions="partition_indexes", index=None, active_producers=[]),
        )
    ],
    # Settings.
    messages.DESCRIBE_CONFIGS.key: [
        RowRule(
            "resources", "results", _config(Operation.DESCRIBE_CONFIGS, Operation.DESCRIBE_CONFIGS), config_resource
        )
    ],
    messages.ALTER_CONFIGS.key: [
        RowRule("resources", "responses", _config(Operation.ALTER_CONFIGS, Operation.ALTER_CONFIGS), config_resource)
    ],
    messages.INCREMENTAL_ALTER_CONFIGS.key: [
        RowRule("resources", "responses", _config(Operation.ALTER_CONFIGS, Operation.ALTER_CONFIGS), config_resource)
    ],
    messages.LIST_CONFIG_RESOURCES.key: [RequestRule(cluster(Operation.DESCRIBE_CONFIGS), only_code)],
    # The cluster.
    messages.ELECT_LEADERS.key: [RequestRule(cluster(Operation.ALTER), _rows_of_topics(*_ELECTIONS))],
    messages.ALTER_PARTITION_REASSIGNMENTS.key: [
        RequestRule(cluster(Operation.ALTER), _rows_of_topics("topics", "responses", with_partitions()))
    ],
    messages.LIST_PARTITION_REASSIGNMENTS.key: [
        RequestRule(cluster(Operation.DESCRIBE), _rows_of_topics("topics", "topics", _REASSIGNMENTS))
    ],
    messages.ALTER_REPLICA_LOG_DIRS.key: [RequestRule(cluster(Operation.ALTER), _log_dirs)],
    messages.DESCRIBE_LOG_DIRS.key: [RequestRule(cluster(Operation.DESCRIBE), only_code)],
    messages.UPDATE_FEATURES.key: [RequestRule(cluster(Operation.ALTER), only_code)],
    # Access control, credentials and quotas.
    messages.DESCRIBE_ACLS.key: [RequestRule(cluster(Operation.DESCRIBE), only_code)],
    messages.CREATE_ACLS.key: [RequestRule(cluster(Operation.ALTER), _each("creations", "results"))],
    messages.DELETE_ACLS.key: [RequestRule(cluster(Operation.ALTER), _each("filters", "filter_results"))],
    messages.DESCRIBE_CLIENT_QUOTAS.key: [RequestRule(cluster(Operation.DESCRIBE_CONFIGS), only_code)],
    messages.ALTER_CLIENT_QUOTAS.key: [
        RequestRule(cluster(Operation.ALTER_CONFIGS), _each("entries", "entries", "entity"))
    ],
    messages.DESCRIBE_USER_SCRAM_CREDENTIALS.key: [RequestRule(cluster(Operation.DESCRIBE), _no_scram_users)],
    messages.ALTER_USER_SCRAM_CREDENTIALS.key: [RequestRule(cluster(Operation.ALTER), _scram_users)],
    # Groups.
    messages.JOIN_GROUP.key: [_MEMBER],
    messages.SYNC_GROUP.key: [_MEMBER],
    messages.HEARTBEAT.key: [_MEMBER],
    messages.LEAVE_GROUP.key: [_MEMBER],
    messages.CONSUMER_GROUP_HEARTBEAT.key: [_MEMBER],
    messages.OFFSET_COMMIT.key: [
        RequestRule(_member, _committed()),
        RowRule("topics", "topics", _each_topic(Operation.READ), with_partitions()),
    ],
    messages.OFFSET_DELETE.key: [
        RequestRule(lambda body: [(Operation.DELETE, group(body["group_id"]))], only_code),
        RowRule("topics", "topics", _each_topic(Operation.READ), with_partitions()),
    ],
    messages.DESCRIBE_GROUPS.key: [
        RowRule("groups", "groups", _each_group(Operation.DESCRIBE), name_row(None, "group_id"))
    ],
    messages.CONSUMER_GROUP_DESCRIBE.key: [
        RowRule("group_ids", "groups", _each_group(Operation.DESCRIBE), name_row(None, "group_id"))
    ],
    messages.DELETE_GROUPS.key: [
        RowRule("groups_names", "results", _each_group(Operation.DELETE), name_row(None, "group_id"))
    ],
    # Producers.
    messages.INIT_PRODUCER_ID.key: [RequestRule(_producer, _no_producer)],
    messages.DESCRIBE_TRANSACTIONS.key: [
        RowRule(
            "transactional_ids",
            "transaction_states",
            lambda name: (Operation.DESCRIBE, transactional_id(name)),
            name_row(None, "transactional_id"),
        )
    ],
    messages.ADD_OFFSETS_TO_TXN.key: [RequestRule(_added_offsets, only_code)],
    messages.END_TXN.key: [RequestRule(_transaction, only_code)],
    messages.TXN_OFFSET_COMMIT.key: [
        RequestRule(_added_offsets, _committed()),
        RowRule("topics", "topics", _each_topic(Operation.READ), with_partitions()),
    ],
}
"""The rules of each API, checked in order before the handler; the first that rejects the whole request is the last."""
