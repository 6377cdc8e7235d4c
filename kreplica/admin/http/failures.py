"""Maps exceptions of handlers to problem documents with advice."""

from __future__ import annotations

from kreplica.admin.http.problems import Problem
from kreplica.client.errors import ClientError
from kreplica.cluster.znodes import ZnodeError
from kreplica.errors import ErrorCode, KafkaError
from kreplica.zookeeper import (
    BadArguments,
    ConnectionLoss,
    NoAuth,
    NotSent,
    RequestTooLarge,
    SessionExpired,
    ZooKeeperError,
)

_BY_STATUS: dict[int, tuple[ErrorCode, ...]] = {
    403: (
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED,
        ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
        ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH,
        ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.SECURITY_DISABLED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.TOPIC_DELETION_DISABLED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
    404: (
        ErrorCode.BROKER_ID_NOT_REGISTERED,
        ErrorCode.DELEGATION_TOKEN_NOT_FOUND,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.LOG_DIR_NOT_FOUND,
        ErrorCode.RESOURCE_NOT_FOUND,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ),
    409: (
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.DELEGATION_TOKEN_EXPIRED,
        ErrorCode.DUPLICATE_RESOURCE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        ErrorCode.NON_EMPTY_GROUP,
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.REASSIGNMENT_IN_PROGRESS,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    ),
    413: (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE),
    # RFC 9110: this server is not responsible for that host.
    421: (ErrorCode.NOT_COORDINATOR,),
    500: (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.KAFKA_STORAGE_ERROR),
    501: (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    503: (
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ),
}
_STATUS = {code: status for status, codes in _BY_STATUS.items() for code in codes}

_RETRY = "Try again in a moment."
_WHAT_TO_DO = {
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "Set delegation.token.secret.key on all brokers.",
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND: "GET /v1/tokens lists the tokens.",
    ErrorCode.NON_EMPTY_GROUP: "Stop the group's members, and try again.",
    ErrorCode.NOT_COORDINATOR: "Send the request to the coordinator of the group.",
    ErrorCode.REASSIGNMENT_IN_PROGRESS: "Wait until the replicas have moved, or cancel the plan that moves them.",
    ErrorCode.TOPIC_ALREADY_EXISTS: "Choose another name, or change the existing topic.",
    ErrorCode.TOPIC_DELETION_DISABLED: "Set delete.topic.enable=true on all brokers, and restart them.",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "GET /v1/topics lists the topics.",
    ErrorCode.GROUP_ID_NOT_FOUND: "GET /v1/groups lists the groups.",
}


def status_of(code: ErrorCode) -> int:
    """Return the HTTP status of a Kafka error: 4xx if the caller must change the request, 503 if a retry can
    succeed."""
    return _STATUS.get(code, 503 if code.retriable else 400)


def problem_of(error: BaseException) -> Problem | None:
    """Return the problem of an exception; None if it is unexpected."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, KafkaError):
        return _of_kafka(error)
    if isinstance(error, ZooKeeperError):
        return _of_zookeeper(error)
    if isinstance(error, ClientError):
        return Problem(503, "BROKER_NOT_AVAILABLE", f"request to a broker failed: {error}", what_to_do=_RETRY)
    if isinstance(error, ZnodeError):
        return Problem(500, "UNKNOWN_SERVER_ERROR", str(error), what_to_do="Check the content of that znode.")
    return None


def _of_kafka(error: KafkaError) -> Problem:
    status = status_of(error.code)
    what_to_do = _WHAT_TO_DO.get(error.code, _RETRY if status == 503 else None)
    return Problem(status, error.code.name, error.message or _in_words(error.code), what_to_do=what_to_do)


def _in_words(code: ErrorCode) -> str:
    return code.name.lower().replace("_", " ")


def _of_zookeeper(error: ZooKeeperError) -> Problem:
    if isinstance(error, RequestTooLarge):
        advice = "Split the request into smaller ones."
        return Problem(413, "CONTENT_TOO_LARGE", f"ZooKeeper: {error}", what_to_do=advice)
    if isinstance(error, BadArguments):
        return Problem(400, "INVALID_REQUEST", f"ZooKeeper: {error}")
    if isinstance(error, NoAuth):
        return Problem(403, "CLUSTER_AUTHORIZATION_FAILED", f"ZooKeeper denied access to this broker: {error}")
    if isinstance(error, ConnectionLoss) and not isinstance(error, NotSent):
        return Problem(
            503,
            "COORDINATION_UNAVAILABLE",
            f"ZooKeeper: {error}",
            what_to_do="The write may have succeeded: check the state before you retry.",
        )
    if isinstance(error, (NotSent, SessionExpired)):
        return Problem(
            503,
            "COORDINATION_UNAVAILABLE",
            f"this broker cannot reach ZooKeeper: {error}",
            what_to_do="Nothing was written. Check that ZooKeeper is reachable (see /health/ready), and try again.",
        )
    return Problem(503, "COORDINATION_UNAVAILABLE", f"ZooKeeper: {error}", what_to_do=_RETRY)
