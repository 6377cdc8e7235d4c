"""Guards of replication, each with its mutant; see ``guard``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import Deferred, succeed

from kreplica.cluster import znodes
from kreplica.controller.effects.resumption import Outcome
from kreplica.membership.follower_incarnations import FollowerIncarnations
from kreplica.membership.incarnation import Note
from kreplica.model import NO_BROKER_EPOCH
from kreplica.replication import Partition
from kreplica.zookeeper import Check
from tests.support.mutations.coordinator_guards import COORDINATOR_GUARDS
from tests.support.mutations.ensemble_guards import ENSEMBLE_GUARDS
from tests.support.mutations.guard import Guard, Place, always, never, nothing
from tests.support.mutations.scenarios import commands, joining, leading, logs, plans, producing
from tests.support.mutations.security_guards import SECURITY_GUARDS


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


def _always_applied(*_: Any) -> Outcome:
    return Outcome.APPLIED


def _register_unconfirmed(followers: FollowerIncarnations, broker_id: int, broker_epoch: int) -> Deferred[bool]:
    followers.epochs[broker_id] = broker_epoch
    return succeed(True)


def _first_note_only(notes: Sequence[Note | None], **_: Any) -> int:
    return notes[0].intact_since if notes and notes[0] else NO_BROKER_EPOCH


GUARDS: tuple[Guard, ...] = (
    # --- commands ---
    Guard(
        "a command for an old broker epoch is rejected",
        (Place("kreplica.replication.controller_fence:is_stale_broker_epoch", never),),
        commands.command_reaches_restarted_broker,
        "leads in epoch .* without all commits",
    ),
    Guard(
        "a command for an old broker epoch is rejected before registration",
        (Place("kreplica.replication.controller_fence:ControlFence.reject_registrations_up_to", nothing),),
        commands.command_before_registration,
        "leads in epoch .* without all commits",
    ),
    Guard(
        "commands are rejected after the session has expired",
        (Place("kreplica.replication.controller_fence:ControlFence.session_ended", nothing),),
        commands.command_after_session_expiry,
        "was acknowledged at",
    ),
    Guard(
        "a command with an old controller epoch is rejected",
        (Place("kreplica.replication.controller_fence:is_stale_controller_epoch", never),),
        commands.command_of_previous_controller,
        "a broker accepts an older controller",
    ),
    Guard(
        "a command that a newer one has overtaken is rejected",
        (Place("kreplica.replication.controller_fence:is_overtaken", never),),
        commands.command_of_previous_connection,
        "has created a deleted replica again",
    ),
    Guard(
        "a command with an old leader epoch is rejected",
        (
            Place("kreplica.replication.controller_fence:is_stale_controller_epoch", never),
            Place("kreplica.replication.controller_fence:is_current_epoch", always),
        ),
        commands.command_of_previous_controller,
        "a broker accepts an older controller",
        "one controller sends its commands in order, so an older leader epoch means an older controller",
    ),
    Guard(
        "a follower starts fetching only for a higher leader epoch",
        (Place("kreplica.replication.controller_fence:is_new_epoch", always),),
        commands.outdated_isr_from_new_controller,
        "in sync without all committed records",
    ),
    Guard(
        "each controller write checks the controller epoch",
        (Place("kreplica.controller.effects.state_writes:guard_of_term", _any_term),),
        commands.deposed_controller_elects_leader,
        "written by controller .* after",
    ),
    Guard(
        "the outcome of a lost controller write is read",
        (Place("kreplica.controller.effects.resumption:outcome_of_multi", _always_applied),),
        commands.lost_write_of_controller,
        "not reached within",
    ),
    # --- followers ---
    Guard(
        "follower states are reset on a new leader epoch",
        (Place("kreplica.replication.leader.followers:is_of_epoch", always),),
        commands.leader_missed_an_epoch,
        "commits .* with too few replicas",
    ),
    Guard(
        "a fetch with a different leader epoch is rejected",
        (
            Place("kreplica.replication.controller_fence:is_of_leader_epoch", always),
            Place("kreplica.replication.follower.follower_state:matches_epoch", always),
            Place("kreplica.membership.follower_incarnations:FollowerIncarnations.confirm", _register_unconfirmed),
        ),
        commands.fetch_of_previous_epoch,
        "in sync without all committed records",
        "the follower discards responses of a different epoch, and a leader without ZooKeeper adds no "
        "unconfirmed follower to the ISR",
    ),
    Guard(
        "a fetch response for a different offset is discarded",
        (
            Place("kreplica.replication.follower.follower_state:matches_offset", always),
            Place("kreplica.storage.segments.batch_validation:may_follow", always),
        ),
        logs.overlapping_fetches,
        "follows one that ends",
        "a log rejects every batch whose first offset is below its end",
    ),
    Guard(
        "followers truncate by leader epoch, not by high watermark",
        (
            Place("kreplica.replication.follower.truncation:truncation_offset", _cut_at_high_watermark),
            Place("kreplica.replication.follower.truncation:end_of_known_history", _cut_at_high_watermark),
        ),
        logs.truncation_after_restart,
        "in sync without all committed records",
        "if the log is first truncated to the high watermark, no divergence remains",
    ),
    # --- in-sync replicas ---
    Guard(
        "a follower joins the ISR only after it has fetched in this epoch",
        (
            Place("kreplica.replication.leader.isr_membership:has_fetched_in_this_epoch", always),
            Place("kreplica.replication.leader.isr_membership:has_reached_high_watermark", always),
            Place("kreplica.replication.leader.isr_membership:has_reached_epoch_start", always),
        ),
        joining.slow_catch_up,
        "in sync without all committed records",
        "the log end of a follower that has not fetched is unknown, and compares as lower than every offset",
    ),
    Guard(
        "a follower joins the ISR only if it has reached the high watermark",
        (Place("kreplica.replication.leader.isr_membership:has_reached_high_watermark", always),),
        joining.slow_catch_up,
        "in sync without all committed records",
    ),
    Guard(
        "a follower joins the ISR only if it has reached the start of the epoch",
        (Place("kreplica.replication.leader.isr_membership:has_reached_epoch_start", always),),
        joining.fetch_from_leader_with_old_high_watermark,
        "in sync without all committed records",
    ),
    Guard(
        "a follower joins the ISR only with its current broker epoch",
        (
            Place("kreplica.replication.leader.isr_membership:is_current_incarnation", always),
            Place("kreplica.replication.leader.isr_membership:is_of_earlier_incarnation", never),
        ),
        joining.restart_during_isr_write,
        "in sync without all committed records",
        "a follower that fetched before its broker restarted is no longer registered",
    ),
    Guard(
        "lagging followers leave the ISR",
        (Place("kreplica.replication.leader.isr_membership:is_lagging", never),),
        leading.silent_follower,
        "not reached within",
    ),
    Guard(
        "ISR write is conditional",
        (Place("kreplica.replication.leader.isr_membership:expected_version", lambda _: -1),),
        joining.deposed_leader_writes_isr,
        "the leader epoch decreased",
    ),
    # --- commits ---
    Guard(
        "the high watermark covers the old and the new ISR during a change",
        (Place("kreplica.replication.leader.isr_membership:union", _new_set_alone),),
        joining.isr_shrink_in_flight,
        "in sync without all committed records",
    ),
    Guard(
        "the high watermark covers every member of the ISR",
        (Place("kreplica.replication.leader.high_watermark:smallest_log_end_offset", lambda own, _: own),),
        leading.silent_follower,
        "in sync without all committed records",
    ),
    Guard(
        "min.insync.replicas limits the high watermark",
        (Place("kreplica.cluster.eligible_leaders:required_isr_size", lambda *_: 1),),
        leading.leader_alone_in_sync,
        "with too few replicas",
    ),
    Guard(
        "the high watermark does not advance with too few in-sync replicas",
        (Place("kreplica.replication.leader.high_watermark:may_advance", always),),
        leading.leader_alone_in_sync,
        "with too few replicas",
    ),
    Guard(
        "the high watermark does not advance while another leader is possible",
        (Place("kreplica.replication.leader.high_watermark:may_advance", _enough_in_sync),),
        leading.min_insync_replicas_lowered,
        "without all",
    ),
    Guard(
        "replicas removed from an ISR that is too small stay eligible",
        (Place("kreplica.cluster.eligible_leaders:eligible_after", lambda *_, **__: ()),),
        leading.leader_alone_in_sync_dies,
        "leads in epoch .* without all commits",
    ),
    Guard(
        "a leader acknowledges records only while it has a lease",
        (Place("kreplica.replication.leader.leader_state:LeaderState.has_lease", property(always)),),
        leading.leader_without_zookeeper,
        "was acknowledged at",
    ),
    Guard(
        "leadership ends with the session",
        (Place("kreplica.replication.partitions:Partitions.session_lost", nothing),),
        leading.leader_paused_past_session,
        "was acknowledged at",
    ),
    # --- plans ---
    Guard(
        "a plan runs a limited number of moves at a time",
        (Place("kreplica.controller.plans.step_state:can_begin", always),),
        plans.one_move_at_a_time,
        "copies .* partitions at once",
    ),
    Guard(
        "plan throttle applies only to added replicas",
        (Place("kreplica.replication.throttle:may_throttle_for_plans", always),),
        plans.catch_up_during_throttled_plan,
        "not reached within",
    ),
    Guard(
        "replicas leave only after all their replacements are in sync",
        (Place("kreplica.controller.decisions.reassignment_plan:can_contract", always),),
        plans.replicas_leave_after_replacements_join,
        "left before others were in sync|with too few replicas",
    ),
    # --- logs ---
    Guard(
        "sequence check of idempotent producers",
        (Place("kreplica.storage.producers.producer_state:ProducerStates.check", nothing),),
        producing.retry_after_lost_acknowledgement,
        "duplicate",
    ),
    Guard(
        "batches behind a rejected one wait for it",
        (Place("kreplica.storage.producers.rejected_batches:is_gap", always),),
        producing.rejected_batch_with_others_in_flight,
        "duplicate",
    ),
    Guard(
        "recovery drops a torn tail",
        (Place("kreplica.storage.recovery.loading:verify_crc", always),),
        logs.torn_writes,
        "found .* where .* was committed",
    ),
    Guard(
        "damaged replicas are rebuilt only if other replicas do not need them",
        (Place("kreplica.replication.damaged_replicas:may_discard_damaged_replica", always),),
        logs.damaged_log_after_restart,
        "in sync without all committed records",
    ),
    Guard(
        "records are synced before they are acknowledged (flush.messages=1)",
        (Place("kreplica.replication.partition:Partition.acknowledgeable_end_offset", property(_written_is_enough)),),
        logs.power_loss_of_all_replicas,
        "without all",
    ),
    Guard(
        "a sync reaches the disk",
        (Place("kreplica.storage.durability.unflushed:Unsynced.sync", nothing),),
        logs.power_loss_of_all_replicas,
        "without all",
    ),
    Guard(
        "unclean replicas leave the ISR",
        (Place("kreplica.controller.decisions.state_changes:has_intact_logs", always),),
        logs.fast_restart_after_power_loss,
        "in sync without all committed records",
    ),
    Guard(
        "a broker reports its logs as intact only after it has checked them",
        (Place("kreplica.membership.incarnation:intact_since", _first_note_only),),
        logs.fast_restart_after_power_loss,
        "in sync without all committed records",
    ),
    Guard(
        "a restart of the machine is detected by its boot ID",
        (Place("kreplica.membership.incarnation:is_same_boot", always),),
        logs.fast_restart_after_power_loss,
        "in sync without all committed records",
    ),
    *ENSEMBLE_GUARDS,
    *COORDINATOR_GUARDS,
    *SECURITY_GUARDS,
)
"""The guards, in the order of the table in the documentation."""
