"""Taking office: what a broker does between winning the election and handling the first event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from twisted.logger import Logger

from kreplica.cluster import znodes
from kreplica.controller import decisions, isr_changes, log_dir_events, partition_counts, reassignment
from kreplica.controller.brokers import known_epoch, read_brokers
from kreplica.controller.context import ControllerContext
from kreplica.controller.decisions import StateChange, initial_elections
from kreplica.controller.departures import cross_out
from kreplica.controller.events import TopicsChanged
from kreplica.controller.leader_balance import preferred_election_asked, start_balancing
from kreplica.controller.office import Office
from kreplica.controller.reassignment_requests import reassignments_requested
from kreplica.controller.replica_deletion import begin_deletion
from kreplica.controller.states import PartitionState, ReplicaState
from kreplica.controller.topic_deletion import deletions_changed
from kreplica.controller.topics import elect_new_partitions, read_assignments
from kreplica.model import TopicPartition

log = Logger()


async def take_office(office: Office) -> None:
    """Read the whole cluster, decide what its present state asks for, and tell every broker, in one step.

    Watches are set before or with each read, so that nothing that changes meanwhile is missed.
    """
    context = office.context
    for registration in (await read_brokers(office)).values():
        context.add_broker(registration)
        office.open_channel(registration)
    # Before any LeaderAndIsr: brokers need to know where the others are.
    requests = office.requests()
    requests.publish(())
    requests.send()

    # What these tell is in all that is read from here on.
    told = [*await isr_changes.notifications(office), *await log_dir_events.notifications(office)]
    topics = await office.client.get_children(znodes.TOPICS, lambda _: office.put(TopicsChanged()))
    await read_assignments(office, sorted(topics))
    written = await office.read_states(context.all_partitions())
    deleting = await office.client.get_children(znodes.DELETE_TOPICS)
    context.deleting.update(topic for topic in deleting if topic in context.topics)
    _enter_states(context, written)
    await _elect(office, written)
    requests = office.requests()
    for partition in context.staying(context.leadership):
        requests.lead_or_follow(partition, context.listeners(partition))
    requests.publish([*context.leadership, *context.removed_partitions()])
    requests.send()
    if told:
        await office.writes.remove(told)

    # What is asked for already is taken up as if it were asked for now.
    context.deleting.clear()
    await deletions_changed(office)
    await _carry_on(office)
    await preferred_election_asked(office)
    start_balancing(office)
    log.info(
        "controller: broker {broker} took office in epoch {epoch}: "
        "{brokers} brokers, {topics} topics, {partitions} partitions",
        broker=office.config.broker_id,
        epoch=context.controller_epoch,
        brokers=len(context.brokers),
        topics=len(context.topics),
        partitions=len(context.leadership),
    )


async def _carry_on(office: Office) -> None:
    """Take up what an earlier controller began, wherever it was."""
    requests = office.requests()
    for topic in sorted(office.context.topics):
        begin_deletion(office, office.context.leaving_of(topic), requests)
    requests.send()
    await reassignment.proceed(office)
    await cross_out(office)
    await reassignments_requested(office)
    await partition_counts.carry_on(office)


def _enter_states(context: ControllerContext, written: Mapping[TopicPartition, int]) -> None:
    """:param written: the zxid at which each state was written."""
    for partition in context.all_partitions():
        context.move_partition(partition, PartitionState.NEW)
        state = context.leadership.get(partition)
        if state is not None:
            led = state.leader in context.brokers and not _bounced(context, partition, written)
            context.move_partition(partition, PartitionState.ONLINE if led else PartitionState.OFFLINE)
        for replica in context.replicas(partition):
            context.move_replica(partition, replica, ReplicaState.NEW)
            alive = replica in context.brokers
            context.move_replica(partition, replica, ReplicaState.ONLINE if alive else ReplicaState.OFFLINE)


def _bounced(context: ControllerContext, partition: TopicPartition, written: Mapping[TopicPartition, int]) -> bool:
    """Whether the leader registered after it was chosen, so that it has to be chosen again, in a new epoch.

    As KIP-380 does within one controller's term; what a leader's process knew of its followers is lost with it.
    """
    leader = context.brokers.get(context.leadership[partition].leader)
    return leader is not None and leader.epoch > written[partition]


def places_known_since(context: ControllerContext, written: Mapping[TopicPartition, int]) -> dict[int, int]:
    """By broker, the last zxid at which it may have registered without that anybody took notice of it.

    Whoever had a place in an in-sync or eligible set when that was written had registered before; and each loss since
    would have been followed by another write of each of its states.  So the oldest of them says how far back a broker
    must have lost nothing to keep its places.
    """
    since: dict[int, int] = {}
    for partition, zxid in written.items():
        state = context.leadership[partition]
        for broker in (*state.isr, *state.eligible_leader_replicas):
            since[broker] = min(since.get(broker, zxid - 1), zxid - 1)
    return since


async def _elect(office: Office, written: Mapping[TopicPartition, int]) -> None:
    """Leaders for all that lack one, and no dead or unclean replica in any in-sync set, in one sequence of writes."""
    context, rules = office.context, office.rules()
    context.known_epochs = places_known_since(context, written)
    unclean = {
        broker
        for broker, registration in context.brokers.items()
        if not decisions.has_lost_nothing(registration, known_epoch(office, broker))
    }
    led_anew = {p for p in written if _bounced(context, p, written)}

    def decide(partitions: Sequence[TopicPartition]) -> list[StateChange]:
        changes = []
        for partition in partitions:
            state = context.leadership.get(partition)
            bounced = (state.leader,) if state is not None and partition in led_anew else ()
            changes += decisions.repairs(context, [partition], rules, bounced=bounced, unclean=unclean)
        return changes

    # The requests that these form are left out: the whole state is sent right after.
    await office.decide(context.staying(context.leadership), decide, office.requests())
    for broker, registration in context.brokers.items():
        context.known_epochs[broker] = registration.epoch
    new = context.staying(context.partitions_in(PartitionState.NEW))
    if initial_elections(context, new):
        await elect_new_partitions(office, new)
