"""Handles commands that a broker rejected."""

from __future__ import annotations

from collections.abc import Sequence

from twisted.logger import Logger

from kreplica.controller.event_types import BrokersChanged, CommandRefused, ControllerChanged
from kreplica.controller.handlers.failed_replicas import replicas_failed
from kreplica.controller.term import ControllerTerm
from kreplica.errors import ErrorCode
from kreplica.model import TopicPartition

log = Logger()


async def command_refused(term: ControllerTerm, event: CommandRefused) -> None:
    """Log the errors, and handle those that reveal a change.

    * STALE_CONTROLLER_EPOCH: the broker has seen a later controller; check ``/controller``.
    * STALE_BROKER_EPOCH: the broker has registered again; read the brokers.
    * KAFKA_STORAGE_ERROR: the log directory of these replicas failed.
    * INCONSISTENT_TOPIC_ID: the broker has files of another topic with this name.
    """
    log.warn(
        "controller: broker {broker} rejected {command} for {count} partitions: {errors}",
        broker=event.broker_id,
        command=event.command,
        count=len(event.errors),
        errors=", ".join(f"{partition}: {error.name}" for partition, error in event.errors[:5]),
    )
    errors = {error for _, error in event.errors}
    if ErrorCode.STALE_CONTROLLER_EPOCH in errors:
        term.put(ControllerChanged())
    if ErrorCode.STALE_BROKER_EPOCH in errors:
        term.put(BrokersChanged())
    known = term.context.brokers.get(event.broker_id)
    if known is not None and known.epoch == event.broker_epoch and event.command == "LeaderAndIsr":
        failed = [partition for partition, error in event.errors if error is ErrorCode.KAFKA_STORAGE_ERROR]
        await replicas_failed(term, event.broker_id, failed)
        mismatched = [partition for partition, error in event.errors if error is ErrorCode.INCONSISTENT_TOPIC_ID]
        _delete_old_files(term, event.broker_id, mismatched)


def _delete_old_files(term: ControllerTerm, broker: int, partitions: Sequence[TopicPartition]) -> None:
    """Make a broker delete the files of deleted topics and then create the replicas again.

    Such topics were removed while there was no controller.  Done once for each replica, and only for partitions that
    were created in this term and thus contain no data: if a tool overwrote the ID of an existing topic, every replica
    returns this error, and nothing must be deleted.
    """
    context = term.context
    affected = [partition for partition in partitions if broker in context.initial_replicas.get(partition, ())]
    if not affected:
        return
    log.warn(
        "controller: broker {broker} deletes old files of {partitions}, left by deleted topics with the same names",
        broker=broker,
        partitions=", ".join(map(str, affected[:5])),
    )
    topics = {partition.topic for partition in affected}
    deletions, roles = term.new_batch(), term.new_batch()
    for partition in affected:
        context.initial_replicas[partition] -= {broker}
        deletions.stop(partition, broker, delete=True)
        roles.lead_or_follow(partition, [broker], is_new=True)
    context.deleting |= topics  # so that StopReplica ignores the old leader epochs, which may be higher
    deletions.send()
    context.deleting -= topics
    roles.send()
