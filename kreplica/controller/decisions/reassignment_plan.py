"""Pure functions for the steps of one partition's reassignment (KIP-455).

A reassignment is a single value, ``Placement``, stored in the topic's znode, so that any controller can continue it:

1. *expand*: the replicas become the target followed by the old replicas; new replicas catch up as followers.
2. Wait until the target is in sync.
3. *contract*: only the target remains and leads; the removed replicas are ``dropped``.
4. The dropped replicas delete their files, which ends the reassignment.

A new target replaces an ongoing one; cancelling sets the original replicas as the target.  In-sync and eligible
replicas stay until step 3 in any case, because they may hold records that the target does not have yet (KIP-966).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from kreplica.controller.decisions.leader_election import Election, elect_reassigned
from kreplica.model import LeaderAndIsr, TopicAssignment


@dataclass(frozen=True, slots=True)
class Placement:
    """Current and target replicas of a partition, with the preferred leader first."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas after the reassignment."""
        return tuple(replica for replica in self.replicas if replica not in self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        """The replicas before the reassignment; a cancellation restores them."""
        return tuple(replica for replica in self.replicas if replica not in self.adding)

    @property
    def dropped(self) -> tuple[int, ...]:
        """Removed replicas whose files have not been deleted yet."""
        return tuple(replica for replica in self.removing if replica not in self.replicas)

    @property
    def is_moving(self) -> bool:
        """True if replicas are being added or removed; False if only files have to be deleted."""
        return bool(self.adding) or any(replica in self.removing for replica in self.replicas)


def placement_of(assignment: TopicAssignment, partition: int) -> Placement:
    """Return the placement of one partition of an assignment."""
    return Placement(
        assignment.partitions[partition],
        assignment.adding.get(partition, ()),
        assignment.removing.get(partition, ()),
    )


def with_placements(assignment: TopicAssignment, placements: Mapping[int, Placement]) -> TopicAssignment:
    """Return a copy of the assignment with new placements for these partitions."""
    partitions, adding, removing = dict(assignment.partitions), dict(assignment.adding), dict(assignment.removing)
    for partition, placement in placements.items():
        partitions[partition] = placement.replicas
        for rows, row in ((adding, placement.adding), (removing, placement.removing)):
            if row:
                rows[partition] = row
            else:
                rows.pop(partition, None)
    return replace(assignment, partitions=partitions, adding=adding, removing=removing)


def reason_to_reject(current: Placement, target: Sequence[int], live: Collection[int]) -> str | None:
    """Return why the replicas cannot be reassigned to ``target``, or None."""
    if not target:
        return "the list of replicas is empty"
    if len(set(target)) != len(target):
        return f"duplicate broker in the list of replicas: {list(target)}"
    dead = [replica for replica in target if replica not in current.origin and replica not in live]
    if dead:
        return f"brokers are not live: {dead}"
    return None


def expand(current: Placement, target: Sequence[int], holders: Collection[int]) -> Placement:
    """Return the placement after the first step; unchanged if the target is already reached.

    :param holders: replicas that may hold records: the in-sync and eligible replicas.  Other replicas of a
        replaced target are dropped immediately.
    """
    origin = current.origin
    kept = [r for r in current.replicas if r not in target and (r in origin or r in holders)]
    replicas = (*target, *kept)
    removing = [*kept, *(r for r in (*current.replicas, *current.dropped) if r not in replicas)]
    return Placement(replicas, tuple(r for r in replicas if r not in origin), tuple(removing))


def contract(
    current: Placement, state: LeaderAndIsr, live: Collection[int], *, in_sync_required: int
) -> Election | None:
    """Return the leader and ISR after the third step, or None while the reassignment must wait.

    :param in_sync_required: number of in-sync replicas required to commit records.
    """
    if not current.is_moving or not can_contract(current, state.isr, in_sync_required=in_sync_required):
        return None
    isr = tuple(replica for replica in state.isr if replica in current.target)
    if state.leader in isr and state.leader in live:
        return Election(state.leader, isr)
    return elect_reassigned(current.target, isr, live)


def can_contract(current: Placement, isr: Collection[int], *, in_sync_required: int) -> bool:
    """Return True if the target can replace all other replicas, because the whole target is in sync.

    When a cancelled reassignment returns to its origin, a replica that was already down must not delay it: in that case
    it is sufficient that records can be committed and at least one replica is in sync.
    """
    in_sync = sum(replica in isr for replica in current.target)
    if set(current.target) == set(current.origin):
        return in_sync >= max(1, min(in_sync_required, len(current.target)))
    return in_sync == len(current.target)


def contracted(current: Placement) -> Placement:
    """Return the placement with only the target as replicas; the others are dropped."""
    return Placement(current.target, (), current.removing)


def without_deleted(current: Placement, brokers: Collection[int]) -> Placement:
    """Return the placement without dropped replicas on these brokers."""
    deleted = [replica for replica in current.dropped if replica in brokers]
    return replace(current, removing=tuple(replica for replica in current.removing if replica not in deleted))
