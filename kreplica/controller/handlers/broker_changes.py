"""Brokers that join, bounce, change and die: whatever happened to how many of them at once, one step follows.

The order of a step: decide about every partition that has a replica on one of them, write the states, and only then
tell brokers; so a broker that came back unclean has left the in-sync sets before its new process hears of any
partition (KIP-380, KIP-966).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from twisted.logger import Logger

from kreplica.cluster import documents, znodes
from kreplica.controller.decisions import decisions
from kreplica.controller.decisions.decisions import StateChange
from kreplica.controller.effects.command_batch import BrokerRequests
from kreplica.controller.event_types import BrokersChanged
from kreplica.controller.handlers import reassignment, replica_deletion
from kreplica.controller.handlers.topic_creation import elect_new_partitions
from kreplica.controller.handlers.topic_deletion import finish_deletions
from kreplica.controller.state.states import PartitionState, ReplicaState
from kreplica.controller.term import Office
from kreplica.model import BrokerRegistration, TopicPartition
from kreplica.runtime.together import together
from kreplica.zookeeper import EventType, NoNode

log = Logger()


@dataclass(frozen=True, slots=True)
class News:
    """What is different about the live brokers.

    :param gone: processes that ended.
    :param joined: processes that began; a broker that is in both has bounced.
    :param changed: the same processes, with other data (their endpoints may have changed).
    """

    gone: Sequence[int] = ()
    joined: Sequence[int] = ()
    changed: Sequence[int] = ()

    @property
    def bounced(self) -> list[int]:
        return [broker for broker in self.joined if broker in self.gone]

    @classmethod
    def between(cls, known: Mapping[int, BrokerRegistration], live: Mapping[int, BrokerRegistration]) -> News:
        """By broker epoch: a process has one, and no other process ever has it (KIP-380)."""

        def is_same(broker: int) -> bool:
            return broker in known and broker in live and known[broker].epoch == live[broker].epoch

        return cls(
            gone=sorted(broker for broker in known if not is_same(broker)),
            joined=sorted(broker for broker in live if not is_same(broker)),
            changed=sorted(broker for broker in live if is_same(broker) and known[broker] != live[broker]),
        )


async def brokers_changed(office: Office) -> None:
    """The live brokers are others than before, or one of them has to be told everything again."""
    live = await read_brokers(office)
    context = office.context
    news = News.between(context.brokers, live)
    untold = _untold(office, news, live)
    if not (news.gone or news.joined or news.changed or untold):
        return
    log.info(
        "controller: brokers gone {gone}, joined {joined}, changed {changed}, to be told anew {untold}",
        gone=list(news.gone),
        joined=list(news.joined),
        changed=list(news.changed),
        untold=untold,
    )
    _tell(office, news, live)
    unclean = {b for b in news.joined if not decisions.has_lost_nothing(live[b], context.known_epoch(b))}
    _reconnect(office, news, live, untold)
    await _enter_states(office, news)
    replica_deletion.brokers_gone(office, {*news.gone, *untold})
    told = [*news.joined, *untold]
    requests = office.requests()
    requests.introduce(told)
    await _repair(office, news, unclean, requests)
    await _tell_replicas(office, told, requests)
    requests.publish(())
    requests.send()
    await office.note_epochs()
    if news.joined:
        new = context.staying(context.partitions_in(PartitionState.NEW))
        if new:
            await elect_new_partitions(office, new)
    if told:
        replica_deletion.resume_deletions(office, told)
    await reassignment.proceed(office)
    if news.gone:
        await finish_deletions(office, sorted(context.deleting))


def _tell(office: Office, news: News, live: Mapping[int, BrokerRegistration]) -> None:
    """Say what is different, to people."""
    memory, bounced = office.memory, news.bounced
    said = []
    for kind, brokers, what in (
        ("broker_restarted", bounced, "has registered anew"),
        ("broker_left", [broker for broker in news.gone if broker not in bounced], "left"),
        ("broker_joined", [broker for broker in news.joined if broker not in bounced], "joined"),
        ("broker_changed", news.changed, "registered something else"),
    ):
        for broker in brokers:
            stopped = kind == "broker_left" and broker in office.context.shutting_down
            text = f"broker {broker} {what}{', in order' if stopped else ''}"
            epoch = live[broker].epoch if broker in live else office.context.known_epoch(broker)
            memory.tell(kind, f"broker {broker}", text, broker_epoch=epoch)
            said.append(text)
    memory.live_brokers(gone=news.gone, joined=news.joined)
    if said:
        memory.because("; ".join(said))


def _untold(office: Office, news: News, live: Mapping[int, BrokerRegistration]) -> list[int]:
    """Processes as before, but what waited for them is forgotten: too much did, or they are to be reached elsewhere."""
    untold = {*office.untold, *news.changed}
    office.untold.clear()
    return sorted(broker for broker in untold if broker in live and broker not in news.joined)


async def read_brokers(office: Office) -> dict[int, BrokerRegistration]:
    """The registrations of all live brokers, with watches on their list and on each of them."""
    watch = office.watch(znodes.BROKER_IDS, BrokersChanged())
    children = await office.client.get_children(znodes.BROKER_IDS, watch)
    ids = sorted(int(child) for child in children if child.isdecimal())
    found = await together([_read_broker(office, broker_id) for broker_id in ids])
    return {registration.broker_id: registration for registration in found if registration is not None}


async def _read_broker(office: Office, broker_id: int) -> BrokerRegistration | None:
    path = znodes.broker_path(broker_id)
    # Who is gone stands in the list no more, so that one is told of already.
    watch = office.watch(path, BrokersChanged(), ignored=EventType.NODE_DELETED)
    try:
        data, stat = await office.client.get_data(path, watch)
        return documents.decode_broker(broker_id, data, stat.czxid)
    except NoNode:
        if watch is not None:
            office.unwatched(path)
    except znodes.ZnodeError as error:
        log.error("controller: a broker whose registration cannot be read is left out: {error}", error=str(error))
    return None


def _reconnect(office: Office, news: News, live: Mapping[int, BrokerRegistration], untold: Sequence[int]) -> None:
    """Channels to the processes that live now, and no other."""
    context = office.context
    for broker in dict.fromkeys([*news.gone, *untold]):
        office.close_channel(broker)
    for broker in news.gone:
        context.remove_broker(broker)
    for broker in news.joined:
        context.add_broker(live[broker])
    for broker in news.changed:
        context.brokers[broker] = live[broker]
    for broker in sorted({*news.joined, *untold}):
        office.open_channel(live[broker])


async def _enter_states(office: Office, news: News) -> None:
    """Replicas and leaders of processes that ended are offline."""
    context = office.context
    gone = set(news.gone)
    async for partition, replica in office.in_turns(context.replicas_on(gone)):
        state = context.replica_state(partition, replica)
        if state in (ReplicaState.NEW, ReplicaState.ONLINE):
            context.move_replica(partition, replica, ReplicaState.OFFLINE)
    async for partition, leadership in office.in_turns(context.leadership.items()):
        if leadership.leader in gone and partition.topic not in context.deleting:
            context.move_partition(partition, PartitionState.OFFLINE)


async def _repair(office: Office, news: News, unclean: Collection[int], requests: BrokerRequests) -> None:
    context, rules, bounced = office.context, office.rules(), news.bounced

    def decide(partitions: Sequence[TopicPartition]) -> list[StateChange]:
        return decisions.repairs(context, partitions, rules, bounced=bounced, unclean=unclean)

    replicas = office.in_turns(context.replicas_on([*news.gone, *news.joined]))
    touched = {partition: None async for partition, _ in replicas}
    await office.decide(context.staying(touched), decide, requests)


async def _tell_replicas(office: Office, brokers: Sequence[int], requests: BrokerRequests) -> None:
    """All that these brokers lead and follow."""
    context = office.context
    async for partition, replica in office.in_turns(context.replicas_on(brokers)):
        told = partition.topic not in context.deleting and partition in context.leadership
        if told and context.is_online(partition, replica):
            context.move_replica(partition, replica, ReplicaState.ONLINE)
            requests.lead_or_follow(partition, [replica])


async def elect_offline_partitions(office: Office) -> None:
    """Try again for every partition that has no leader: somebody may be allowed to lead now."""
    offline = office.context.staying(office.context.partitions_in(PartitionState.OFFLINE))
    if offline:
        rules, requests = office.rules(), office.requests()
        await office.decide(offline, lambda some: decisions.repairs(office.context, some, rules), requests)
        requests.send()
