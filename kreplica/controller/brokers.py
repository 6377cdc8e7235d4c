"""Brokers that join, bounce and die."""

from __future__ import annotations

from twisted.logger import Logger

from kreplica.cluster import znodes
from kreplica.controller.decisions import offline_elections, replica_removals
from kreplica.controller.events import BrokersChanged
from kreplica.controller.office import Office
from kreplica.controller.states import PartitionState, ReplicaState
from kreplica.controller.topics import elect_new_partitions, resume_deletions
from kreplica.model import BrokerRegistration
from kreplica.runtime.together import together
from kreplica.zookeeper import NoNode

log = Logger()


async def brokers_changed(office: Office) -> None:
    """The live brokers are others than before; one whose epoch changed has bounced: it went down and came up."""
    live = await read_brokers(office)
    known = office.context.brokers
    gone = {b for b, registration in known.items() if b not in live or live[b].epoch != registration.epoch}
    joined = {b for b, registration in live.items() if b not in known or known[b].epoch != registration.epoch}
    if gone:
        await _brokers_gone(office, gone)
    if joined:
        await _brokers_joined(office, {b: live[b] for b in joined})


async def read_brokers(office: Office) -> dict[int, BrokerRegistration]:
    """The registrations of all live brokers, with a watch on their list."""
    children = await office.client.get_children(znodes.BROKER_IDS, lambda _: office.put(BrokersChanged()))
    ids = sorted(int(child) for child in children if child.isdecimal())

    async def read(broker_id: int) -> BrokerRegistration | None:
        try:
            data, stat = await office.client.get_data(znodes.broker_path(broker_id))
            return znodes.decode_broker(broker_id, data, stat.czxid)
        except NoNode:
            return None
        except znodes.ZnodeError as error:
            log.error("controller: a broker whose registration cannot be read is left out: {error}", error=str(error))
            return None

    found = await together([read(broker_id) for broker_id in ids])
    return {registration.broker_id: registration for registration in found if registration is not None}


async def _brokers_gone(office: Office, gone: set[int]) -> None:
    log.info("controller: brokers {brokers} are gone", brokers=sorted(gone))
    context = office.context
    for broker in gone:
        context.brokers.pop(broker, None)
        await office.close_channel(broker)
    for partition, replica in context.replicas_on(gone):
        state = context.replica_state(partition, replica)
        if state in (ReplicaState.NEW, ReplicaState.ONLINE):
            context.move_replica(partition, replica, ReplicaState.OFFLINE)
        elif state is ReplicaState.DELETION_STARTED:
            context.move_replica(partition, replica, ReplicaState.DELETION_INELIGIBLE)
    leaderless = [
        partition
        for partition, state in context.leadership.items()
        if state.leader in gone and partition.topic not in context.deleting
    ]
    for partition in leaderless:
        context.move_partition(partition, PartitionState.OFFLINE)
    requests = office.requests()
    changes = offline_elections(context, leaderless, office.config.unclean_allowed)
    changes += [c for c in replica_removals(context, gone) if c.partition.topic not in context.deleting]
    await office.apply(changes, requests)
    requests.publish(())
    requests.send()


async def _brokers_joined(office: Office, joined: dict[int, BrokerRegistration]) -> None:
    log.info("controller: brokers {brokers} have joined", brokers=sorted(joined))
    context = office.context
    others = list(context.brokers)
    context.brokers.update(joined)
    for registration in joined.values():
        office.open_channel(registration)
    # Who lives, to those that were here; to the new ones first everything (brokers need the endpoints of the leaders).
    requests = office.requests()
    requests.publish((), others)
    requests.send()
    requests = office.requests()
    requests.publish(context.leadership, joined)
    for partition, replica in context.replicas_on(joined):
        if partition.topic in context.deleting or partition not in context.leadership:
            continue
        context.move_replica(partition, replica, ReplicaState.ONLINE)
        requests.lead_or_follow(partition, [replica])
    requests.send()
    await elect_offline_partitions(office)
    await resume_deletions(office, set(joined))


async def elect_offline_partitions(office: Office) -> None:
    """Try again for every partition that has no leader."""
    context = office.context
    new = [p for p in context.partitions_in(PartitionState.NEW) if p.topic not in context.deleting]
    if new:
        await elect_new_partitions(office, new)
    offline = [p for p in context.partitions_in(PartitionState.OFFLINE) if p.topic not in context.deleting]
    if offline:
        requests = office.requests()
        await office.apply(offline_elections(context, offline, office.config.unclean_allowed), requests)
        requests.send()
