"""Handles brokers that join, restart, change or fail; all changes found at one time are handled in one step.

The step first decides on every partition with a replica on these brokers and writes the states, and only then sends
commands.  A broker that restarted uncleanly has thus left the ISRs before its new process learns of any partition
(KIP-380, KIP-966).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from twisted.logger import Logger

from kreplica.cluster import documents, znodes
from kreplica.controller.decisions import state_changes
from kreplica.controller.decisions.state_changes import StateChange
from kreplica.controller.effects.command_batch import CommandBatch
from kreplica.controller.event_types import BrokersChanged
from kreplica.controller.handlers import reassignment, replica_deletion
from kreplica.controller.handlers.leaders_first import elect_leaders_first
from kreplica.controller.handlers.topic_creation import elect_new_partitions
from kreplica.controller.handlers.topic_deletion import finish_deletions
from kreplica.controller.state.states import PartitionState, ReplicaState
from kreplica.controller.term import ControllerTerm
from kreplica.model import BrokerRegistration, TopicPartition
from kreplica.runtime.gather import gather
from kreplica.zookeeper import EventType, NoNode

log = Logger()


@dataclass(frozen=True, slots=True)
class BrokerChanges:
    """Differences between the known and the current live brokers.

    :param gone: brokers whose registration was removed or replaced.
    :param joined: brokers with a new registration; a broker in both lists has restarted.
    :param changed: brokers that updated their registration (for example the endpoints) without a restart.
    """

    gone: Sequence[int] = ()
    joined: Sequence[int] = ()
    changed: Sequence[int] = ()

    @property
    def bounced(self) -> list[int]:
        return [broker for broker in self.joined if broker in self.gone]

    @classmethod
    def between(cls, known: Mapping[int, BrokerRegistration], live: Mapping[int, BrokerRegistration]) -> BrokerChanges:
        """Compare by broker epoch, which is unique to each process (KIP-380)."""

        def is_same(broker: int) -> bool:
            return broker in known and broker in live and known[broker].epoch == live[broker].epoch

        return cls(
            gone=sorted(broker for broker in known if not is_same(broker)),
            joined=sorted(broker for broker in live if not is_same(broker)),
            changed=sorted(broker for broker in live if is_same(broker) and known[broker] != live[broker]),
        )


async def brokers_changed(term: ControllerTerm) -> None:
    """Handle a change in the live brokers, or brokers to which the full state must be sent again."""
    live = await read_brokers(term)
    context = term.context
    changes = BrokerChanges.between(context.brokers, live)
    outdated = _outdated_brokers(term, changes, live)
    if not (changes.gone or changes.joined or changes.changed or outdated):
        return
    log.info(
        "controller: brokers gone {gone}, joined {joined}, changed {changed}, full state resent {outdated}",
        gone=list(changes.gone),
        joined=list(changes.joined),
        changed=list(changes.changed),
        outdated=outdated,
    )
    _record_broker_events(term, changes, live)
    unclean = {b for b in changes.joined if not state_changes.has_intact_logs(live[b], context.known_epoch(b))}
    _reconnect(term, changes, live, outdated)
    await _enter_states(term, changes)
    await replica_deletion.brokers_gone(term, {*changes.gone, *outdated})
    full_state = [*changes.joined, *outdated]
    batch = term.new_batch()
    batch.introduce(full_state)
    # A broker that needs the full state gets it before other commands.
    await _repair(term, changes, unclean, batch, leaders_first=not full_state)
    await _send_roles(term, full_state, batch)
    batch.publish(())
    await batch.send_in_slices(term.yield_to_reactor)
    await term.store_epochs()
    if changes.joined:
        new = await term.partitions_in(PartitionState.NEW)
        if new:
            await elect_new_partitions(term, new)
    if full_state:
        await replica_deletion.resume_deletions(term, full_state)
    await reassignment.finish_ready_moves(term)
    if changes.gone:
        await finish_deletions(term, sorted(context.deleting))


def _record_broker_events(term: ControllerTerm, changes: BrokerChanges, live: Mapping[int, BrokerRegistration]) -> None:
    history, bounced = term.history, changes.bounced
    texts = []
    for kind, brokers, action in (
        ("broker_restarted", bounced, "registered again"),
        ("broker_left", [broker for broker in changes.gone if broker not in bounced], "left"),
        ("broker_joined", [broker for broker in changes.joined if broker not in bounced], "joined"),
        ("broker_changed", changes.changed, "changed its registration"),
    ):
        for broker in brokers:
            stopped = kind == "broker_left" and broker in term.context.shutting_down
            text = f"broker {broker} {action}{' after a controlled shutdown' if stopped else ''}"
            epoch = live[broker].epoch if broker in live else term.context.known_epoch(broker)
            history.record(kind, f"broker {broker}", text, broker_epoch=epoch)
            texts.append(text)
    history.update_live_brokers(gone=changes.gone, joined=changes.joined)
    if texts:
        history.set_cause("; ".join(texts))


def _outdated_brokers(
    term: ControllerTerm, changes: BrokerChanges, live: Mapping[int, BrokerRegistration]
) -> list[int]:
    """Return the brokers that did not restart, but whose channel dropped commands or connects to an old endpoint."""
    outdated = {*term.outdated_brokers, *changes.changed}
    term.outdated_brokers.clear()
    return sorted(broker for broker in outdated if broker in live and broker not in changes.joined)


async def read_brokers(term: ControllerTerm) -> dict[int, BrokerRegistration]:
    """Read the registrations of all live brokers; watch the list of brokers and each registration."""
    watch = term.watch(znodes.BROKER_IDS, BrokersChanged())
    children = await term.client.get_children(znodes.BROKER_IDS, watch)
    ids = sorted(int(child) for child in children if child.isdecimal())
    found = await gather([_read_broker(term, broker_id) for broker_id in ids])
    return {registration.broker_id: registration for registration in found if registration is not None}


async def _read_broker(term: ControllerTerm, broker_id: int) -> BrokerRegistration | None:
    path = znodes.broker_path(broker_id)
    # The watch on the list already reports deleted brokers.
    watch = term.watch(path, BrokersChanged(), ignored=EventType.NODE_DELETED)
    try:
        data, stat = await term.client.get_data(path, watch)
        return documents.decode_broker(broker_id, data, stat.czxid)
    except NoNode:
        if watch is not None:
            term.forget_watch(path)
    except znodes.ZnodeError as error:
        log.error("controller: ignoring a broker with an unreadable registration: {error}", error=str(error))
    return None


def _reconnect(
    term: ControllerTerm, changes: BrokerChanges, live: Mapping[int, BrokerRegistration], outdated: Sequence[int]
) -> None:
    """Update the live brokers in the context, and open and close the channels to them."""
    context = term.context
    for broker in dict.fromkeys([*changes.gone, *outdated]):
        term.close_channel(broker)
    for broker in changes.gone:
        context.remove_broker(broker)
    for broker in changes.joined:
        context.add_broker(live[broker])
    for broker in changes.changed:
        context.brokers[broker] = live[broker]
    for broker in sorted({*changes.joined, *outdated}):
        term.open_channel(live[broker])


async def _enter_states(term: ControllerTerm, changes: BrokerChanges) -> None:
    """Set the state of replicas on departed brokers, and of partitions that these brokers lead, to OFFLINE."""
    context = term.context
    gone = set(changes.gone)
    async for partition, replica in term.in_slices(context.replicas_on(gone)):
        state = context.replica_state(partition, replica)
        if state in (ReplicaState.NEW, ReplicaState.ONLINE):
            context.set_replica_state(partition, replica, ReplicaState.OFFLINE)
    async for partition, leadership in term.in_slices(context.leadership.items()):
        if leadership.leader in gone and partition.topic not in context.deleting:
            context.set_partition_state(partition, PartitionState.OFFLINE)


async def _repair(
    term: ControllerTerm,
    changes: BrokerChanges,
    unclean: Collection[int],
    batch: CommandBatch,
    *,
    leaders_first: bool,
) -> None:
    context, rules, bounced = term.context, term.rules(), changes.bounced

    def decide(partitions: Sequence[TopicPartition]) -> list[StateChange]:
        return state_changes.repairs(context, partitions, rules, bounced=bounced, unclean=unclean)

    replicas = term.in_slices(context.replicas_on([*changes.gone, *changes.joined]))
    touched = {partition: None async for partition, _ in replicas}
    partitions = context.not_deleting(touched)
    if leaders_first:
        partitions = await elect_leaders_first(term, partitions, decide)
    await term.decide(partitions, decide, batch)


async def _send_roles(term: ControllerTerm, brokers: Sequence[int], batch: CommandBatch) -> None:
    """Mark the live replicas on these brokers as online, and add their roles to the batch."""
    context = term.context
    async for partition, replica in term.in_slices(context.replicas_on(brokers)):
        has_role = partition.topic not in context.deleting and partition in context.leadership
        if has_role and context.is_online(partition, replica):
            context.set_replica_state(partition, replica, ReplicaState.ONLINE)
            batch.lead_or_follow(partition, [replica])


async def elect_offline_partitions(term: ControllerTerm) -> None:
    """Retry the election for every partition without a leader."""
    offline = await term.partitions_in(PartitionState.OFFLINE)
    if offline:
        rules, batch = term.rules(), term.new_batch()
        await term.decide(offline, lambda part: state_changes.repairs(term.context, part, rules), batch)
        batch.send()
