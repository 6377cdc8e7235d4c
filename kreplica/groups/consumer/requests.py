"""ConsumerGroupHeartbeat requests and the part of their validation that does not depend on the group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kreplica.errors import ErrorCode, KafkaError
from kreplica.groups.consumer.assignment import Assignment, from_rows
from kreplica.groups.consumer.members import JOINING, LEAVING, LEAVING_TEMPORARILY, NOT_SET
from kreplica.groups.consumer_records import KEY_TEXT_BYTES_MAX

CLIENT_MEMBER_ID_VERSION_MIN = 1
"""First version of ConsumerGroupHeartbeat in which clients generate the member ids (KIP-1082)."""

SUBSCRIPTION_NAMES_MAX = 100_000
"""Maximum number of topic names in a subscription."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A heartbeat; fields that are None are unchanged since the last heartbeat.

    :param member_epoch: ``JOINING``, ``LEAVING``, ``LEAVING_TEMPORARILY``, or the epoch of the last response.
    :param rebalance_timeout_ms: timeout for revocations; ``NOT_SET`` if unchanged.
    :param regular_expression: topic pattern that is subscribed to; empty if there is none.
    :param owned: partitions that the member owns.
    """

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = NOT_SET
    topic_names: tuple[str, ...] | None = None
    regular_expression: str | None = None
    server_assignor: str | None = None
    owned: Assignment | None = None
    client_id: str = ""
    client_host: str = ""

    @property
    def is_leaving(self) -> bool:
        """True if the member leaves, temporarily or permanently."""
        return self.member_epoch in (LEAVING, LEAVING_TEMPORARILY)

    @property
    def is_full(self) -> bool:
        """True if the heartbeat contains all fields; the response to it always contains the assignment."""
        has_subscription = self.topic_names is not None or self.regular_expression is not None
        return self.rebalance_timeout_ms != NOT_SET and has_subscription and self.owned is not None


def read_heartbeat(body: Mapping[str, Any], client_id: str | None, client_host: str) -> Heartbeat:
    """Return the heartbeat in a request body.

    :param client_id: from the request header.
    :param client_host: client address, as shown by tools.
    """
    names, owned = body["subscribed_topic_names"], body["topic_partitions"]
    return Heartbeat(
        group_id=body["group_id"],
        member_id=body["member_id"],
        member_epoch=body["member_epoch"],
        instance_id=body["instance_id"],
        rack_id=body["rack_id"],
        rebalance_timeout_ms=body["rebalance_timeout_ms"],
        topic_names=None if names is None else tuple(sorted(dict.fromkeys(names))),
        regular_expression=body.get("subscribed_topic_regex"),
        server_assignor=body["server_assignor"],
        owned=None if owned is None else from_rows(owned),
        client_id=client_id or "",
        client_host=client_host,
    )


def check(heartbeat: Heartbeat, version: int, assignors: tuple[str, ...]) -> None:
    """Raise an error if a heartbeat is invalid regardless of the group's state.

    :param version: version of the request.
    :param assignors: names of the available assignors.
    :raise KafkaError: INVALID_GROUP_ID, INVALID_REQUEST, UNSUPPORTED_ASSIGNOR.
    """
    _check_texts(heartbeat)
    epoch = heartbeat.member_epoch
    if not heartbeat.member_id and (version >= CLIENT_MEMBER_ID_VERSION_MIN or epoch != JOINING):
        raise _invalid("member_id is empty")
    if epoch < LEAVING_TEMPORARILY:
        raise _invalid(f"member_epoch {epoch} is not allowed")
    if epoch == LEAVING_TEMPORARILY and heartbeat.instance_id is None:
        raise _invalid("only a static member (with an instance_id) may leave temporarily")
    if epoch == JOINING:
        _check_joining(heartbeat)
    assignor = heartbeat.server_assignor
    if assignor is not None and assignor not in assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR, f"unknown assignor {assignor!r}; available: {', '.join(assignors)}"
        )


def _check_texts(heartbeat: Heartbeat) -> None:
    group_id = heartbeat.group_id
    if not group_id or _is_too_long(group_id):
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "group_id is empty or too long")
    for name in ("member_id", "instance_id", "rack_id", "regular_expression"):
        value: str | None = getattr(heartbeat, name)
        if value is not None and _is_too_long(value):
            raise _invalid(f"{name} is longer than {KEY_TEXT_BYTES_MAX} bytes")
        if value is not None and not value.strip() and name in ("instance_id", "rack_id"):
            raise _invalid(f"{name} is empty")
    if heartbeat.topic_names is not None and len(heartbeat.topic_names) > SUBSCRIPTION_NAMES_MAX:
        raise _invalid(f"the subscription has more than {SUBSCRIPTION_NAMES_MAX} topics")


def _check_joining(heartbeat: Heartbeat) -> None:
    if heartbeat.rebalance_timeout_ms == NOT_SET:
        raise _invalid("a joining member must set rebalance_timeout_ms")
    if heartbeat.owned is None or heartbeat.owned:
        raise _invalid("the topic_partitions of a joining member must be empty")
    if heartbeat.topic_names is None and heartbeat.regular_expression is None:
        raise _invalid("a joining member must set its subscription")


def _is_too_long(text: str) -> bool:
    return len(text) > KEY_TEXT_BYTES_MAX or len(text.encode()) > KEY_TEXT_BYTES_MAX


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
