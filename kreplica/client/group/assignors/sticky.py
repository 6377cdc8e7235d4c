"""Equal shares with few moves: eager (KIP-54), or cooperative, so that only moving partitions are revoked (KIP-429)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kreplica.client.group.assignors.assignor import Member, Shares, Topics, sorted_members
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
    """Eager sticky assignor: members release all partitions before they rejoin, and report their last assignment."""

    name = "sticky"
    is_cooperative = False

    def user_data(self, assigned: frozenset[TopicPartition], generation: int) -> bytes | None:
        """Return the last assignment."""
        return build_eager(assigned, generation) if assigned else None

    def assign(self, topics: Topics, members: Sequence[Member]) -> Shares:
        """See ``Assignor``."""
        return _balance(topics, members, {each.member_id: eager_claim(each) for each in members})


class CooperativeStickyAssignor:
    """Cooperative sticky assignor: a partition that moves is revoked first and assigned in the next rebalance."""

    name = "cooperative-sticky"
    is_cooperative = True

    def user_data(self, assigned: frozenset[TopicPartition], generation: int) -> bytes | None:
        """Return the generation; the subscription contains the owned partitions."""
        return build_cooperative(generation)

    def assign(self, topics: Topics, members: Sequence[Member]) -> Shares:
        """See ``Assignor``."""
        claims = {each.member_id: cooperative_claim(each) for each in members}
        shares = _balance(topics, members, claims)
        holders: dict[TopicPartition, set[str]] = {}
        for member_id, claim in claims.items():
            for partition in claim.partitions:
                holders.setdefault(partition, set()).add(member_id)
        return {
            member_id: [each for each in share if not holders.get(each, set()) - {member_id}]
            for member_id, share in shares.items()
        }


def _balance(topics: Topics, members: Sequence[Member], claims: Mapping[str, Claim]) -> Shares:
    ordered = sorted_members(members)
    balance = Balance(topics, [(each.member_id, each.topics) for each in ordered])
    for member_id, partition in _kept_partitions(ordered, claims):
        balance.keep(member_id, partition)
    balance.assign_free()
    balance.level()
    return balance.shares()


def _kept_partitions(members: Sequence[Member], claims: Mapping[str, Claim]) -> list[tuple[str, TopicPartition]]:
    """Return each partition with its last owner: the member that claims it for the latest generation.

    If two members claim a partition for the same generation, no member keeps it.
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
