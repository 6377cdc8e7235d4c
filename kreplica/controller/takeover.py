"""Taking office: what a broker does between winning the election and handling the first event."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from twisted.logger import Logger

from kreplica.cluster import documents, znodes
from kreplica.controller.decisions import decisions
from kreplica.controller.decisions.decisions import StateChange, initial_elections
from kreplica.controller.handlers import isr_changes, log_dir_events, partition_counts, reassignment
from kreplica.controller.handlers.broker_changes import read_brokers
from kreplica.controller.handlers.leader_balance import preferred_election_asked, start_balancing
from kreplica.controller.handlers.reassignment_requests import reassignments_requested
from kreplica.controller.handlers.replica_deletion import begin_deletion
from kreplica.controller.handlers.replica_removal import cross_out
from kreplica.controller.handlers.topic_creation import elect_new_partitions, list_topics, read_assignments
from kreplica.controller.handlers.topic_deletion import deletions_changed
from kreplica.controller.plans import execution
from kreplica.controller.state.context import ControllerContext
from kreplica.controller.state.states import PartitionState, ReplicaState
from kreplica.controller.term import Office
from kreplica.model import NO_BROKER_EPOCH, NO_LEADER, TopicPartition
from kreplica.zookeeper import NoNode

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
    await read_assignments(office, await list_topics(office))
    written = await office.read_states(context.all_partitions())
    deleting = await office.client.get_children(znodes.DELETE_TOPICS)
    context.deleting.update(topic for topic in deleting if topic in context.topics)
    known = await _known_epochs(office, written)
    bounced = {b for b, registration in context.brokers.items() if registration.epoch > known.get(b, NO_BROKER_EPOCH)}
    unclean = {b for b in bounced if not decisions.has_lost_nothing(context.brokers[b], known.get(b, NO_BROKER_EPOCH))}
    context.known_epochs = known | context.known_epochs
    _tell(office, sorted(bounced & known.keys()))
    await _enter_states(office, bounced)
    await _elect(office, bounced, unclean)
    requests = office.requests()
    async for partition in office.in_turns(context.staying(context.leadership)):
        requests.lead_or_follow(partition, context.listeners(partition))
    requests.publish_all()
    requests.send()
    await office.note_epochs()
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


def _tell(office: Office, bounced: Sequence[int]) -> None:
    """Say who takes office and what became of the brokers, to people.

    :param bounced: brokers that are another process than the one that a controller dealt with last.
    """
    context, memory = office.context, office.memory
    broker, live = office.config.broker_id, sorted(context.brokers)
    led = [state for state in context.leadership.values() if state.leader != NO_LEADER]
    gone = sorted({broker for state in led for broker in (state.leader, *state.isr)} - context.brokers.keys())
    text = f"broker {broker} took the controller's office in epoch {context.controller_epoch}"
    memory.tell("controller_elected", f"broker {broker}", text, live_brokers=live)
    said = [text]
    for kind, brokers, what in (("broker_left", gone, "left"), ("broker_restarted", bounced, "started anew")):
        for each in brokers:
            said.append(f"broker {each} {what} before that")
            memory.tell(kind, f"broker {each}", said[-1])
    memory.live_brokers(gone=gone, joined=live)
    memory.because("; ".join(said))


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
    await execution.carry_on(office)


async def _enter_states(office: Office, bounced: Collection[int]) -> None:
    """:param bounced: brokers of which no controller has dealt with the process that lives now."""
    context = office.context
    alive = context.brokers.keys()
    async for partition in office.in_turns(context.all_partitions()):
        state = context.leadership.get(partition)
        entered = PartitionState.NEW
        if state is not None:
            led = state.leader in alive and state.leader not in bounced
            entered = PartitionState.ONLINE if led else PartitionState.OFFLINE
        replicas = context.replicas(partition)
        context.begin(
            partition, entered, {r: ReplicaState.ONLINE if r in alive else ReplicaState.OFFLINE for r in replicas}
        )


async def _known_epochs(office: Office, written: Mapping[TopicPartition, int]) -> dict[int, int]:
    """By broker, the last epoch that a controller has dealt with.

    Controllers note it.  Where it is not noted (a controller of another make was in office), the states that name a
    broker tell: it had registered before the oldest of them was written.
    """
    try:
        data, _ = await office.client.get_data(znodes.BROKER_EPOCHS)
        office.noted_epochs = documents.decode_broker_epochs(data)
    except NoNode:
        pass
    except znodes.ZnodeError as error:
        log.error("controller: broker epochs that cannot be read are done without: {error}", error=str(error))
    return epochs_by_states(office.context, written) | office.noted_epochs


def epochs_by_states(context: ControllerContext, written: Mapping[TopicPartition, int]) -> dict[int, int]:
    """By broker that has a place in an in-sync or eligible set: the zxid before the oldest of those states."""
    epochs: dict[int, int] = {}
    for partition, zxid in written.items():
        state = context.leadership[partition]
        for broker in (*state.isr, *state.eligible_leader_replicas):
            epochs[broker] = min(epochs.get(broker, zxid - 1), zxid - 1)
    return epochs


async def _elect(office: Office, bounced: Collection[int], unclean: Collection[int]) -> None:
    """Leaders for all that lack one, and no dead or unclean replica in any in-sync set, in one sequence of writes."""
    context, rules = office.context, office.rules()

    def decide(partitions: Sequence[TopicPartition]) -> list[StateChange]:
        return decisions.repairs(context, partitions, rules, bounced=bounced, unclean=unclean)

    # The requests that these form are left out: the whole state is sent right after.
    await office.decide(context.staying(context.leadership), decide, office.requests())
    new = context.staying(context.partitions_in(PartitionState.NEW))
    if initial_elections(context, new):
        await elect_new_partitions(office, new)
