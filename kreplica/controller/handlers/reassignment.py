"""Reassignments (KIP-455): executes the steps that ``reassignment_plan`` determines for each partition.

The complete state of a reassignment is in the topic's znode and changes in one multi with the partition states, so a
new controller only needs to call ``finish_ready_moves``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from twisted.logger import Logger

from kreplica.controller.decisions import reassignment_plan as plan
from kreplica.controller.decisions import state_changes
from kreplica.controller.decisions.leader_election import Election
from kreplica.controller.decisions.reassignment_plan import Placement
from kreplica.controller.decisions.state_changes import RulesOf, StateChange
from kreplica.controller.effects.state_writes import TopicChange
from kreplica.controller.event_types import (
    AlterReassignmentsRequested,
    ListReassignmentsRequested,
    ReassignmentsRequested,
)
from kreplica.controller.handlers.assignment_writes import PARTITIONS_PER_CHANGE_MAX, change_topics
from kreplica.controller.handlers.replica_removal import remove_deleted_replicas
from kreplica.controller.state.context import ControllerContext
from kreplica.controller.term import ControllerTerm
from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import NO_LEADER, TopicPartition

log = Logger()

Targets = Mapping[TopicPartition, "tuple[int, ...] | None"]
"""Target replicas by partition; None cancels the reassignment."""

Results = dict[TopicPartition, "KafkaError | None"]


async def reassign(term: ControllerTerm, targets: Targets) -> Results:
    """Start reassignments, or change the targets of ongoing ones.

    :return: for each partition, None if the change was written, otherwise an error: INVALID_REPLICA_ASSIGNMENT,
        NO_REASSIGNMENT_IN_PROGRESS or UNKNOWN_TOPIC_OR_PARTITION.
    """
    requested_moves = _RequestedMoves(term.context, term.rules(), targets)
    batch = term.new_batch()
    await change_topics(term, requested_moves.topics, requested_moves.decide, batch)
    batch.send()
    started = [partition for partition, error in requested_moves.results.items() if error is None]
    _record_reassignments(term, started, requested_moves.results)
    await finish_ready_moves(term, started)
    return requested_moves.results


def _record_reassignments(term: ControllerTerm, started: Iterable[TopicPartition], results: Results) -> None:
    history, moves = term.history, reassigned_partitions(term.context, started)
    history.record_many("reassignments_started", "partition", moves, "{what}: reassignment started")
    rejected = [(partition, error) for partition, error in results.items() if error is not None]
    if rejected:
        text = f"{{what}}: reassignment rejected ({rejected[0][1]})"
        history.record_many("reassignments_rejected", "partition", [partition for partition, _ in rejected], text)


async def alter_reassignments(term: ControllerTerm, event: AlterReassignmentsRequested) -> Results:
    """Start or cancel reassignments for a client; this overrides ``/admin/reassign_partitions``."""
    results = await reassign(term, event.targets)
    term.put(ReassignmentsRequested())
    return results


async def list_reassignments(
    term: ControllerTerm, event: ListReassignmentsRequested
) -> dict[TopicPartition, Placement]:
    """Return the ongoing reassignments of these partitions; one that only has files left to delete is not ongoing."""
    context = term.context
    return {partition: placement(context, partition) for partition in reassigned_partitions(context, event.partitions)}


async def finish_ready_moves(term: ControllerTerm, partitions: Iterable[TopicPartition] | None = None) -> None:
    """Finish the reassignments of these partitions (of all if None) whose target is in sync."""
    context, rules, batch = term.context, term.rules(), term.new_batch()
    reassigned = reassigned_partitions(context, partitions)
    topics = sorted({partition.topic for partition in reassigned})
    await change_topics(term, topics, lambda topic: _final_change(context, rules, topic), batch)
    batch.send()
    ongoing = set(reassigned_partitions(context, reassigned))
    finished = [partition for partition in reassigned if partition not in ongoing]
    if finished:
        log.info("controller: reassignment of {count} partitions finished", count=len(finished))
        term.history.record_many("reassignments_finished", "partition", finished, "{what}: reassignment finished")
        await remove_deleted_replicas(term, sorted({partition.topic for partition in finished}))
        term.put(ReassignmentsRequested())


def reassigned_partitions(
    context: ControllerContext, partitions: Iterable[TopicPartition] | None = None
) -> list[TopicPartition]:
    """Return those of these partitions (of all if None) that are being reassigned."""
    if partitions is None:
        partitions = (
            TopicPartition(topic, number)
            for topic, assignment in sorted(context.topics.items())
            for number in sorted(assignment.adding.keys() | assignment.removing.keys())
        )
    return [partition for partition in partitions if _is_moving(context, partition)]


def _is_moving(context: ControllerContext, partition: TopicPartition) -> bool:
    assignment, number = context.topics.get(partition.topic), partition.partition
    if assignment is None or partition.topic in context.deleting or number not in assignment.partitions:
        return False
    has_changes = number in assignment.adding or number in assignment.removing
    return has_changes and plan.placement_of(assignment, number).is_moving


def placement(context: ControllerContext, partition: TopicPartition) -> Placement:
    """Return the current and target replicas of a partition."""
    return plan.placement_of(context.topics[partition.topic], partition.partition)


# --- decisions --------------------------------------------------------------------------------------------------------


class _RequestedMoves:
    """Requested reassignments with their results; decided topic by topic, and again after a concurrent write."""

    def __init__(self, context: ControllerContext, rules: RulesOf, targets: Targets) -> None:
        self._context = context
        self._rules = rules
        self._targets = dict(targets)
        self._by_topic: dict[str, list[TopicPartition]] = defaultdict(list)
        self.results: Results = {}
        for partition in targets:
            self._by_topic[partition.topic].append(partition)
            self.results[partition] = KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the partition does not exist, or its topic is being deleted"
            )

    @property
    def topics(self) -> list[str]:
        return sorted(self._by_topic)

    def decide(self, topic: str) -> TopicChange | None:
        context = self._context
        placements: dict[int, Placement] = {}
        states = []
        for partition in self._by_topic[topic]:
            current, following = self._step(partition)
            if following is None or following == current or len(placements) == PARTITIONS_PER_CHANGE_MAX:
                continue
            placements[partition.partition] = following
            state = context.leadership.get(partition)
            if state is not None and set(following.replicas) != set(current.replicas if current else ()):
                election = Election(state.leader, state.isr)
                states.append(state_changes.next_state_change(context, partition, election, self._rules))
        if not placements:
            return None
        assignment = plan.with_placements(context.topics[topic], placements)
        return TopicChange(assignment, context.topic_versions[topic], tuple(states))

    def _step(self, partition: TopicPartition) -> tuple[Placement | None, Placement | None]:
        """Return the placement before and after the first step; (None, None) if the request is rejected."""
        if partition.partition not in self._context.topics[partition.topic].partitions:
            return None, None
        current = placement(self._context, partition)
        try:
            target = self._check_target(partition, current)
        except KafkaError as error:
            self.results[partition] = error
            return None, None
        self.results[partition] = None
        # Keep the original replicas as the target: a second cancellation would find no reassignment and fail.
        self._targets[partition] = target
        state = self._context.leadership.get(partition)
        if state is None:
            return current, Placement(target)  # it never had a leader, so there is no data to move
        return current, plan.expand(current, target, (*state.isr, *state.eligible_leader_replicas))

    def _check_target(self, partition: TopicPartition, current: Placement) -> tuple[int, ...]:
        target = self._targets[partition]
        if target is None:
            if not current.is_moving:
                raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"{partition} is not being reassigned")
            return current.origin
        if partition.partition in self._context.topics[partition.topic].read_only:
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{partition} is being removed")
        reason = plan.reason_to_reject(current, target, self._context.brokers)
        if reason is not None:
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{partition}: {reason}")
        return target


def _final_change(context: ControllerContext, rules: RulesOf, topic: str) -> TopicChange | None:
    """Return the change that finishes all reassignments of a topic whose target is in sync."""
    assignment = context.topics[topic]
    numbers = sorted((assignment.adding.keys() | assignment.removing.keys()) & assignment.partitions.keys())
    placements: dict[int, Placement] = {}
    states = []
    for number in numbers:
        partition, current = TopicPartition(topic, number), plan.placement_of(assignment, number)
        change = _contracted_state(context, rules, partition, current)
        if change is not None and len(placements) < PARTITIONS_PER_CHANGE_MAX:
            placements[number] = plan.contracted(current)
            states.append(change)
    if not placements:
        return None
    return TopicChange(plan.with_placements(assignment, placements), context.topic_versions[topic], tuple(states))


def _contracted_state(
    context: ControllerContext, rules: RulesOf, partition: TopicPartition, current: Placement
) -> StateChange | None:
    state = context.leadership.get(partition)
    if state is None or state.leader == NO_LEADER:
        return None  # a replica in the ISR must return first
    required = rules(partition.topic).min_insync_replicas
    election = plan.contract(current, state, context.electable_replicas(partition), in_sync_required=required)
    if election is None:
        return None
    change = state_changes.next_state_change(context, partition, election, rules)
    return replace(change, state=replace(change.state, eligible_leader_replicas=_within(change, current.target)))


def _within(change: StateChange, target: Collection[int]) -> tuple[int, ...]:
    return tuple(replica for replica in change.state.eligible_leader_replicas if replica in target)
