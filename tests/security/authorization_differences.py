"""Differences between kreplica's and Apache Kafka 3.9.1's answers to the authorization matrix.

``docs/reference/kafka-compatibility.md`` shows these rows.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from authorization_client import CLOSED

from kreplica.errors import ErrorCode


class Difference(NamedTuple):
    """A difference between the answers.

    :param cases: patterns for the names of cases.
    :param own: error codes that kreplica's answers may have; None for a closed connection.
    """

    cases: tuple[str, ...]
    own: frozenset[ErrorCode | None]
    behaviour: str
    kafka: str
    kreplica: str
    reason: str

    def covers(self, case: str, answer: Any) -> bool:
        """Return True if the difference explains an answer from kreplica."""
        return any(fnmatchcase(case, pattern) for pattern in self.cases) and _codes(answer) <= self.own

    @property
    def row(self) -> str:
        """Return the row for the table in the documentation."""
        return f"| {self.behaviour} | {self.kafka} | {self.kreplica} | {self.reason} |"


def _codes(answer: Any) -> frozenset[ErrorCode | None]:
    """Return all error codes in an answer."""
    if answer == CLOSED:
        return frozenset({None})
    if isinstance(answer, list):
        return frozenset().union(*map(_codes, answer)) if answer else frozenset()
    if isinstance(answer, dict):
        inner = frozenset().union(*map(_codes, answer.values()))
        codes = [value for key, value in answer.items() if key.endswith("error_code")]
        return inner | {ErrorCode(code) for code in codes}
    return frozenset()


NONE, TOPIC_REFUSED = ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED

DIFFERENCES = (
    Difference(
        ("produce in a transaction without an id, *",),
        frozenset({TOPIC_REFUSED, ErrorCode.INVALID_RECORD}),
        "Produce without a transactional ID, with batches of a transaction",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "TOPIC_AUTHORIZATION_FAILED without Write on the topic, otherwise INVALID_RECORD",
        "permissions are checked before batches are read; no client sends such a request",
    ),
    Difference(
        ("produce with an unused id, *",),
        frozenset({ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.INVALID_RECORD}),
        "Produce with a transactional ID, with batches that are not transactional",
        "the transactional ID is ignored",
        "Write on the transactional ID is required, and the batches are rejected with INVALID_RECORD",
        "permissions are checked before batches are read; no client sends such a request",
    ),
    Difference(
        ("fetch of a follower, *: only Cluster Action Cluster", "fetch of a follower, *: super user"),
        frozenset({ErrorCode.STALE_BROKER_EPOCH, None}),
        "Fetch by a broker that is not registered",
        "NOT_LEADER_OR_FOLLOWER for partitions without a replica on it",
        "STALE_BROKER_EPOCH, or a closed connection before version 7",
        "[forged follower fetches](../explanation/threat-model.md#forged-follower-fetches) must not move the high "
        "watermark",
    ),
    Difference(
        ("delete topics, version 6: *",),
        frozenset({NONE, TOPIC_REFUSED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}),
        "Topic ID in the response to DeleteTopics by name",
        "the zero ID with ZooKeeper, the topic ID with KRaft",
        "the topic ID",
        "the same as with KRaft",
    ),
    Difference(
        ("fetch offsets, version 1: *",),
        frozenset({ErrorCode.GROUP_AUTHORIZATION_FAILED}),
        "OffsetFetch 1 for a group without Describe",
        "an empty response",
        "GROUP_AUTHORIZATION_FAILED for each partition",
        "this version has no other field for the error; with an empty response, the client would assume that no "
        "offsets are committed",
    ),
    Difference(
        ("synchronize a group without a protocol, version 5: no ACL",),
        frozenset({ErrorCode.GROUP_AUTHORIZATION_FAILED}),
        "SyncGroup 5 without a protocol name, and without Read on the group",
        "INCONSISTENT_GROUP_PROTOCOL",
        "GROUP_AUTHORIZATION_FAILED",
        "permissions are checked first",
    ),
    Difference(
        ("heartbeat of KIP-848, *", "describe groups of KIP-848, *"),
        frozenset({NONE, ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.GROUP_ID_NOT_FOUND}),
        "Group protocol of KIP-848 in ZooKeeper mode",
        "UNSUPPORTED_VERSION",
        "served; the same permissions as with KRaft",
        "kreplica supports the protocol in both modes",
    ),
    Difference(
        ("list client metrics, *", "get telemetry subscriptions, *", "push telemetry, *"),
        frozenset({NONE, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.INVALID_REQUEST}),
        "ListConfigResources, GetTelemetrySubscriptions and PushTelemetry in ZooKeeper mode",
        "the connection is closed",
        "served; the same permissions as with KRaft",
        "[metrics of clients](../how-to/client-metrics.md) do not depend on KRaft",
    ),
    Difference(
        ("ApiVersions, *",),
        frozenset({NONE}),
        "Features in ApiVersions in ZooKeeper mode",
        "none",
        "those of the supported group and transaction protocols",
        "clients need them to select these protocols",
    ),
    Difference(
        ("alter the key store of *: no ACL",),
        frozenset({ErrorCode.CLUSTER_AUTHORIZATION_FAILED}),
        "IncrementalAlterConfigs with an invalid key store, without AlterConfigs",
        "INVALID_REQUEST",
        "CLUSTER_AUTHORIZATION_FAILED",
        "permissions are checked first, so that clients cannot find out which files exist on a broker's machine",
    ),
    Difference(
        ("alter partition, *",),
        frozenset({None}),
        "AlterPartition",
        "CLUSTER_AUTHORIZATION_FAILED without ClusterAction",
        "the connection is closed",
        "the API is not served (see [Not supported](#not-supported))",
    ),
    Difference(
        ("sequence: message without a token of OAUTHBEARER",),
        frozenset({None, ErrorCode.SASL_AUTHENTICATION_FAILED}),
        "OAUTHBEARER message with a scheme other than Bearer",
        "the connection is closed",
        "SASL_AUTHENTICATION_FAILED, then the connection is closed",
        "the same as for other malformed messages",
    ),
    Difference(
        ("sequence: another request instead of a token",),
        frozenset({None}),
        "Another request between SaslHandshake and SaslAuthenticate",
        "a response with ILLEGAL_SASL_STATE if it has a field for the error, then the connection is closed",
        "the connection is closed; only ApiVersions and SaslHandshake receive ILLEGAL_SASL_STATE",
        "most of these responses have no field for the error",
    ),
)
