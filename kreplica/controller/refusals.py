"""What it means when a broker refuses a command."""

from __future__ import annotations

from twisted.logger import Logger

from kreplica.controller.events import BrokersChanged, CommandRefused, ControllerChanged
from kreplica.controller.failed_replicas import replicas_failed
from kreplica.controller.office import Office
from kreplica.errors import ErrorCode

log = Logger()


async def command_refused(office: Office, event: CommandRefused) -> None:
    """Look who is the controller, look who lives, or take replicas for failed; whatever else it is stands in the log.

    * STALE_CONTROLLER_EPOCH: the broker has heard of a later controller
    * STALE_BROKER_EPOCH: it has registered anew since, and will be told everything when that has been seen
    * KAFKA_STORAGE_ERROR: the log directory of these replicas failed
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
