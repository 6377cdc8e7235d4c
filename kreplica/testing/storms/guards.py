"""The rules on which replication stands, each with what it would be like without: so the tests themselves are tested.

A guard is a small predicate with a name of its own, called through its module.  ``without`` replaces it by what a
program has that lacks it (mostly: always true); a storm or a scenario must then find something broken.  Where one guard
covers for another, both go together.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import reduce
from importlib import import_module
from typing import Any, NamedTuple

from kreplica.cluster import znodes
from kreplica.coordination import Shards
from kreplica.membership.incarnation import Note
from kreplica.model import NO_BROKER_EPOCH
from kreplica.replication import Partition
from kreplica.testing.storms.scenarios import (
    commands,
    consumer_groups,
    groups,
    joining,
    leading,
    logs,
    producing,
    transactions,
)
from kreplica.transactions.admission import Admission, Producer
from kreplica.zookeeper import Check


class Place(NamedTuple):
    """One function or property, and what stands in its place.

    :param where: ``module:attribute``, dots for what belongs to a class.
    """

    where: str
    mutant: Any


class Guard(NamedTuple):
    """One rule.

    :param places: what goes together.
    :param scenario: the order of events in which its absence shows, whatever the seed.
    :param breaks: what it says then, as a regular expression.
    :param covered_by: why more than the rule itself is taken away; empty where it is not.
    """

    name: str
    places: tuple[Place, ...]
    scenario: Callable[[int], None]
    breaks: str
    covered_by: str = ""


def _always(*_: Any, **__: Any) -> bool:
    return True


def _never(*_: Any, **__: Any) -> bool:
    return False


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _cut_at_high_watermark(*_: Any, log_end_offset: int, high_watermark: int) -> int:
    return min(high_watermark, log_end_offset)


def _written_is_enough(partition: Partition) -> int:
    return partition.log.log_end_offset


def _new_set_alone(isr: Sequence[int], proposed: Sequence[int]) -> tuple[int, ...]:
    return tuple(proposed)


def _enough_in_sync(in_sync_count: int, in_sync_required: int, eligible_count: int) -> bool:
    return in_sync_count >= in_sync_required


def _any_term(epoch_znode_version: int) -> Check:
    return Check(znodes.CONTROLLER_EPOCH, -1)


def _noted_is_enough(notes: Sequence[Note | None], **_: Any) -> int:
    return notes[0].intact_since if notes and notes[0] else NO_BROKER_EPOCH


def _unasked(admission: Admission, partition: Partition, producer: Producer, adds: bool) -> bool:
    known = partition.log.producers.verifications
    known.begin(producer.producer_id, producer.producer_epoch, starts_at_zero=adds).is_verified = True
    return True


GUARDS: tuple[Guard, ...] = (
    # --- which commands are obeyed ---
    Guard(
        "broker-epoch match",
        (Place("kreplica.replication.fencing:is_stale_broker_epoch", _never),),
        commands.to_an_earlier_process,
        "leads in epoch .* without all commits",
    ),
    Guard(
        "broker-epoch match before it is known",
        (Place("kreplica.replication.fencing:ControlFence.starts_after", _nothing),),
        commands.before_it_has_registered,
        "leads in epoch .* without all commits",
    ),
    Guard(
        "commands end with the session",
        (Place("kreplica.replication.fencing:ControlFence.session_ended", _nothing),),
        commands.to_a_session_that_has_ended,
        "was acknowledged at",
    ),
    Guard(
        "controller epoch of a command",
        (Place("kreplica.replication.fencing:is_stale_controller_epoch", _never),),
        commands.overtaken_by_the_next_controller,
        "a broker obeys an older controller",
    ),
    Guard(
        "commands in their order",
        (Place("kreplica.replication.fencing:is_overtaken", _never),),
        commands.overtaken_on_the_next_connection,
        "holds again what it has deleted",
    ),
    Guard(
        "leader epoch of a command",
        (
            Place("kreplica.replication.fencing:is_stale_controller_epoch", _never),
            Place("kreplica.replication.fencing:is_current_epoch", _always),
        ),
        commands.overtaken_by_the_next_controller,
        "a broker obeys an older controller",
        "one controller's commands come in order, so an older leader epoch is an older controller's",
    ),
    Guard(
        "follower starts fetching only for a higher epoch",
        (Place("kreplica.replication.fencing:is_new_epoch", _always),),
        commands.told_again_of_what_was,
        "in sync without all that is committed",
    ),
    Guard(
        "controller write checks the controller epoch",
        (Place("kreplica.controller.state_writes:guard_of_term", _any_term),),
        commands.from_a_controller_that_was_deposed,
        "written by controller .* after",
    ),
    # --- who follows ---
    Guard(
        "follower state is reset on a new leader epoch",
        (Place("kreplica.replication.followers:is_of_epoch", _always),),
        commands.leads_again_and_heard_nothing,
        "commits .* with too few replicas",
    ),
    Guard(
        "fetch epoch matches",
        (
            Place("kreplica.replication.fencing:is_of_leader_epoch", _always),
            Place("kreplica.replication.followed:matches_epoch", _always),
        ),
        commands.fetched_in_an_epoch_that_is_over,
        "in sync without all that is committed",
        "the follower throws answers of an epoch away that the leader would not have given",
    ),
    Guard(
        "fetch offset matches",
        (
            Place("kreplica.replication.followed:matches_offset", _always),
            Place("kreplica.storage.validation:may_follow", _always),
        ),
        logs.is_answered_twice,
        "stands behind",
        "a log takes no batch that begins before its end, whoever brings it",
    ),
    Guard(
        "truncation by epoch instead of high watermark",
        (
            Place("kreplica.replication.truncation:cut_at_divergence", _cut_at_high_watermark),
            Place("kreplica.replication.truncation:cut_of_unknown_history", _cut_at_high_watermark),
        ),
        logs.is_cut_at_what_is_known_to_be_committed,
        "in sync without all that is committed",
        "where the first cut is by the high watermark, nothing is left to diverge",
    ),
    # --- who is in sync ---
    Guard(
        "follower has fetched in this epoch",
        (
            Place("kreplica.replication.in_sync:has_fetched_in_this_epoch", _always),
            Place("kreplica.replication.in_sync:has_reached_high_watermark", _always),
            Place("kreplica.replication.in_sync:has_reached_epoch_start", _always),
        ),
        joining.catches_up_slowly,
        "in sync without all that is committed",
        "of who has not fetched no log end is known, and that is before any offset",
    ),
    Guard(
        "log end >= high watermark at ISR join",
        (Place("kreplica.replication.in_sync:has_reached_high_watermark", _always),),
        joining.catches_up_slowly,
        "in sync without all that is committed",
    ),
    Guard(
        "log end >= epoch start at ISR join",
        (Place("kreplica.replication.in_sync:has_reached_epoch_start", _always),),
        joining.has_what_the_new_leader_knows_of,
        "in sync without all that is committed",
    ),
    Guard(
        "follower's broker epoch is current",
        (
            Place("kreplica.replication.in_sync:is_current_incarnation", _always),
            Place("kreplica.replication.in_sync:is_of_earlier_incarnation", _never),
        ),
        joining.is_another_by_now,
        "in sync without all that is committed",
        "who fetched before another process of its broker did is not registered any more",
    ),
    Guard(
        "who lags leaves",
        (Place("kreplica.replication.in_sync:is_lagging", _never),),
        leading.has_a_follower_that_is_silent,
        "not reached within",
    ),
    Guard(
        "ISR write is conditional",
        (Place("kreplica.replication.in_sync:expected_version", lambda _: -1),),
        joining.deposed_and_does_not_know,
        "the leader epoch went back",
    ),
    # --- what is committed ---
    Guard(
        "high watermark uses the union ISR",
        (Place("kreplica.replication.in_sync:union", _new_set_alone),),
        joining.leaving_is_being_written,
        "in sync without all that is committed",
    ),
    Guard(
        "high watermark counts every member of the ISR",
        (Place("kreplica.replication.high_watermark:held_by_all", lambda own_end_offset, _: own_end_offset),),
        leading.has_a_follower_that_is_silent,
        "in sync without all that is committed",
    ),
    Guard(
        "min.insync.replicas",
        (Place("kreplica.cluster.eligible_leaders:required", lambda *_: 1),),
        leading.is_alone,
        "with too few replicas",
    ),
    Guard(
        "high watermark stands still with too few in sync",
        (Place("kreplica.replication.high_watermark:may_advance", _always),),
        leading.is_alone,
        "with too few replicas",
    ),
    Guard(
        "high watermark stands still while others may lead",
        (Place("kreplica.replication.high_watermark:may_advance", _enough_in_sync),),
        leading.fewer_are_asked_for,
        "without all",
    ),
    Guard(
        "who leaves a set that is too small may lead",
        (Place("kreplica.cluster.eligible_leaders:eligible_after", lambda *_, **__: ()),),
        leading.is_alone_and_dies,
        "leads in epoch .* without all commits",
    ),
    Guard(
        "lease",
        (Place("kreplica.replication.led:Led.has_lease", property(_always)),),
        leading.is_heard_by_clients_alone,
        "was acknowledged at",
    ),
    Guard(
        "leaderships end with the session",
        (Place("kreplica.replication.partitions:Partitions.session_lost", _nothing),),
        leading.woke_up_with_another_session,
        "was acknowledged at",
    ),
    # --- what logs hold ---
    Guard(
        "sequence check of idempotent producers",
        (Place("kreplica.storage.producers:ProducerStates.check", _nothing),),
        producing.is_sent_again,
        "duplicate",
    ),
    Guard(
        "recovery drops a torn tail",
        (Place("kreplica.storage.loading:verify_crc", _always),),
        logs.tears_its_last_writes,
        "stands where .* was committed",
    ),
    Guard(
        "damaged replicas begin anew when nobody counts on them",
        (Place("kreplica.replication.damage:may_begin_anew", _always),),
        logs.is_damaged_and_counted_on,
        "in sync without all that is committed",
    ),
    Guard(
        "synced before acknowledged (flush.messages=1)",
        (Place("kreplica.replication.partition:Partition.end_offset_that_counts", property(_written_is_enough)),),
        logs.all_lose_power,
        "without all",
    ),
    Guard(
        "a sync syncs",
        (Place("kreplica.storage.durability:Unsynced.sync", _nothing),),
        logs.all_lose_power,
        "without all",
    ),
    Guard(
        "unclean replicas leave the ISR",
        (Place("kreplica.controller.decisions:has_lost_nothing", _always),),
        logs.loses_its_end_and_is_back_at_once,
        "in sync without all that is committed",
    ),
    Guard(
        "what a start says of its logs",
        (Place("kreplica.membership.incarnation:intact_since", _noted_is_enough),),
        logs.loses_its_end_and_is_back_at_once,
        "in sync without all that is committed",
    ),
    Guard(
        "boot id",
        (Place("kreplica.membership.incarnation:is_same_boot", _always),),
        logs.loses_its_end_and_is_back_at_once,
        "in sync without all that is committed",
    ),
    # --- groups ---
    Guard(
        "generation of a commit",
        (Place("kreplica.groups.classic.guards:is_current_generation", _always),),
        groups.commits_late,
        "generation 1 has committed in 2",
    ),
    Guard(
        "static members that were replaced",
        (Place("kreplica.groups.classic.guards:holds_instance", _always),),
        groups.was_replaced_under_its_instance_id,
        "two processes are one static member",
    ),
    Guard(
        "who is no member commits nothing",
        (Place("kreplica.groups.classic.group:ClassicGroup.check_commit", _nothing),),
        groups.goes_on_after_its_session,
        "made twice",
    ),
    Guard(
        "offsets wait for the end of their transaction",
        (Place("kreplica.groups.offsets:Offsets.is_unstable", _never),),
        groups.asks_before_the_marker_has_come,
        "was committed up to",
    ),
    Guard(
        "a coordinator serves what is committed",
        (Place("kreplica.coordination.shards:is_settled", _always),),
        groups.leads_with_what_is_not_committed,
        "was committed up to",
    ),
    Guard(
        "lease of a coordinator",
        (Place("kreplica.coordination.shards:Shards.current_shard_of", Shards.shard_of),),
        groups.is_heard_by_clients_alone,
        "was committed up to",
    ),
    Guard(
        "given up before it is given",
        (Place("kreplica.groups.consumer.fencing:has_given_up", _always),),
        consumer_groups.gives_up_slowly,
        "is owned by two",
    ),
    Guard(
        "free before it is given",
        (Place("kreplica.groups.consumer.fencing:is_free", _always),),
        consumer_groups.is_asked_for_at_once,
        "is owned by two",
    ),
    Guard(
        "member epoch of a commit",
        (Place("kreplica.groups.consumer.fencing:is_epoch_of_commit", _always),),
        consumer_groups.commits_what_was_given_away,
        "took back what was committed",
    ),
    # --- transactions ---
    Guard(
        "fenced producers",
        (Place("kreplica.transactions.fencing:is_current", _always),),
        transactions.has_been_replaced,
        "was fenced, and its producer was told that it is committed",
    ),
    Guard(
        "repeated end of a transaction",
        (Place("kreplica.transactions.fencing:is_repeated_end", _never),),
        transactions.does_not_hear_that_it_committed,
        "nobody else has come",
    ),
    Guard(
        "repeated request for an epoch",
        (Place("kreplica.transactions.fencing:is_repeated_bump", _never),),
        transactions.does_not_hear_of_its_epoch,
        "nobody else has come",
    ),
    Guard(
        "coordinator epoch of a marker",
        (Place("kreplica.storage.producers:is_replaced_coordinator", _never),),
        transactions.is_ended_by_a_coordinator_of_the_past,
        "aborted read",
    ),
    Guard(
        "producer epoch of a marker",
        (Place("kreplica.storage.verifications:is_late_marker", _never),),
        transactions.is_ended_twice,
        "aborted read",
    ),
    Guard(
        "verification of a transaction",
        (Place("kreplica.transactions.admission:Admission._is_open", _unasked),),
        transactions.writes_late,
        "decided by nobody",
    ),
    Guard(
        "an end marker takes a verification back",
        (Place("kreplica.storage.verifications:may_begin", _always),),
        transactions.writes_what_was_verified_late,
        "decided by nobody",
    ),
    Guard(
        "producer epoch of a batch",
        (
            Place("kreplica.storage.producers:is_old_epoch", _never),
            Place("kreplica.transactions.admission:Admission._is_open", _unasked),
        ),
        transactions.writes_after_it_was_replaced,
        "decided by nobody",
        "the coordinator, which is asked, says the same",
    ),
    Guard(
        "transactions that take too long are aborted",
        (Place("kreplica.transactions.shard:Entry.has_timed_out", _never),),
        transactions.is_heard_of_no_more,
        "decided by nobody",
    ),
    Guard(
        "last stable offset",
        (Place("kreplica.storage.producers:ProducerStates.first_unstable_offset", _nothing),),
        transactions.is_not_committed,
        "precommitted read",
    ),
    Guard(
        "readers are told what is aborted",
        (Place("kreplica.server.partition_reads:_aborted", lambda *_: []),),
        transactions.is_not_committed,
        "aborted read",
    ),
)
"""All of them, in the order in which a page and a score show them."""


@contextmanager
def without(guard: Guard) -> Iterator[None]:
    """Have all programs of this process lack a guard for a while."""
    with ExitStack() as stack:
        for place in guard.places:
            stack.enter_context(_replaced(place))
        yield


@contextmanager
def _replaced(place: Place) -> Iterator[None]:
    module, _, attribute = place.where.partition(":")
    *path, name = attribute.split(".")
    owner = reduce(getattr, path, import_module(module))
    before = inspect.getattr_static(owner, name)
    setattr(owner, name, place.mutant)
    try:
        yield
    finally:
        setattr(owner, name, before)
