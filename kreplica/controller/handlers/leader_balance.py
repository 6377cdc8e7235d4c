"""Elections that no failure causes: of preferred leaders (periodic or on request), and unclean ones on request."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence

from twisted.logger import Logger

from kreplica.cluster import documents, znodes
from kreplica.controller.decisions import state_changes
from kreplica.controller.decisions.state_changes import RulesOf, StateChange
from kreplica.controller.event_types import BalanceLeaders, ElectionRequested, ElectionType, PreferredElectionRequested
from kreplica.controller.state.context import ControllerContext
from kreplica.controller.term import ControllerTerm
from kreplica.errors import ErrorCode
from kreplica.model import NO_LEADER, TopicPartition
from kreplica.zookeeper import NoNode

log = Logger()

Elections = Callable[[ControllerContext, Sequence[TopicPartition], RulesOf], list[StateChange]]

FIRST_BALANCE_SECONDS = 5.0
"""Delay of the first check after a term starts."""

BALANCED_AT_ONCE = 5000
"""Number of preferred leaders elected between two checks for urgent events."""


# --- periodic ---------------------------------------------------------------------------------------------------------


def start_balancing(term: ControllerTerm) -> None:
    """Schedule the first check of preferred leaders at the start of a term."""
    if term.config.rebalance:
        term.put_later(BalanceLeaders(), FIRST_BALANCE_SECONDS)


async def balance_leaders(term: ControllerTerm) -> None:
    """Move leadership back to preferred replicas of brokers whose imbalance exceeds the configured percentage."""
    term.put_later(BalanceLeaders(), term.config.rebalance_interval_s)
    misplaced = await _imbalance(term)
    if misplaced:
        log.info("controller: {count} partitions are not led by their preferred replica", count=len(misplaced))
    for start in range(0, len(misplaced), BALANCED_AT_ONCE):
        if start and term.must_stop_early:
            term.put(BalanceLeaders())  # finds the remaining partitions again
            break
        await _run_elections(term, misplaced[start : start + BALANCED_AT_ONCE], state_changes.preferred_elections)


async def _imbalance(term: ControllerTerm) -> list[TopicPartition]:
    """Return the partitions whose preferred replica can lead but does not, for brokers above the tolerated percentage.

    Partitions in a reassignment are excluded, because the reassignment determines their leaders.
    """
    context, percentage_max = term.context, term.config.imbalance_percentage
    preferred: dict[int, int] = defaultdict(int)
    misplaced: dict[int, list[TopicPartition]] = defaultdict(list)
    async for partition in term.in_slices(tuple(context.leadership)):
        topic, replicas = context.topics.get(partition.topic), context.replicas(partition)
        if topic is None or not replicas or partition.topic in context.deleting:
            continue
        preferred[replicas[0]] += 1
        is_moving = partition.partition in topic.adding or partition.partition in topic.removing
        if not is_moving and not context.leads(replicas[0], partition):
            misplaced[replicas[0]].append(partition)
    found = []
    for broker in sorted(misplaced):
        if len(misplaced[broker]) * 100 > percentage_max * preferred[broker]:
            async for partition in term.in_slices(misplaced[broker]):
                if rejection(context, partition, ElectionType.PREFERRED) is ErrorCode.NONE:
                    found.append(partition)
    return found


# --- on request -------------------------------------------------------------------------------------------------------


async def preferred_election_requested(term: ControllerTerm) -> None:
    """Handle ``/admin/preferred_replica_election``, which older tools write, and remove it."""
    path = znodes.PREFERRED_REPLICA_ELECTION
    if await term.client.exists(path, term.watch(path, PreferredElectionRequested())) is None:
        return
    try:
        data, _ = await term.client.get_data(path)
        await _elect(term, documents.decode_partitions(path, data), ElectionType.PREFERRED)
    except NoNode:
        return
    except znodes.ZnodeError as error:
        log.error("controller: removing an unreadable request: {error}", error=str(error))
    await term.writes.remove([path])


async def election_requested(term: ControllerTerm, request: ElectionRequested) -> dict[TopicPartition, ErrorCode]:
    """Handle an ElectLeaders request (KIP-460).

    :return: by partition: NONE if the requested leader was elected; ELECTION_NOT_NEEDED if it already led;
        PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE, UNKNOWN_TOPIC_OR_PARTITION, or
        INVALID_TOPIC_EXCEPTION while the topic is being deleted.
    """
    partitions = request.partitions
    if partitions is None:
        partitions = list(term.context.all_partitions())
    return await _elect(term, partitions, request.election_type)


def rejection(context: ControllerContext, partition: TopicPartition, election_type: ElectionType) -> ErrorCode:
    """Return an error code if the election is impossible or unnecessary, otherwise NONE."""
    state = context.leadership.get(partition)
    if state is None or not context.replicas(partition):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if partition.topic in context.deleting:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    candidates = context.electable_replicas(partition)
    if election_type is ElectionType.UNCLEAN:
        if state.leader != NO_LEADER:
            return ErrorCode.ELECTION_NOT_NEEDED
        return ErrorCode.NONE if candidates else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    preferred = context.replicas(partition)[0]
    if state.leader == preferred:
        return ErrorCode.ELECTION_NOT_NEEDED
    available = preferred in candidates and preferred in state.isr
    return ErrorCode.NONE if available else ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


async def elect_preferred(term: ControllerTerm, partitions: Collection[TopicPartition]) -> None:
    """Elect the preferred replicas of these partitions."""
    await _elect(term, partitions, ElectionType.PREFERRED)


async def elect_unclean(term: ControllerTerm, partitions: Collection[TopicPartition]) -> None:
    """Elect leaders for these partitions even if acknowledged records are lost."""
    await _elect(term, partitions, ElectionType.UNCLEAN)


async def _elect(
    term: ControllerTerm, partitions: Collection[TopicPartition], election_type: ElectionType
) -> dict[TopicPartition, ErrorCode]:
    context = term.context
    results: dict[TopicPartition, ErrorCode] = {}
    async for partition in term.in_slices(partitions):
        results[partition] = rejection(context, partition, election_type)
    possible = [partition for partition, error in results.items() if error is ErrorCode.NONE]
    preferred = election_type is ElectionType.PREFERRED
    elections = state_changes.preferred_elections if preferred else state_changes.unclean_elections
    await _run_elections(term, possible, elections)
    async for partition in term.in_slices(possible):
        # A concurrent write by a leader may have made the election impossible.
        outcome = rejection(context, partition, election_type)
        results[partition] = ErrorCode.NONE if outcome is ErrorCode.ELECTION_NOT_NEEDED else outcome
    return results


async def _run_elections(term: ControllerTerm, partitions: Sequence[TopicPartition], elections: Elections) -> None:
    """Write the results of these elections and send the commands."""
    rules, batch = term.rules(), term.new_batch()
    await term.decide(partitions, lambda part: elections(term.context, part, rules), batch)
    batch.send()
