"""Equal shares of which little moves (KIP-54), and the same in two steps, so that members keep what stays (KIP-429)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kreplica.client.group.assignors.assignor import Member, Shares, Topics, in_order
from kreplica.client.group.assignors.balancing import Balance
from kreplica.client.group.assignors.sticky_data import (
    Claim,
    build_cooperative,
    build_eager,
    cooperative_claim,
    eager_claim,
)
from kreplica.model import TopicPartition


class StickyAssignor:
    """Eager: members give everything up before they join, and say what they had."""

    name = "sticky"
    is_cooperative = False

    def user_data(self, assigned: frozenset[TopicPartition], generation: int) -> bytes | None:
        """What it got last."""
        return build_eager(assigned, generation) if assigned else None

    def assign(self, topics: Topics, members: Sequence[Member]) -> Shares:
        """See ``Assignor``."""
        return _balanced(topics, members, {each.member_id: eager_claim(each) for each in members})


class CooperativeStickyAssignor:
    """What is to move is given to nobody at first: who has it gives it up, and then there is another rebalance."""

    name = "cooperative-sticky"
    is_cooperative = True

    def user_data(self, assigned: frozenset[TopicPartition], generation: int) -> bytes | None:
        """The generation; what a member has, its subscription says."""
        return build_cooperative(generation)

    def assign(self, topics: Topics, members: Sequence[Member]) -> Shares:
        """See ``Assignor``."""
        claims = {each.member_id: cooperative_claim(each) for each in members}
        shares = _balanced(topics, members, claims)
        holders: dict[TopicPartition, set[str]] = {}
        for member_id, claim in claims.items():
            for partition in claim.partitions:
                holders.setdefault(partition, set()).add(member_id)
        return {
            member_id: [each for each in share if not holders.get(each, set()) - {member_id}]
            for member_id, share in shares.items()
        }


def _balanced(topics: Topics, members: Sequence[Member], claims: Mapping[str, Claim]) -> Shares:
    ordered = in_order(members)
    balance = Balance(topics, [(each.member_id, each.topics) for each in ordered])
    for member_id, partition in _kept(ordered, claims):
        balance.keep(member_id, partition)
    balance.hand_out()
    balance.level()
    return balance.shares()


def _kept(members: Sequence[Member], claims: Mapping[str, Claim]) -> list[tuple[str, TopicPartition]]:
    """Whose each partition was last: of several that claim it, the one of the latest generation.

    Where two say the same generation, which no group does, nobody keeps it.
    """
    best: dict[TopicPartition, tuple[int, str | None]] = {}
    for member in members:
        claim = claims[member.member_id]
        for partition in dict.fromkeys(claim.partitions):
            generation, _ = best.get(partition, (claim.generation - 1, None))
            if claim.generation > generation:
                best[partition] = claim.generation, member.member_id
            elif claim.generation == generation:
                best[partition] = generation, None
    return [(member_id, partition) for partition, (_, member_id) in best.items() if member_id is not None]
