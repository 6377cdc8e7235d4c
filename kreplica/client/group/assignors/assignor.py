"""Interface of assignors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from kreplica.client_core.offsets import NO_GENERATION
from kreplica.model import TopicPartition

Topics: TypeAlias = Mapping[str, Mapping[int, frozenset[str]]]
"""Topic -> partition number -> racks of its replicas."""

Shares: TypeAlias = dict[str, list[TopicPartition]]
"""Member id -> partitions; each partition at most once."""


@dataclass(frozen=True, slots=True)
class Member:
    """A group member and the content of its subscription.

    :param topics: subscribed topics.
    :param owned: partitions that it currently owns; empty for eager members.
    :param generation: generation in which these partitions were assigned.
    :param user_data: data that its assignor stored in the previous generation.
    """

    member_id: str
    topics: frozenset[str]
    instance_id: str | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION
    rack: str | None = None
    user_data: bytes = b""


class Assignor(Protocol):
    """Assigns partitions to members; stateless."""

    @property
    def name(self) -> str:
        """The assignor's name in JoinGroup requests, by which the members agree on an assignor."""

    @property
    def is_cooperative(self) -> bool:
        """True if it assigns no partition that another member still owns (KIP-429)."""

    def user_data(self, assigned: frozenset[TopicPartition], generation: int) -> bytes | None:
        """Return the data to send with a member's subscription in the next rebalance.

        :param assigned: the member's assignment in the last generation.
        """

    def assign(self, topics: Topics, members: Sequence[Member]) -> Shares:
        """Assign all partitions to the members that are subscribed to their topics."""


def sorted_members(members: Sequence[Member]) -> list[Member]:
    """Sort static members by instance id, then dynamic members by member id.

    A static member keeps its position after a restart and so is assigned the same partitions.
    """
    return sorted(members, key=lambda each: (each.instance_id is None, each.instance_id or each.member_id))


def subscribers(topics: Topics, members: Sequence[Member]) -> dict[str, list[Member]]:
    """Return the sorted topics with their sorted subscribers; topics without subscribers are skipped."""
    ordered = sorted_members(members)
    found = {topic: [each for each in ordered if topic in each.topics] for topic in sorted(topics)}
    return {topic: subscribed for topic, subscribed in found.items() if subscribed}
