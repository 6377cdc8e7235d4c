"""What an assignor is asked, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from kreplica.client_core.offsets import NO_GENERATION
from kreplica.model import TopicPartition

Topics: TypeAlias = Mapping[str, Mapping[int, frozenset[str]]]
"""Topics that there are, with the numbers of their partitions, and the racks in which each has replicas."""

Shares: TypeAlias = dict[str, list[TopicPartition]]
"""What each member gets, by member id; each partition once at most."""


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a group, as it describes itself when it joins.

    :param topics: that it is subscribed to.
    :param owned: what it still has in this moment, by its own account; eager members have nothing.
    :param generation: in which it got that.
    :param user_data: what its assignor gave it to carry with it.
    """

    member_id: str
    topics: frozenset[str]
    instance_id: str | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION
    rack: str | None = None
    user_data: bytes = b""


class Assignor(Protocol):
    """Shares partitions out; it remembers nothing."""

    @property
    def name(self) -> str:
        """By which members agree on it."""

    @property
    def is_cooperative(self) -> bool:
        """Whether it gives nobody what another member has still, so that members may keep what they have (KIP-429)."""

    def user_data(self, assigned: frozenset[TopicPartition], generation: int) -> bytes | None:
        """What a member is to carry with it into the next rebalance.

        :param assigned: what it got in that generation, which was its last one.
        """

    def assign(self, topics: Topics, members: Sequence[Member]) -> Shares:
        """Share all partitions out among those who are subscribed to their topics."""


def in_order(members: Sequence[Member]) -> list[Member]:
    """Static members by their instance ids, then the others by their member ids.

    So a static member that was restarted stands where it stood, and gets what it got.
    """
    return sorted(members, key=lambda each: (each.instance_id is None, each.instance_id or each.member_id))


def subscribers(topics: Topics, members: Sequence[Member]) -> dict[str, list[Member]]:
    """Topics in their order, each with its members in theirs; without topics that nobody reads."""
    ordered = in_order(members)
    found = {topic: [each for each in ordered if topic in each.topics] for topic in sorted(topics)}
    return {topic: takers for topic, takers in found.items() if takers}
