"""User data of the sticky assignors, in the format of the Java client."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kreplica.client.group.assignors.assignor import Member
from kreplica.client_core.offsets import NO_GENERATION, topic_rows
from kreplica.errors import ProtocolError
from kreplica.model import TopicPartition
from kreplica.wire.schema import Schema

EAGER = Schema(
    "StickyAssignorUserData",
    (0, 1),
    None,
    """
    previous_assignment []
      topic str
      partitions []i32
    generation i32 1+ =-1
    """,
)
"""User data of ``sticky``; the data does not contain its version."""

COOPERATIVE = Schema("CooperativeStickyAssignorUserData", (0, 0), None, "generation i32")


class Claim(NamedTuple):
    """Partitions that a member claims to have owned in a generation."""

    partitions: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION


def build_eager(assigned: Iterable[TopicPartition], generation: int) -> bytes:
    """Encode the user data of ``sticky``."""
    rows = topic_rows(assigned, lambda each: each.partition, "partitions")
    previous = [{"topic": row["name"], "partitions": row["partitions"]} for row in rows]
    return EAGER.build(1, {"previous_assignment": previous, "generation": generation})


def build_cooperative(generation: int) -> bytes:
    """Encode the user data of ``cooperative-sticky``."""
    return COOPERATIVE.build(0, {"generation": generation})


def eager_claim(member: Member) -> Claim:
    """Return the last assignment of a ``sticky`` member; empty if its data is malformed."""
    for version in (1, 0):
        try:
            fields = EAGER.parse(version, member.user_data)
        except ProtocolError:
            continue
        rows = fields["previous_assignment"]
        partitions = tuple(TopicPartition(row["topic"], number) for row in rows for number in row["partitions"])
        return Claim(partitions, fields.get("generation", NO_GENERATION))
    return Claim()


def cooperative_claim(member: Member) -> Claim:
    """Return the owned partitions of a ``cooperative-sticky`` member."""
    generation = member.generation
    if generation == NO_GENERATION:
        try:
            generation = COOPERATIVE.parse(0, member.user_data)["generation"]
        except ProtocolError:
            generation = eager_claim(member).generation  # librdkafka uses the format of ``sticky`` for both assignors
    return Claim(member.owned, generation)
