"""Encoding of subscriptions and assignments in a classic group; the coordinator does not interpret them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kreplica.client.group.assignors import Assignor, Member
from kreplica.client_core.errors import MalformedResponse
from kreplica.client_core.offsets import NO_GENERATION, topic_rows
from kreplica.errors import ProtocolError
from kreplica.model import TopicPartition
from kreplica.wire.messages.consumer_protocol import ASSIGNMENT, SUBSCRIPTION, build_versioned, parse_versioned

PROTOCOL_TYPE = "consumer"

SUBSCRIPTION_VERSION = 3
ASSIGNMENT_VERSION = 0
"""Version of assignments; all clients can read it, and later versions add nothing."""


def protocols(
    assignors: Iterable[Assignor],
    topics: Iterable[str],
    owned: frozenset[TopicPartition],
    last: tuple[frozenset[TopicPartition], int],
    rack: str | None,
) -> list[dict[str, Any]]:
    """Return a member's subscription for each of its assignors, as encoded in JoinGroup requests.

    :param owned: partitions that the member currently owns.
    :param last: last assignment and its generation.
    """
    subscribed = sorted(topics)
    rows = topic_rows(owned, lambda each: each.partition, "partitions")
    fields = {
        "topics": subscribed,
        "owned_partitions": [{"topic": row["name"], "partitions": row["partitions"]} for row in rows],
        "generation_id": last[1] if owned else NO_GENERATION,
        "rack_id": rack,
    }
    return [
        {
            "name": assignor.name,
            "metadata": build_versioned(
                SUBSCRIPTION, SUBSCRIPTION_VERSION, {**fields, "user_data": assignor.user_data(*last)}
            ),
        }
        for assignor in assignors
    ]


def parse_members(rows: Sequence[dict[str, Any]]) -> list[Member]:
    """Parse the members of a group from the leader's JoinGroup response.

    :raise MalformedResponse: a subscription is malformed.
    """
    return [_member(row) for row in rows]


def _member(row: dict[str, Any]) -> Member:
    member_id = row["member_id"]
    try:
        _, fields = parse_versioned(SUBSCRIPTION, row["metadata"])
    except ProtocolError as error:
        raise MalformedResponse(f"subscription of member {member_id!r}: {error}") from error
    return Member(
        member_id,
        frozenset(fields["topics"]),
        row.get("group_instance_id"),
        tuple(
            TopicPartition(each["topic"], number)
            for each in fields.get("owned_partitions", ())
            for number in each["partitions"]
        ),
        fields.get("generation_id", NO_GENERATION),
        fields.get("rack_id"),
        bytes(fields["user_data"] or b""),
    )


def build_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """Encode a member's assignment."""
    rows = topic_rows(partitions, lambda each: each.partition, "partitions")
    assigned = [{"topic": row["name"], "partitions": row["partitions"]} for row in rows]
    return build_versioned(ASSIGNMENT, ASSIGNMENT_VERSION, {"assigned_partitions": assigned})


def parse_assignment(data: bytes) -> frozenset[TopicPartition]:
    """Parse a member's assignment.

    :raise MalformedResponse: the data is malformed.
    """
    if not data:
        return frozenset()
    try:
        _, fields = parse_versioned(ASSIGNMENT, data)
    except ProtocolError as error:
        raise MalformedResponse(f"malformed assignment: {error}") from error
    rows = fields["assigned_partitions"]
    return frozenset(TopicPartition(row["topic"], number) for row in rows for number in row["partitions"])
