"""Handles notifications from leaders about changed ISRs: reads the states and publishes them to all brokers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from twisted.logger import Logger

from kreplica.cluster import documents, znodes
from kreplica.controller.decisions import state_changes
from kreplica.controller.decisions.state_changes import StateChange
from kreplica.controller.event_types import IsrChanged
from kreplica.controller.handlers import reassignment
from kreplica.controller.term import ControllerTerm
from kreplica.model import TopicPartition
from kreplica.zookeeper import read_all

log = Logger()


async def notifications(term: ControllerTerm) -> list[str]:
    """Return the paths of the pending notifications, and watch for more."""
    parent = znodes.ISR_CHANGE_NOTIFICATION
    names = await term.client.get_children(parent, term.watch(parent, IsrChanged()))
    return [f"{parent}/{name}" for name in sorted(names)]


async def isr_changed(term: ControllerTerm) -> list[TopicPartition]:
    """Read the states that leaders wrote, and send their metadata to all brokers.

    LeaderAndIsr is not needed: the leader has the state already, and followers do not use the ISR.  If a leader added
    a replica whose broker has since failed or begun to stop, the ISR is repaired immediately.

    :return: the partitions whose states were read.
    """
    context = term.context
    paths = await notifications(term)
    reported = await _partitions_in(term, paths)
    known = context.not_deleting(partition for partition in reported if partition in context.leadership)
    before = {partition: context.leadership[partition] for partition in known}
    await term.read_states(known)
    read = [partition for partition in known if partition in context.leadership]
    for partition in read:
        term.history.record_leader_write(partition, before[partition], context.leadership[partition])
    if read:
        rules, batch = term.rules(), term.new_batch()
        batch.publish(read)

        def decide(part: Sequence[TopicPartition]) -> list[StateChange]:
            repaired = state_changes.repairs(context, part, rules)
            repaired_partitions = {change.partition for change in repaired}
            remaining = [partition for partition in part if partition not in repaired_partitions]
            return repaired + state_changes.controlled_shutdown_changes(context, remaining, rules)

        await term.decide(read, decide, batch)
        batch.send()
        await reassignment.finish_ready_moves(term, read)
    if paths:
        await term.writes.remove(paths)
    return read


async def _partitions_in(term: ControllerTerm, paths: Sequence[str]) -> Iterable[TopicPartition]:
    """Return the partitions in these notifications, without duplicates."""
    found: dict[TopicPartition, None] = {}
    for path, result in zip(paths, await read_all(term.client, paths), strict=True):
        if isinstance(result, tuple):
            try:
                found.update(dict.fromkeys(documents.decode_partitions(path, result[0])))
            except znodes.ZnodeError as error:
                log.error("controller: removing an unreadable notification: {error}", error=str(error))
    return found
