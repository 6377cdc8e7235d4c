"""The first step of a new controller, between winning the election and handling the first event."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import chain

from twisted.logger import Logger

from kreplica.cluster import documents, znodes
from kreplica.controller.decisions import state_changes
from kreplica.controller.decisions.state_changes import StateChange, initial_elections
from kreplica.controller.handlers import isr_changes, log_dir_events, partition_counts, reassignment
from kreplica.controller.handlers.broker_changes import read_brokers
from kreplica.controller.handlers.leader_balance import preferred_election_requested, start_balancing
from kreplica.controller.handlers.leaders_first import elect_leaders_first
from kreplica.controller.handlers.reassignment_requests import reassignments_requested
from kreplica.controller.handlers.replica_deletion import begin_deletion
from kreplica.controller.handlers.replica_removal import remove_deleted_replicas
from kreplica.controller.handlers.topic_creation import elect_new_partitions, list_topics, read_assignments
from kreplica.controller.handlers.topic_deletion import deletions_changed
from kreplica.controller.plans import execution
from kreplica.controller.state.states import PartitionState, ReplicaState
from kreplica.controller.term import ControllerTerm
from kreplica.model import NO_BROKER_EPOCH, NO_LEADER, TopicPartition
from kreplica.zookeeper import NoNode

log = Logger()


async def take_over(term: ControllerTerm) -> None:
    """Read the cluster, repair its state and send the full state to every broker, in one step.

    Watches are set before or with each read, so that no concurrent change is missed.
    """
    context = term.context
    for registration in (await read_brokers(term)).values():
        context.add_broker(registration)
        term.open_channel(registration)
    # Before any LeaderAndIsr, because brokers need each other's addresses.
    batch = term.new_batch()
    batch.publish(())
    batch.send()

    # Everything read from here on includes the changes that these notifications announce.
    notifications = [*await isr_changes.notifications(term), *await log_dir_events.notifications(term)]
    await read_assignments(term, await list_topics(term))
    last_write_zxids = await term.read_states(context.all_partitions())
    deleting = await term.client.get_children(znodes.DELETE_TOPICS)
    context.deleting.update(topic for topic in deleting if topic in context.topics)
    known = await _known_epochs(term, last_write_zxids)
    bounced = {b for b, registration in context.brokers.items() if registration.epoch > known.get(b, NO_BROKER_EPOCH)}
    unclean = {
        b for b in bounced if not state_changes.has_intact_logs(context.brokers[b], known.get(b, NO_BROKER_EPOCH))
    }
    context.known_epochs = known | context.known_epochs
    await _record_takeover(term, sorted(bounced & known.keys()))
    await _enter_states(term, bounced)
    await _elect(term, bounced, unclean)
    batch = term.new_batch()
    async for partition in term.in_slices(context.not_deleting(context.leadership)):
        batch.lead_or_follow(partition, context.state_receivers(partition))
    batch.publish_all()
    await batch.send_in_slices(term.yield_to_reactor)
    await term.store_epochs()
    if notifications:
        await term.writes.remove(notifications)

    # Requests that are already pending are handled like new ones.
    await deletions_changed(term)
    await _resume(term)
    await preferred_election_requested(term)
    start_balancing(term)
    log.info(
        "controller: broker {broker} became the controller in epoch {epoch}: "
        "{brokers} brokers, {topics} topics, {partitions} partitions",
        broker=term.config.broker_id,
        epoch=context.controller_epoch,
        brokers=len(context.brokers),
        topics=len(context.topics),
        partitions=len(context.leadership),
    )


async def _record_takeover(term: ControllerTerm, bounced: Sequence[int]) -> None:
    """Record the election and the broker changes since the last term as audit events.

    :param bounced: brokers that have restarted since a controller last handled them.
    """
    context, history = term.context, term.history
    broker, live = term.config.broker_id, sorted(context.brokers)
    leaders_and_isr: set[int] = set()
    async for state in term.in_slices(list(context.leadership.values())):
        if state.leader != NO_LEADER:
            leaders_and_isr.update((state.leader, *state.isr))
    absent = sorted(leaders_and_isr - context.brokers.keys())
    text = f"broker {broker} became the controller in epoch {context.controller_epoch}"
    history.record("controller_elected", f"broker {broker}", text, live_brokers=live)
    texts = [text]
    for kind, brokers, action in (("broker_left", absent, "left"), ("broker_restarted", bounced, "restarted")):
        for each in brokers:
            texts.append(f"broker {each} {action} before that")
            history.record(kind, f"broker {each}", texts[-1])
    history.update_live_brokers(gone=absent, joined=live)
    history.set_cause("; ".join(texts))


async def _resume(term: ControllerTerm) -> None:
    """Resume the work that an earlier controller left unfinished."""
    batch = term.new_batch()
    for topic in sorted(term.context.topics):
        begin_deletion(term, term.context.removed_replicas_of_topic(topic), batch)
    batch.send()
    await reassignment.finish_ready_moves(term)
    await remove_deleted_replicas(term)
    await reassignments_requested(term)
    await partition_counts.resume(term)
    await execution.resume(term)


async def _enter_states(term: ControllerTerm, bounced: Collection[int]) -> None:
    """Set the initial states of partitions and replicas.

    :param bounced: brokers whose current process no controller has handled yet.
    """
    context = term.context
    alive = context.brokers.keys()
    without_state = (partition for partition in context.all_partitions() if partition not in context.leadership)
    # The keys of the leadership are used again, because equal new ones would take more memory.
    async for partition in term.in_slices(chain(context.leadership, without_state)):
        state = context.leadership.get(partition)
        initial_state = PartitionState.NEW
        if state is not None:
            has_live_leader = state.leader in alive and state.leader not in bounced
            initial_state = PartitionState.ONLINE if has_live_leader else PartitionState.OFFLINE
        replicas = context.replicas(partition)
        context.set_initial_states(
            partition, initial_state, {r: ReplicaState.ONLINE if r in alive else ReplicaState.OFFLINE for r in replicas}
        )


async def _known_epochs(term: ControllerTerm, last_write_zxids: Mapping[TopicPartition, int]) -> dict[int, int]:
    """Return, for each broker, the last epoch that a controller has handled.

    Controllers write these epochs to ZooKeeper.  If they are missing because a controller of another implementation was
    active, they are derived from the partition states: the oldest state that contains a broker was written after that
    broker registered.
    """
    try:
        data, _ = await term.client.get_data(znodes.BROKER_EPOCHS)
        term.stored_epochs = documents.decode_broker_epochs(data)
    except NoNode:
        pass
    except znodes.ZnodeError as error:
        log.error("controller: ignoring unreadable broker epochs: {error}", error=str(error))
    return await _epochs_from_states(term, last_write_zxids) | term.stored_epochs


async def _epochs_from_states(term: ControllerTerm, last_write_zxids: Mapping[TopicPartition, int]) -> dict[int, int]:
    """Return, for each broker in an ISR or ELR, the zxid before the oldest state that names it."""
    epochs: dict[int, int] = {}
    async for partition, zxid in term.in_slices(last_write_zxids.items()):
        state = term.context.leadership[partition]
        for broker in (*state.isr, *state.eligible_leader_replicas):
            epochs[broker] = min(epochs.get(broker, zxid - 1), zxid - 1)
    return epochs


async def _elect(term: ControllerTerm, bounced: Collection[int], unclean: Collection[int]) -> None:
    """Elect missing leaders, and remove dead or unclean replicas from ISRs."""
    context, rules = term.context, term.rules()

    def decide(partitions: Sequence[TopicPartition]) -> list[StateChange]:
        return state_changes.repairs(context, partitions, rules, bounced=bounced, unclean=unclean)

    partitions = context.not_deleting(context.leadership)
    if not bounced:  # a broker that has restarted gets the full state before other commands
        partitions = await elect_leaders_first(term, partitions, decide)
    # Commands of this batch are not sent, because the full state follows.
    await term.decide(partitions, decide, term.new_batch())
    new = await term.partitions_in(PartitionState.NEW)
    if initial_elections(context, new):
        await elect_new_partitions(term, new)
