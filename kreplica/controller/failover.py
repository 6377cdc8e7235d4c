"""Taking office: what a broker does between winning the election and handling the first event."""

from __future__ import annotations

from collections.abc import Mapping

from twisted.logger import Logger

from kreplica.cluster import znodes
from kreplica.controller.brokers import read_brokers
from kreplica.controller.context import ControllerContext
from kreplica.controller.decisions import initial_elections, offline_elections, replica_removals
from kreplica.controller.events import TopicsChanged
from kreplica.controller.office import Office
from kreplica.controller.states import PartitionState, ReplicaState
from kreplica.controller.topics import deletions_changed, elect_new_partitions, read_assignments
from kreplica.model import NO_LEADER, TopicPartition

log = Logger()


async def take_office(office: Office) -> None:
    """Read the whole cluster, decide what its present state asks for, and tell every broker, in one step.

    Watches are set before or with each read, so that nothing that changes meanwhile is missed.
    """
    context = office.context
    context.brokers.update(await read_brokers(office))
    for registration in context.brokers.values():
        office.open_channel(registration)
    # Before any LeaderAndIsr: brokers need to know where the others are.
    requests = office.requests()
    requests.publish(())
    requests.send()

    topics = await office.client.get_children(znodes.TOPICS, lambda _: office.put(TopicsChanged()))
    await read_assignments(office, sorted(topics))
    written = await office.read_states(context.all_partitions())
    deleting = await office.client.get_children(znodes.DELETE_TOPICS)
    context.deleting.update(topic for topic in deleting if topic in context.topics)
    _enter_states(context, written)

    await _elect(office)
    requests = office.requests()
    for partition in context.leadership:
        if partition.topic not in context.deleting:
            requests.lead_or_follow(partition, context.replicas(partition))
    requests.publish(context.leadership)
    requests.send()

    # What is asked for already is taken up as if it were asked for now.
    context.deleting.clear()
    await deletions_changed(office)
    log.info(
        "controller: broker {broker} took office in epoch {epoch}: "
        "{brokers} brokers, {topics} topics, {partitions} partitions",
        broker=office.config.broker_id,
        epoch=context.controller_epoch,
        brokers=len(context.brokers),
        topics=len(context.topics),
        partitions=len(context.leadership),
    )


def _enter_states(context: ControllerContext, written: Mapping[TopicPartition, int]) -> None:
    """:param written: the zxid at which each state was written."""
    for partition in context.all_partitions():
        context.move_partition(partition, PartitionState.NEW)
        state = context.leadership.get(partition)
        if state is not None:
            leader = context.brokers.get(state.leader)
            # A leader that registered after it was chosen has bounced, and may have lost the end of its log: it has to
            # be chosen again, in a new epoch (KIP-380 across controllers).
            led = leader is not None and leader.epoch < written[partition]
            context.move_partition(partition, PartitionState.ONLINE if led else PartitionState.OFFLINE)
        for replica in context.replicas(partition):
            context.move_replica(partition, replica, ReplicaState.NEW)
            alive = replica in context.brokers
            context.move_replica(partition, replica, ReplicaState.ONLINE if alive else ReplicaState.OFFLINE)


async def _elect(office: Office) -> None:
    context = office.context

    def stays(partition: TopicPartition) -> bool:
        return partition.topic not in context.deleting

    offline = list(filter(stays, context.partitions_in(PartitionState.OFFLINE)))
    changes = offline_elections(context, offline, office.config.unclean_allowed)
    dead = {r for state in context.leadership.values() for r in state.isr if r not in context.brokers} - {NO_LEADER}
    changes += [change for change in replica_removals(context, dead) if stays(change.partition)]
    # The requests that these form are left out: the whole state is sent right after.
    await office.apply(changes, office.requests())
    new = list(filter(stays, context.partitions_in(PartitionState.NEW)))
    if initial_elections(context, new):
        await elect_new_partitions(office, new)
