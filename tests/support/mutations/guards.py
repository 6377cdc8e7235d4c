"""The rules on which replication stands, each with what it would be like without (``guard`` says what one is)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import Deferred, succeed

from kreplica.cluster import znodes
from kreplica.membership.follower_incarnations import FollowerIncarnations
from kreplica.membership.incarnation import Note
from kreplica.model import NO_BROKER_EPOCH
from kreplica.replication import Partition
from kreplica.zookeeper import Check
from tests.support.mutations.coordinator_guards import COORDINATOR_GUARDS
from tests.support.mutations.guard import Guard, Place, always, never, nothing
from tests.support.mutations.scenarios import commands, joining, leading, logs, plans, producing


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


def _believed(followers: FollowerIncarnations, broker_id: int, broker_epoch: int) -> Deferred[bool]:
    followers.epochs[broker_id] = broker_epoch
    return succeed(True)


def _noted_is_enough(notes: Sequence[Note | None], **_: Any) -> int:
    return notes[0].intact_since if notes and notes[0] else NO_BROKER_EPOCH


GUARDS: tuple[Guard, ...] = (
    # --- which commands are obeyed ---
    Guard(
        "broker-epoch match",
        (Place("kreplica.replication.fencing:is_stale_broker_epoch", never),),
        commands.to_an_earlier_process,
        "leads in epoch .* without all commits",
    ),
    Guard(
        "broker-epoch match before it is known",
        (Place("kreplica.replication.fencing:ControlFence.starts_after", nothing),),
        commands.before_it_has_registered,
        "leads in epoch .* without all commits",
    ),
    Guard(
        "commands end with the session",
        (Place("kreplica.replication.fencing:ControlFence.session_ended", nothing),),
        commands.to_a_session_that_has_ended,
        "was acknowledged at",
    ),
    Guard(
        "controller epoch of a command",
        (Place("kreplica.replication.fencing:is_stale_controller_epoch", never),),
        commands.overtaken_by_the_next_controller,
        "a broker obeys an older controller",
    ),
    Guard(
        "commands in their order",
        (Place("kreplica.replication.fencing:is_overtaken", never),),
        commands.overtaken_on_the_next_connection,
        "holds again what it has deleted",
    ),
    Guard(
        "leader epoch of a command",
        (
            Place("kreplica.replication.fencing:is_stale_controller_epoch", never),
            Place("kreplica.replication.fencing:is_current_epoch", always),
        ),
        commands.overtaken_by_the_next_controller,
        "a broker obeys an older controller",
        "one controller's commands come in order, so an older leader epoch is an older controller's",
    ),
    Guard(
        "follower starts fetching only for a higher epoch",
        (Place("kreplica.replication.fencing:is_new_epoch", always),),
        commands.told_again_of_what_was,
        "in sync without all that is committed",
    ),
    Guard(
        "controller write checks the controller epoch",
        (Place("kreplica.controller.effects.state_writes:guard_of_term", _any_term),),
        commands.from_a_controller_that_was_deposed,
        "written by controller .* after",
    ),
    # --- who follows ---
    Guard(
        "follower state is reset on a new leader epoch",
        (Place("kreplica.replication.leader.followers:is_of_epoch", always),),
        commands.leads_again_and_heard_nothing,
        "commits .* with too few replicas",
    ),
    Guard(
        "fetch epoch matches",
        (
            Place("kreplica.replication.fencing:is_of_leader_epoch", always),
            Place("kreplica.replication.follower.follower_state:matches_epoch", always),
            Place("kreplica.membership.follower_incarnations:FollowerIncarnations.confirm", _believed),
        ),
        commands.fetched_in_an_epoch_that_is_over,
        "in sync without all that is committed",
        "the follower throws answers of an epoch away that the leader would not have given, and a leader without "
        "ZooKeeper takes in no follower that it has not confirmed",
    ),
    Guard(
        "fetch offset matches",
        (
            Place("kreplica.replication.follower.follower_state:matches_offset", always),
            Place("kreplica.storage.segments.append_validation:may_follow", always),
        ),
        logs.is_answered_twice,
        "stands behind",
        "a log takes no batch that begins before its end, whoever brings it",
    ),
    Guard(
        "truncation by epoch instead of high watermark",
        (
            Place("kreplica.replication.follower.truncation:cut_at_divergence", _cut_at_high_watermark),
            Place("kreplica.replication.follower.truncation:cut_of_unknown_history", _cut_at_high_watermark),
        ),
        logs.is_cut_at_what_is_known_to_be_committed,
        "in sync without all that is committed",
        "where the first cut is by the high watermark, nothing is left to diverge",
    ),
    # --- who is in sync ---
    Guard(
        "follower has fetched in this epoch",
        (
            Place("kreplica.replication.leader.in_sync:has_fetched_in_this_epoch", always),
            Place("kreplica.replication.leader.in_sync:has_reached_high_watermark", always),
            Place("kreplica.replication.leader.in_sync:has_reached_epoch_start", always),
        ),
        joining.catches_up_slowly,
        "in sync without all that is committed",
        "of who has not fetched no log end is known, and that is before any offset",
    ),
    Guard(
        "log end >= high watermark at ISR join",
        (Place("kreplica.replication.leader.in_sync:has_reached_high_watermark", always),),
        joining.catches_up_slowly,
        "in sync without all that is committed",
    ),
    Guard(
        "log end >= epoch start at ISR join",
        (Place("kreplica.replication.leader.in_sync:has_reached_epoch_start", always),),
        joining.has_what_the_new_leader_knows_of,
        "in sync without all that is committed",
    ),
    Guard(
        "follower's broker epoch is current",
        (
            Place("kreplica.replication.leader.in_sync:is_current_incarnation", always),
            Place("kreplica.replication.leader.in_sync:is_of_earlier_incarnation", never),
        ),
        joining.is_another_by_now,
        "in sync without all that is committed",
        "who fetched before another process of its broker did is not registered any more",
    ),
    Guard(
        "who lags leaves",
        (Place("kreplica.replication.leader.in_sync:is_lagging", never),),
        leading.has_a_follower_that_is_silent,
        "not reached within",
    ),
    Guard(
        "ISR write is conditional",
        (Place("kreplica.replication.leader.in_sync:expected_version", lambda _: -1),),
        joining.deposed_and_does_not_know,
        "the leader epoch went back",
    ),
    # --- what is committed ---
    Guard(
        "high watermark uses the union ISR",
        (Place("kreplica.replication.leader.in_sync:union", _new_set_alone),),
        joining.leaving_is_being_written,
        "in sync without all that is committed",
    ),
    Guard(
        "high watermark counts every member of the ISR",
        (Place("kreplica.replication.leader.high_watermark:held_by_all", lambda own_end_offset, _: own_end_offset),),
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
        (Place("kreplica.replication.leader.high_watermark:may_advance", always),),
        leading.is_alone,
        "with too few replicas",
    ),
    Guard(
        "high watermark stands still while others may lead",
        (Place("kreplica.replication.leader.high_watermark:may_advance", _enough_in_sync),),
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
        (Place("kreplica.replication.leader.leader_state:LeaderState.has_lease", property(always)),),
        leading.is_heard_by_clients_alone,
        "was acknowledged at",
    ),
    Guard(
        "leaderships end with the session",
        (Place("kreplica.replication.partitions:Partitions.session_lost", nothing),),
        leading.woke_up_with_another_session,
        "was acknowledged at",
    ),
    # --- plans ---
    Guard(
        "bounded moves of a plan",
        (Place("kreplica.controller.plans.step_state:may_begin", always),),
        plans.moves_one_after_the_other,
        "copies .* partitions at once",
    ),
    Guard(
        "throttle of plans only for what is being added",
        (Place("kreplica.replication.throttle:may_throttle_for_plans", always),),
        plans.is_back_while_others_are_slowed,
        "not reached within",
    ),
    Guard(
        "who leaves waits until all who come are in sync",
        (Place("kreplica.controller.decisions.reassignment_plan:may_contract", always),),
        plans.leaves_when_others_have_come,
        "left before others had come|with too few replicas",
    ),
    # --- what logs hold ---
    Guard(
        "sequence check of idempotent producers",
        (Place("kreplica.storage.producers.producer_state:ProducerStates.check", nothing),),
        producing.is_sent_again,
        "duplicate",
    ),
    Guard(
        "batches behind a refused one wait for it",
        (Place("kreplica.storage.producers.refused_batches:is_gap", always),),
        producing.is_refused_with_others_behind_it,
        "duplicate",
    ),
    Guard(
        "recovery drops a torn tail",
        (Place("kreplica.storage.recovery.loading:verify_crc", always),),
        logs.tears_its_last_writes,
        "stands where .* was committed",
    ),
    Guard(
        "damaged replicas begin anew when nobody counts on them",
        (Place("kreplica.replication.damaged_replicas:may_begin_anew", always),),
        logs.is_damaged_and_counted_on,
        "in sync without all that is committed",
    ),
    Guard(
        "synced before acknowledged (flush.messages=1)",
        (Place("kreplica.replication.partition:Partition.acknowledgeable_end_offset", property(_written_is_enough)),),
        logs.all_lose_power,
        "without all",
    ),
    Guard(
        "a sync syncs",
        (Place("kreplica.storage.durability.unflushed:Unsynced.sync", nothing),),
        logs.all_lose_power,
        "without all",
    ),
    Guard(
        "unclean replicas leave the ISR",
        (Place("kreplica.controller.decisions.decisions:has_lost_nothing", always),),
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
        (Place("kreplica.membership.incarnation:is_same_boot", always),),
        logs.loses_its_end_and_is_back_at_once,
        "in sync without all that is committed",
    ),
    *COORDINATOR_GUARDS,
)
"""All of them, in the order in which a page and a score show them."""
