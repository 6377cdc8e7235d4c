"""Pure functions that derive the required state changes from the context."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kreplica.cluster import eligible_leaders
from kreplica.controller.decisions.leader_election import (
    Election,
    elect_for_shutdown,
    elect_new,
    elect_offline,
    elect_preferred,
)
from kreplica.controller.state.context import ControllerContext
from kreplica.model import NO_BROKER_EPOCH, NO_LEADER, BrokerRegistration, LeaderAndIsr, TopicPartition


class TopicRules(NamedTuple):
    """Topic configurations that elections depend on.

    :param unclean_allowed: ``unclean.leader.election.enable``.
    :param min_insync_replicas: ``min.insync.replicas``.
    """

    unclean_allowed: bool = False
    min_insync_replicas: int = 1


RulesOf = Callable[[str], TopicRules]


@dataclass(frozen=True, slots=True)
class StateChange:
    """A partition state to write: created if ``previous`` is None, otherwise replaced at its znode version."""

    partition: TopicPartition
    previous: LeaderAndIsr | None
    state: LeaderAndIsr

    @property
    def is_new(self) -> bool:
        return self.previous is None

    @property
    def only_fences(self) -> bool:
        """True if only the partition epoch changes, so that a write based on the old epoch fails."""
        old = self.previous
        return old is not None and old.leader_epoch == self.state.leader_epoch


# --- guards -----------------------------------------------------------------------------------------------------------


def has_intact_logs(registration: BrokerRegistration, known_epoch: int) -> bool:
    """Return True if the broker has lost no records since its last registration that a controller handled (KIP-966).

    :param known_epoch: epoch of that registration; -1 if there was none.
    """
    intact_since = registration.intact_since
    if intact_since == NO_BROKER_EPOCH:
        intact_since = registration.epoch
    return intact_since <= known_epoch


# --- changes ----------------------------------------------------------------------------------------------------------


def initial_elections(context: ControllerContext, partitions: Iterable[TopicPartition]) -> list[StateChange]:
    """Return the first states of new partitions; those without an electable replica are omitted and stay NEW."""
    changes = []
    for partition in partitions:
        election = elect_new(context.candidates(partition), context.electable_replicas(partition))
        if election is not None:
            epoch = context.first_leader_epoch(partition)
            state = LeaderAndIsr(election.leader, epoch, election.isr, context.controller_epoch)
            changes.append(StateChange(partition, None, state))
    return changes


def repairs(
    context: ControllerContext,
    partitions: Iterable[TopicPartition],
    rules_of: RulesOf,
    *,
    bounced: Collection[int] = (),
    unclean: Collection[int] = (),
    failed: Collection[int] = (),
) -> list[StateChange]:
    """Return the changes that adapt partition states to the live brokers.

    A partition gets a live leader and an ISR without dead replicas.  If no replica can be elected, the partition has no
    leader and keeps its ISR.  Each partition gets at most one change, which covers all its replicas; partitions
    without a change are omitted.

    :param bounced: live brokers that were restarted since the leaders in the context were elected.  Partitions led by
        them get a new leader epoch, and another leader if possible (KIP-380).
    :param unclean: live brokers that may have lost the end of their logs.  They are removed from ISRs and eligible
        leader replicas (ELR).  A partition that keeps its leader gets a new partition epoch in any case, so that the
        leader cannot add the replica to the ISR based on the old state.
    :param failed: brokers whose replicas of these partitions are unusable.  They are removed like unclean ones, but
        always with a new leader epoch, so that a delayed fetch from an earlier epoch cannot add them again.
    """
    changes = []
    for partition in partitions:
        old = context.leadership.get(partition)
        if old is not None:
            change = _repair(context, partition, old, rules_of, bounced, unclean, failed)
            if change is not None:
                changes.append(change)
    return changes


def _repair(
    context: ControllerContext,
    partition: TopicPartition,
    old: LeaderAndIsr,
    rules_of: RulesOf,
    bounced: Collection[int],
    unclean: Collection[int],
    failed: Collection[int],
) -> StateChange | None:
    replicas = context.replicas(partition)
    lost = [replica for replica in replicas if replica in unclean or replica in failed] if unclean or failed else ()
    isr, eligible = without_unclean(old, lost) if lost else (old.isr, old.eligible_leader_replicas)
    online = context.online_replicas(partition)
    leader_stays = old.leader in isr and old.leader in online and old.leader not in bounced
    if leader_stays:
        election = Election(old.leader, tuple([replica for replica in isr if replica in online]))
    else:
        election = _election(context, partition, isr, eligible, rules_of(partition.topic), bounced)
    is_same = election.isr == old.isr and election.leader == old.leader and eligible == old.eligible_leader_replicas
    needs_no_new_epoch = (leader_stays and not failed) or election.leader == NO_LEADER
    if is_same and needs_no_new_epoch:
        return StateChange(partition, old, old) if leader_stays and lost else None
    return next_state_change(context, partition, election, rules_of, isr=isr, eligible=eligible, unclean=lost)


def _election(
    context: ControllerContext,
    partition: TopicPartition,
    isr: Sequence[int],
    eligible: Sequence[int],
    rules: TopicRules,
    bounced: Collection[int],
) -> Election:
    """Elect a replacement for a lost leader.

    If no replica can be elected, the partition has no leader and keeps its ISR, because a member of it must return.
    """
    election = elect_offline(
        context.candidates(partition),
        isr,
        context.electable_replicas(partition),
        eligible=eligible,
        unclean_allowed=rules.unclean_allowed,
        restarted=bounced,
    )
    return election or Election(NO_LEADER, tuple(isr))


def without_unclean(old: LeaderAndIsr, unclean: Collection[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the ISR and the ELR without replicas that may have lost the end of their log (KIP-966).

    If only eligible replicas remain, they become the ISR: each of them has every committed record, and one of them must
    lead.  If no replica remains, the ISR becomes the last leader, or else the first replica of the old ISR, because no
    other replica is known to have more records.
    """
    isr = tuple(replica for replica in old.isr if replica not in unclean)
    eligible = tuple(replica for replica in old.eligible_leader_replicas if replica not in unclean)
    if isr:
        return isr, eligible
    if eligible:
        return eligible, ()
    return (old.leader if old.leader in old.isr else old.isr[0],), ()


def unclean_elections(
    context: ControllerContext, partitions: Iterable[TopicPartition], rules_of: RulesOf
) -> list[StateChange]:
    """Return changes that elect missing leaders, even if acknowledged records are lost."""
    return repairs(context, partitions, lambda topic: rules_of(topic)._replace(unclean_allowed=True))


def preferred_elections(
    context: ControllerContext, partitions: Iterable[TopicPartition], rules_of: RulesOf
) -> list[StateChange]:
    """Return changes that elect each preferred replica that can lead but does not."""
    changes = []
    for partition in partitions:
        old = context.leadership.get(partition)
        if old is not None:
            election = elect_preferred(context.replicas(partition), old.isr, context.electable_replicas(partition))
            if election is not None and election.leader != old.leader:
                changes.append(next_state_change(context, partition, election, rules_of))
    return changes


def controlled_shutdown_changes(
    context: ControllerContext, partitions: Iterable[TopicPartition], rules_of: RulesOf
) -> list[StateChange]:
    """Return the changes that remove brokers in controlled shutdown from leadership and from ISRs.

    A partition that no other replica can lead keeps its leader.
    """
    changes = []
    stopping = context.shutting_down
    for partition in partitions:
        old = context.leadership.get(partition)
        if old is None or not any(replica in stopping for replica in old.isr):
            continue
        if old.leader in stopping:
            online = context.online_replicas(partition)
            election = elect_for_shutdown(context.candidates(partition), old.isr, online, stopping)
        else:
            # Without a leader, the last member of the ISR stays in it, because this replica must return.
            isr = tuple(replica for replica in old.isr if replica not in stopping)
            election = Election(old.leader, isr) if isr else None
        if election is not None:
            changes.append(next_state_change(context, partition, election, rules_of))
    return changes


def next_state_change(
    context: ControllerContext,
    partition: TopicPartition,
    election: Election,
    rules_of: RulesOf,
    *,
    isr: Sequence[int] | None = None,
    eligible: Sequence[int] | None = None,
    unclean: Collection[int] = (),
) -> StateChange:
    """Return the change to a partition's next state, with the next leader epoch and the new ELR (KIP-966).

    :param isr: ISR before the election, if it differs from that of the context.
    :param eligible: ELR before the election, if it differs from that of the context.
    :param unclean: replicas that cannot be eligible.
    """
    old = context.leadership[partition]
    next_eligible: tuple[int, ...] = ()
    if not election.unclean:
        replicas = context.replicas(partition)
        min_insync_replicas = rules_of(partition.topic).min_insync_replicas
        next_eligible = eligible_leaders.eligible_after(
            old.isr if isr is None else isr,
            old.eligible_leader_replicas if eligible is None else eligible,
            election.isr,
            in_sync_required=eligible_leaders.required_isr_size(min_insync_replicas, len(replicas)),
            replicas=replicas,
            unclean=unclean,
        )
    epoch = old.leader_epoch + 1
    state = LeaderAndIsr(
        election.leader, epoch, election.isr, context.controller_epoch, old.partition_epoch, next_eligible
    )
    return StateChange(partition, old, state)
