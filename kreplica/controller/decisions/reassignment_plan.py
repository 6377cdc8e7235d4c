"""How the replicas of one partition move (KIP-455): pure, from one step to the next.

A move is one value, ``Placement``, and all of it stands in the topic's znode, so that any controller can carry it on:

1. *expand*: the replicas are the target and then the others; those that come catch up as followers.
2. wait until the target is in sync.
3. *contract*: the target alone remains, led by one of its own; those that went are ``dropped``.
4. the dropped delete their files, and then nothing of the move is left.

Another target in the middle of it replaces the first, and cancelling is nothing else: the target is then what the
replicas were at the beginning.  Whoever is in sync, or may lead though it is not, stays until step 3, wherever it came
from, for it may hold what nobody else of the target has yet.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from kreplica.controller.decisions.elections import Election, elect_reassigned
from kreplica.model import LeaderAndIsr, TopicAssignment


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a partition's replicas are, and where they go; the preferred leader first."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def target(self) -> tuple[int, ...]:
        """What the replicas shall be."""
        return tuple(replica for replica in self.replicas if replica not in self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        """What the replicas were before the move began: where cancelling leads to."""
        return tuple(replica for replica in self.replicas if replica not in self.adding)

    @property
    def dropped(self) -> tuple[int, ...]:
        """Who is no replica any more and has yet to delete its files."""
        return tuple(replica for replica in self.removing if replica not in self.replicas)

    @property
    def is_moving(self) -> bool:
        """Whether replicas come or go; what only has files to delete has arrived."""
        return bool(self.adding) or any(replica in self.removing for replica in self.replicas)


def placement_of(assignment: TopicAssignment, partition: int) -> Placement:
    """What a topic's assignment says of one of its partitions."""
    return Placement(
        assignment.partitions[partition],
        assignment.adding.get(partition, ()),
        assignment.removing.get(partition, ()),
    )


def with_placements(assignment: TopicAssignment, placements: Mapping[int, Placement]) -> TopicAssignment:
    """The assignment with these partitions placed otherwise."""
    partitions, adding, removing = dict(assignment.partitions), dict(assignment.adding), dict(assignment.removing)
    for partition, placement in placements.items():
        partitions[partition] = placement.replicas
        for rows, row in ((adding, placement.adding), (removing, placement.removing)):
            if row:
                rows[partition] = row
            else:
                rows.pop(partition, None)
    return replace(assignment, partitions=partitions, adding=adding, removing=removing)


def refusal(now: Placement, target: Sequence[int], live: Collection[int]) -> str | None:
    """Why the replicas cannot be asked to move to ``target``; None where they can."""
    if not target:
        return "the list of replicas is empty"
    if len(set(target)) != len(target):
        return f"a broker stands in the list of replicas twice: {list(target)}"
    dead = [replica for replica in target if replica not in now.origin and replica not in live]
    if dead:
        return f"replicas cannot come to brokers that do not live: {dead}"
    return None


def expand(now: Placement, target: Sequence[int], holding: Collection[int]) -> Placement:
    """The first step towards a target; the same placement where it is the target already.

    :param holding: the replicas that are in sync or eligible to lead: those of a replaced move that are not are of no
        use to anybody, and are dropped at once.
    """
    origin = now.origin
    stay = [r for r in now.replicas if r not in target and (r in origin or r in holding)]
    replicas = (*target, *stay)
    removing = [*stay, *(r for r in (*now.replicas, *now.dropped) if r not in replicas)]
    return Placement(replicas, tuple(r for r in replicas if r not in origin), tuple(removing))


def contract(now: Placement, state: LeaderAndIsr, live: Collection[int], *, in_sync_required: int) -> Election | None:
    """Who leads and who is in sync when the target alone remains; None while it has to wait.

    :param in_sync_required: how many replicas must be in sync for anything to be committed.
    """
    if not now.is_moving or not may_contract(now, state.isr, in_sync_required=in_sync_required):
        return None
    isr = tuple(replica for replica in state.isr if replica in now.target)
    if state.leader in isr and state.leader in live:
        return Election(state.leader, isr)
    return elect_reassigned(now.target, isr, live)


def may_contract(now: Placement, isr: Collection[int], *, in_sync_required: int) -> bool:
    """Whether the target can do without the others: all of it is in sync.

    When it goes back to where it was, a replica that is down since before must not hold it up: then it is enough that
    something can be committed, and that somebody is in sync at all.
    """
    in_sync = sum(replica in isr for replica in now.target)
    if set(now.target) == set(now.origin):
        return in_sync >= max(1, min(in_sync_required, len(now.target)))
    return in_sync == len(now.target)


def contracted(now: Placement) -> Placement:
    """The target alone, and the others with their files to delete."""
    return Placement(now.target, (), now.removing)


def without_files(now: Placement, brokers: Collection[int]) -> Placement:
    """These brokers have no files of it any more."""
    gone = [replica for replica in now.dropped if replica in brokers]
    return replace(now, removing=tuple(replica for replica in now.removing if replica not in gone))
