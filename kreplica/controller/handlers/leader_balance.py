"""Elections that no failure asks for: of preferred leaders, asked for or now and again, and unclean ones, asked for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence

from twisted.logger import Logger

from kreplica.cluster import documents, znodes
from kreplica.controller.decisions import decisions
from kreplica.controller.decisions.decisions import RulesOf, StateChange
from kreplica.controller.event_types import BalanceLeaders, ElectionAsked, ElectionType, PreferredElectionAsked
from kreplica.controller.state.context import ControllerContext
from kreplica.controller.term import Office
from kreplica.errors import ErrorCode
from kreplica.model import NO_LEADER, TopicPartition
from kreplica.zookeeper import NoNode

log = Logger()

Elections = Callable[[ControllerContext, Sequence[TopicPartition], RulesOf], list[StateChange]]

FIRST_BALANCE_SECONDS = 5.0


# --- by itself --------------------------------------------------------------------------------------------------------


def start_balancing(office: Office) -> None:
    """The controller took office: look soon, and then now and again."""
    if office.config.rebalance:
        office.put_later(BalanceLeaders(), FIRST_BALANCE_SECONDS)


async def balance_leaders(office: Office) -> None:
    """Give leaderships back to the brokers that should have them, where too many are with others."""
    office.put_later(BalanceLeaders(), office.config.rebalance_interval_s)
    strayed = await _imbalance(office)
    if strayed:
        log.info("controller: {count} partitions are led by others than they should be", count=len(strayed))
        await _hold(office, strayed, decisions.preferred_elections)


async def _imbalance(office: Office) -> list[TopicPartition]:
    """The partitions whose preferred replica could lead but does not, of brokers that miss more than so many percent.

    Partitions whose replicas move are left alone: their leaders are part of the move.
    """
    context, percentage_max = office.context, office.config.imbalance_percentage
    preferred: dict[int, int] = defaultdict(int)
    strayed: dict[int, list[TopicPartition]] = defaultdict(list)
    async for partition in office.in_turns(tuple(context.leadership)):
        topic, replicas = context.topics.get(partition.topic), context.replicas(partition)
        if topic is None or not replicas or partition.topic in context.deleting:
            continue
        preferred[replicas[0]] += 1
        is_moving = partition.partition in topic.adding or partition.partition in topic.removing
        if not is_moving and not context.leads(replicas[0], partition):
            strayed[replicas[0]].append(partition)
    return [
        partition
        for broker in sorted(strayed)
        if len(strayed[broker]) * 100 > percentage_max * preferred[broker]
        for partition in strayed[broker]
        if refusal(context, partition, ElectionType.PREFERRED) is ErrorCode.NONE
    ]


# --- on request -------------------------------------------------------------------------------------------------------


async def preferred_election_asked(office: Office) -> None:
    """``/admin/preferred_replica_election`` may have been written, the way of older tools: do it, and remove it."""
    path = znodes.PREFERRED_REPLICA_ELECTION
    if await office.client.exists(path, office.watch(path, PreferredElectionAsked())) is None:
        return
    try:
        data, _ = await office.client.get_data(path)
        await _elect(office, documents.decode_partitions(path, data), ElectionType.PREFERRED)
    except NoNode:
        return
    except znodes.ZnodeError as error:
        log.error("controller: a request that cannot be read is removed: {error}", error=str(error))
    await office.writes.remove([path])


async def election_asked(office: Office, question: ElectionAsked) -> dict[TopicPartition, ErrorCode]:
    """Choose leaders as ElectLeaders asks (KIP-460).

    :return: by partition: NONE where there is the leader that was asked for; ELECTION_NOT_NEEDED where there was
        already; PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE, UNKNOWN_TOPIC_OR_PARTITION, or
        INVALID_TOPIC_EXCEPTION while its topic is being deleted.
    """
    partitions = question.partitions
    if partitions is None:
        partitions = list(office.context.all_partitions())
    return await _elect(office, partitions, question.election_type)


def refusal(context: ControllerContext, partition: TopicPartition, election_type: ElectionType) -> ErrorCode:
    """Why such an election cannot be held, or need not be; NONE where it can."""
    state = context.leadership.get(partition)
    if state is None or not context.replicas(partition):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if partition.topic in context.deleting:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    candidates = context.may_lead(partition)
    if election_type is ElectionType.UNCLEAN:
        if state.leader != NO_LEADER:
            return ErrorCode.ELECTION_NOT_NEEDED
        return ErrorCode.NONE if candidates else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    preferred = context.replicas(partition)[0]
    if state.leader == preferred:
        return ErrorCode.ELECTION_NOT_NEEDED
    available = preferred in candidates and preferred in state.isr
    return ErrorCode.NONE if available else ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


async def elect_preferred(office: Office, partitions: Collection[TopicPartition]) -> None:
    """Have the preferred replicas of these partitions lead, of which it is known that they can."""
    await _elect(office, partitions, ElectionType.PREFERRED)


async def elect_unclean(office: Office, partitions: Collection[TopicPartition]) -> None:
    """Have somebody lead these partitions, whatever records that costs."""
    await _elect(office, partitions, ElectionType.UNCLEAN)


async def _elect(
    office: Office, partitions: Collection[TopicPartition], election_type: ElectionType
) -> dict[TopicPartition, ErrorCode]:
    context = office.context
    results = {partition: refusal(context, partition, election_type) for partition in partitions}
    wanted = [partition for partition, error in results.items() if error is ErrorCode.NONE]
    preferred = election_type is ElectionType.PREFERRED
    await _hold(office, wanted, decisions.preferred_elections if preferred else decisions.unclean_elections)
    for partition in wanted:
        # What a leader wrote meanwhile may have made it impossible.
        outcome = refusal(context, partition, election_type)
        results[partition] = ErrorCode.NONE if outcome is ErrorCode.ELECTION_NOT_NEEDED else outcome
    return results


async def _hold(office: Office, partitions: Sequence[TopicPartition], elections: Elections) -> None:
    """Have these elections written and told."""
    rules, requests = office.rules(), office.requests()
    await office.decide(partitions, lambda some: elections(office.context, some, rules), requests)
    requests.send()
