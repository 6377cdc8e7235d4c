"""What follows from what: pure functions from the context to the changes that an event asks for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kreplica.cluster import eligible_leaders
from kreplica.controller.decisions.elections import (
    Election,
    elect_for_shutdown,
    elect_new,
    elect_offline,
    elect_preferred,
)
from kreplica.controller.state.context import ControllerContext
from kreplica.model import NO_BROKER_EPOCH, NO_LEADER, BrokerRegistration, LeaderAndIsr, TopicPartition


class TopicRules(NamedTuple):
    """What a topic's settings say about its leaders.

    :param unclean_allowed: ``unclean.leader.election.enable``.
    :param min_insync_replicas: ``min.insync.replicas``.
    """

    unclean_allowed: bool = False
    min_insync_replicas: int = 1


RulesOf = Callable[[str], TopicRules]


@dataclass(frozen=True, slots=True)
class StateChange:
    """A partition's state to be written: created where ``previous`` is None, else replaced at its znode version."""

    partition: TopicPartition
    previous: LeaderAndIsr | None
    state: LeaderAndIsr

    @property
    def is_new(self) -> bool:
        return self.previous is None

    @property
    def fences_only(self) -> bool:
        """Whether it changes nothing but the partition epoch, so that whoever writes by the old one is refused."""
        old = self.previous
        return old is not None and old.leader_epoch == self.state.leader_epoch


# --- guards -----------------------------------------------------------------------------------------------------------


def has_lost_nothing(registration: BrokerRegistration, known_epoch: int) -> bool:
    """Whether a broker's logs still hold all that they held in the incarnation of that epoch (KIP-966).

    :param known_epoch: the broker epoch in which it last had its place in in-sync sets; -1 where there was none.
    """
    whole_since = registration.intact_since
    if whole_since == NO_BROKER_EPOCH:
        whole_since = registration.epoch
    return whole_since <= known_epoch


# --- changes ----------------------------------------------------------------------------------------------------------


def initial_elections(context: ControllerContext, partitions: Iterable[TopicPartition]) -> list[StateChange]:
    """First leaders for partitions that have none; those without a live replica are left out and stay NEW."""
    changes = []
    for partition in partitions:
        election = elect_new(context.candidates(partition), context.may_lead(partition))
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
    """The states that fit who lives now: a leader where there can be one, and nobody dead in the in-sync set.

    One decision per partition, whatever happened to its replicas at once; those that need none are left out.

    :param bounced: brokers that live but are another process than the one that held the leaderships of the context:
        what they led is led anew, in another epoch, by others where there are any (KIP-380).
    :param unclean: those brokers, of all that live, which may have lost the end of their logs since they were last
        seen.  They leave in-sync and eligible sets; every other state with a replica of theirs gets a new partition
        epoch at least, because its leader may be about to write, from what it knew of the one before, that it is in
        sync.
    :param failed: brokers whose replicas of these partitions cannot be used.  They leave like unclean ones, and always
        with a new leader epoch: no fetch of an earlier one, which may be on its way still, lets them in again.
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
    online = context.online(partition)
    stays = old.leader in isr and old.leader in online and old.leader not in bounced
    if stays:
        election = Election(old.leader, tuple([replica for replica in isr if replica in online]))
    else:
        election = _election(context, partition, isr, eligible, rules_of(partition.topic), bounced)
    is_same = election.isr == old.isr and election.leader == old.leader and eligible == old.eligible_leader_replicas
    is_enough = (stays and not failed) or election.leader == NO_LEADER
    if is_same and is_enough:
        return StateChange(partition, old, old) if stays and lost else None
    return changed(context, partition, election, rules_of, isr=isr, eligible=eligible, unclean=lost)


def _election(
    context: ControllerContext,
    partition: TopicPartition,
    isr: Sequence[int],
    eligible: Sequence[int],
    rules: TopicRules,
    bounced: Collection[int],
) -> Election:
    """Who leads in place of a leader that is gone.

    Where nobody may, the partition has no leader and its in-sync set is kept: somebody of it must come back.
    """
    election = elect_offline(
        context.candidates(partition),
        isr,
        context.may_lead(partition),
        eligible=eligible,
        unclean_allowed=rules.unclean_allowed,
        last=bounced,
    )
    return election or Election(NO_LEADER, tuple(isr))


def without_unclean(old: LeaderAndIsr, unclean: Collection[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The in-sync and the eligible set without replicas that may have lost the end of their log (KIP-966).

    Where that leaves only eligible replicas, they are the in-sync set: every committed record is on each of them, and
    one of them must lead.  Where it leaves nobody, the last leader stays, else the first of the in-sync set: nobody
    can know more than it does.
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
    """Leaders for partitions that have none, at the price of acknowledged records where nobody in sync lives."""
    return repairs(context, partitions, lambda topic: rules_of(topic)._replace(unclean_allowed=True))


def preferred_elections(
    context: ControllerContext, partitions: Iterable[TopicPartition], rules_of: RulesOf
) -> list[StateChange]:
    """Leaderships for preferred replicas that could lead and do not."""
    changes = []
    for partition in partitions:
        old = context.leadership.get(partition)
        if old is not None:
            election = elect_preferred(context.replicas(partition), old.isr, context.may_lead(partition))
            if election is not None and election.leader != old.leader:
                changes.append(changed(context, partition, election, rules_of))
    return changes


def shutdowns(
    context: ControllerContext, partitions: Iterable[TopicPartition], rules_of: RulesOf
) -> list[StateChange]:
    """The states without the brokers that are shutting down: others lead, and they leave the in-sync sets.

    A partition that nobody else can lead stays with its leader.
    """
    changes = []
    stopping = context.shutting_down
    for partition in partitions:
        old = context.leadership.get(partition)
        if old is None or not any(replica in stopping for replica in old.isr):
            continue
        if old.leader in stopping:
            election = elect_for_shutdown(context.candidates(partition), old.isr, context.online(partition), stopping)
        else:
            # Without a leader the last of the in-sync set stays: it must come back.
            isr = tuple(replica for replica in old.isr if replica not in stopping)
            election = Election(old.leader, isr) if isr else None
        if election is not None:
            changes.append(changed(context, partition, election, rules_of))
    return changes


def changed(
    context: ControllerContext,
    partition: TopicPartition,
    election: Election,
    rules_of: RulesOf,
    *,
    isr: Sequence[int] | None = None,
    eligible: Sequence[int] | None = None,
    unclean: Collection[int] = (),
) -> StateChange:
    """A partition's next state: the next leader epoch, and who is eligible beside the new in-sync set (KIP-966).

    :param isr: the in-sync set that the election began with, and ``eligible`` the eligible set, where they are not the
        context's.
    :param unclean: replicas that may not be eligible.
    """
    old = context.leadership[partition]
    next_eligible: tuple[int, ...] = ()
    if not election.unclean:
        replicas = context.replicas(partition)
        next_eligible = eligible_leaders.eligible_after(
            old.isr if isr is None else isr,
            old.eligible_leader_replicas if eligible is None else eligible,
            election.isr,
            in_sync_required=eligible_leaders.required(rules_of(partition.topic).min_insync_replicas, len(replicas)),
            replicas=replicas,
            unclean=unclean,
        )
    epoch = old.leader_epoch + 1
    state = LeaderAndIsr(
        election.leader, epoch, election.isr, context.controller_epoch, old.partition_epoch, next_eligible
    )
    return StateChange(partition, old, state)
