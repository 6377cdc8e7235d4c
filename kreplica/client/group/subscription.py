"""What members of a classic group tell each other, through a coordinator that does not look at it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kreplica.client.group.assignors import Assignor, Member
from kreplica.client_core.errors import MalformedAnswer
from kreplica.client_core.offsets import NO_GENERATION, topic_rows
from kreplica.errors import ProtocolError
from kreplica.model import TopicPartition
from kreplica.wire.messages.consumer_protocol import ASSIGNMENT, SUBSCRIPTION, build_versioned, parse_versioned

PROTOCOL_TYPE = "consumer"

SUBSCRIPTION_VERSION = 3
ASSIGNMENT_VERSION = 0
"""No version says more, and all clients read this one."""


def protocols(
    assignors: Iterable[Assignor],
    topics: Iterable[str],
    owned: frozenset[TopicPartition],
    last: tuple[frozenset[TopicPartition], int],
    rack: str | None,
) -> list[dict[str, Any]]:
    """What a member says when it joins: for each assignor that it has, what that one is to know of it.

    :param owned: what it has in this moment.
    :param last: what it got last, and in which generation.
    """
    wanted = sorted(topics)
    rows = topic_rows(owned, lambda each: each.partition, "partitions")
    fields = {
        "topics": wanted,
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
    """The members of a group, as its leader is told of them.

    :raise MalformedAnswer: one says what cannot be understood.
    """
    return [_member(row) for row in rows]


def _member(row: dict[str, Any]) -> Member:
    member_id = row["member_id"]
    try:
        _, fields = parse_versioned(SUBSCRIPTION, row["metadata"])
    except ProtocolError as error:
        raise MalformedAnswer(f"what member {member_id!r} says of itself: {error}") from error
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
    """What a leader gives a member."""
    rows = topic_rows(partitions, lambda each: each.partition, "partitions")
    assigned = [{"topic": row["name"], "partitions": row["partitions"]} for row in rows]
    return build_versioned(ASSIGNMENT, ASSIGNMENT_VERSION, {"assigned_partitions": assigned})


def parse_assignment(data: bytes) -> frozenset[TopicPartition]:
    """What a member was given.

    :raise MalformedAnswer: it cannot be understood.
    """
    if not data:
        return frozenset()
    try:
        _, fields = parse_versioned(ASSIGNMENT, data)
    except ProtocolError as error:
        raise MalformedAnswer(f"an assignment: {error}") from error
    rows = fields["assigned_partitions"]
    return frozenset(TopicPartition(row["topic"], number) for row in rows for number in row["partitions"])
