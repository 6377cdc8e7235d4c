"""What leaders tell of the in-sync sets that they wrote: read, pass on to the brokers, forget."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from twisted.logger import Logger

from kreplica.cluster import documents, znodes
from kreplica.controller.decisions import decisions
from kreplica.controller.decisions.decisions import StateChange
from kreplica.controller.event_types import InSyncSetsChanged
from kreplica.controller.handlers import reassignment
from kreplica.controller.term import Office
from kreplica.model import TopicPartition
from kreplica.zookeeper import read_all

log = Logger()


async def notifications(office: Office) -> list[str]:
    """The paths of the notifications that are there, with a watch for more."""
    parent = znodes.ISR_CHANGE_NOTIFICATION
    names = await office.client.get_children(parent, office.watch(parent, InSyncSetsChanged()))
    return [f"{parent}/{name}" for name in sorted(names)]


async def in_sync_sets_changed(office: Office) -> list[TopicPartition]:
    """Read the states that leaders wrote, and tell all brokers their metadata.

    Brokers need no LeaderAndIsr: the leader knows, and followers do not ask for the in-sync set.  Where the leader
    took in somebody who has died or begun to stop since, the set is repaired at once.

    :return: the partitions whose states were read.
    """
    context = office.context
    paths = await notifications(office)
    told = await _partitions_in(office, paths)
    known = context.staying(partition for partition in told if partition in context.leadership)
    before = {partition: context.leadership[partition] for partition in known}
    await office.read_states(known)
    read = [partition for partition in known if partition in context.leadership]
    for partition in read:
        office.memory.learned(partition, before[partition], context.leadership[partition])
    if read:
        rules, requests = office.rules(), office.requests()
        requests.publish(read)

        def decide(some: Sequence[TopicPartition]) -> list[StateChange]:
            repaired = decisions.repairs(context, some, rules)
            touched = {change.partition for change in repaired}
            rest = [partition for partition in some if partition not in touched]
            return repaired + decisions.shutdowns(context, rest, rules)

        await office.decide(read, decide, requests)
        requests.send()
        await reassignment.proceed(office, read)
    if paths:
        await office.writes.remove(paths)
    return read


async def _partitions_in(office: Office, paths: Sequence[str]) -> Iterable[TopicPartition]:
    """The partitions that these notifications name, each once."""
    found: dict[TopicPartition, None] = {}
    for path, answer in zip(paths, await read_all(office.client, paths), strict=True):
        if isinstance(answer, tuple):
            try:
                found.update(dict.fromkeys(documents.decode_partitions(path, answer[0])))
            except znodes.ZnodeError as error:
                log.error("controller: a notification that cannot be read is removed: {error}", error=str(error))
    return found
