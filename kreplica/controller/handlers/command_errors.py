"""What it means when a broker refuses a command."""

from __future__ import annotations

from collections.abc import Sequence

from twisted.logger import Logger

from kreplica.controller.event_types import BrokersChanged, CommandRefused, ControllerChanged
from kreplica.controller.handlers.failed_replicas import replicas_failed
from kreplica.controller.term import Office
from kreplica.errors import ErrorCode
from kreplica.model import TopicPartition

log = Logger()


async def command_refused(office: Office, event: CommandRefused) -> None:
    """Look who is the controller, look who lives, or take replicas for failed; whatever else it is stands in the log.

    * STALE_CONTROLLER_EPOCH: the broker has heard of a later controller
    * STALE_BROKER_EPOCH: it has registered anew since, and will be told everything when that has been seen
    * KAFKA_STORAGE_ERROR: the log directory of these replicas failed
    * INCONSISTENT_TOPIC_ID: it has files of another topic of the name
    """
    log.warn(
        "controller: broker {broker} refused {command} for {count} partitions: {errors}",
        broker=event.broker_id,
        command=event.command,
        count=len(event.errors),
        errors=", ".join(f"{partition}: {error.name}" for partition, error in event.errors[:5]),
    )
    errors = {error for _, error in event.errors}
    if ErrorCode.STALE_CONTROLLER_EPOCH in errors:
        office.put(ControllerChanged())
    if ErrorCode.STALE_BROKER_EPOCH in errors:
        office.put(BrokersChanged())
    known = office.context.brokers.get(event.broker_id)
    if known is not None and known.epoch == event.broker_epoch and event.command == "LeaderAndIsr":
        failed = [partition for partition, error in event.errors if error is ErrorCode.KAFKA_STORAGE_ERROR]
        await replicas_failed(office, event.broker_id, failed)
        occupied = [partition for partition, error in event.errors if error is ErrorCode.INCONSISTENT_TOPIC_ID]
        _make_room(office, event.broker_id, occupied)


def _make_room(office: Office, broker: int, partitions: Sequence[TopicPartition]) -> None:
    """Have a broker delete what it has of topics that were removed while no controller was in office, and begin anew.

    Only for partitions that have just begun, and once for each: they have nothing to lose.  Where a tool wrote another
    id over that of a topic which goes on, every replica refuses, and nothing of it may be deleted.
    """
    context = office.context
    begun = [partition for partition in partitions if broker in context.begun.get(partition, ())]
    if not begun:
        return
    log.warn(
        "controller: broker {broker} deletes what it has of {partitions}: other topics of these names were removed",
        broker=broker,
        partitions=", ".join(map(str, begun[:5])),
    )
    topics = {partition.topic for partition in begun}
    deletions, roles = office.requests(), office.requests()
    for partition in begun:
        context.begun[partition] -= {broker}
        deletions.stop(partition, broker, delete=True)
        roles.lead_or_follow(partition, [broker], is_new=True)
    context.deleting |= topics  # so that the old leader epochs, which may be higher, do not count
    deletions.send()
    context.deleting -= topics
    roles.send()
