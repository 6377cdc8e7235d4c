"""What follows from what: pure functions from the context to the changes that an event asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kreplica.controller.context import ControllerContext
from kreplica.controller.elections import Election, elect_new, elect_offline
from kreplica.model import NO_LEADER, LeaderAndIsr, TopicPartition


@dataclass(frozen=True, slots=True)
class StateChange:
    """A partition's state to be written: created where ``previous`` is None, else replaced at its znode version."""

    partition: TopicPartition
    previous: LeaderAndIsr | None
    state: LeaderAndIsr

    @property
    def is_new(self) -> bool:
        return self.previous is None


def initial_elections(context: ControllerContext, partitions: Iterable[TopicPartition]) -> list[StateChange]:
    """First leaders for partitions that have none; those without a live replica are left out and stay NEW."""
    changes = []
    for partition in partitions:
        election = elect_new(context.replicas(partition), context.brokers)
        if election is not None:
            state = LeaderAndIsr(election.leader, 0, election.isr, context.controller_epoch)
            changes.append(StateChange(partition, None, state))
    return changes


def offline_elections(
    context: ControllerContext,
    partitions: Iterable[TopicPartition],
    unclean_allowed: Callable[[str], bool],
) -> list[StateChange]:
    """New leaders for partitions whose leader is gone.

    Where nobody may lead, a partition that still names a leader gets NO_LEADER with its in-sync set kept (somebody of
    that set must come back); one that says so already is left out.
    """
    changes = []
    for partition in partitions:
        old = context.leadership.get(partition)
        if old is None:
            continue
        election = elect_offline(
            context.replicas(partition),
            old.isr,
            context.brokers,
            eligible=old.eligible_leader_replicas,
            unclean_allowed=unclean_allowed(partition.topic),
        )
        if election is None:
            if old.leader == NO_LEADER:
                continue
            election = Election(NO_LEADER, old.isr)
        changes.append(StateChange(partition, old, _next_state(context, old, election)))
    return changes


def replica_removals(context: ControllerContext, dead: set[int]) -> list[StateChange]:
    """In-sync sets without the brokers that died, for partitions that they did not lead.

    The last member of an in-sync set stays in it: it alone may lead when it comes back.
    """
    changes = []
    for partition in context.all_partitions():
        old = context.leadership.get(partition)
        if old is None or old.leader in dead or old.leader == NO_LEADER or not dead.intersection(old.isr):
            continue
        isr = tuple(replica for replica in old.isr if replica not in dead)
        if isr:
            changes.append(StateChange(partition, old, _next_state(context, old, Election(old.leader, isr))))
    return changes


def _next_state(context: ControllerContext, old: LeaderAndIsr, election: Election) -> LeaderAndIsr:
    return LeaderAndIsr(
        leader=election.leader,
        leader_epoch=old.leader_epoch + 1,
        isr=election.isr,
        controller_epoch=context.controller_epoch,
        partition_epoch=old.partition_epoch,
        eligible_leader_replicas=() if election.unclean else old.eligible_leader_replicas,
    )
