"""Deletes replicas: each is stopped first, then its files are deleted; failed deletions are retried.

Used for deleted topics, removed partitions and reassigned replicas; ``replica_removal`` updates the znodes after the
deletion.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from twisted.logger import Logger

from kreplica.controller.effects.command_batch import CommandBatch
from kreplica.controller.event_types import ReplicasStopped, RetryDeletions
from kreplica.controller.state.context import ControllerContext, Replica
from kreplica.controller.state.states import ReplicaState
from kreplica.controller.term import ControllerTerm
from kreplica.errors import ErrorCode
from kreplica.model import TopicPartition

log = Logger()

DELETION_RETRY_SECONDS = 10.0

NO_FILES_LEFT = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
"""StopReplica results for a broker that has no files of the replica."""


def begin_deletion(term: ControllerTerm, replicas: Iterable[Replica], batch: CommandBatch) -> None:
    """Stop the replicas (phase one); those on dead brokers wait until the broker returns."""
    context = term.context
    for partition, broker in replicas:
        state = context.replica_state(partition, broker)
        if state in (ReplicaState.DELETION_STARTED, ReplicaState.DELETION_SUCCESSFUL):
            continue  # its deletion has already started
        if state is ReplicaState.NON_EXISTENT:
            context.set_replica_state(partition, broker, ReplicaState.NEW)
        context.set_replica_state(partition, broker, ReplicaState.OFFLINE)
        batch.stop(partition, broker, delete=False)


async def replicas_to_delete(term: ControllerTerm) -> list[Replica]:
    """Return every replica that must be deleted."""
    context = term.context
    replicas: list[Replica] = []
    async for topic in term.in_slices(sorted(context.topics)):
        deleting = topic in context.deleting
        replicas += context.replicas_of_topic(topic) if deleting else context.removed_replicas_of_topic(topic)
    return replicas


async def replicas_stopped(term: ControllerTerm, event: ReplicasStopped) -> None:
    """Handle a StopReplica response: delete the files of stopped replicas, and mark deleted replicas as gone.

    Responses from a broker's earlier process are ignored; its next process receives the commands when it joins.
    """
    context, batch = term.context, term.new_batch()
    known = context.brokers.get(event.broker_id)
    if known is None or known.epoch != event.broker_epoch:
        return
    async for partition, error in term.in_slices(event.results):
        if not context.will_be_deleted(partition, event.broker_id):
            continue
        state = context.replica_state(partition, event.broker_id)
        failed = error not in NO_FILES_LEFT
        if failed:
            _log_failure(term, partition, event.broker_id, error)
        if not event.delete and state is ReplicaState.OFFLINE and not failed:
            context.set_replica_state(partition, event.broker_id, ReplicaState.DELETION_STARTED)
            batch.stop(partition, event.broker_id, delete=True)
        elif event.delete and state is ReplicaState.DELETION_STARTED:
            new_state = ReplicaState.DELETION_INELIGIBLE if failed else ReplicaState.DELETION_SUCCESSFUL
            context.set_replica_state(partition, event.broker_id, new_state)
    batch.send()


def _log_failure(term: ControllerTerm, partition: TopicPartition, broker: int, error: ErrorCode) -> None:
    log.warn(
        "controller: broker {broker} could not stop or delete {partition}: {error}",
        broker=broker,
        partition=str(partition),
        error=error.name,
    )
    term.put_later(RetryDeletions(), DELETION_RETRY_SECONDS)


async def brokers_gone(term: ControllerTerm, brokers: Collection[int]) -> None:
    """Mark unconfirmed deletions on these brokers as ineligible; they are retried when the brokers return."""
    async for partition, broker in term.in_slices(await replicas_to_delete(term)):
        started = term.context.replica_state(partition, broker) is ReplicaState.DELETION_STARTED
        if broker in brokers and started:
            term.context.set_replica_state(partition, broker, ReplicaState.DELETION_INELIGIBLE)


async def resume_deletions(term: ControllerTerm, brokers: Collection[int]) -> None:
    """Restart the waiting deletions of these brokers, from phase one."""
    context, batch = term.context, term.new_batch()
    async for partition, broker in term.in_slices(await replicas_to_delete(term)):
        if broker not in brokers:
            continue
        if context.replica_state(partition, broker) is ReplicaState.DELETION_INELIGIBLE:
            context.set_replica_state(partition, broker, ReplicaState.OFFLINE)
        if context.replica_state(partition, broker) is ReplicaState.OFFLINE:
            batch.stop(partition, broker, delete=False)
    batch.send()


def is_deleted(context: ControllerContext, partition: TopicPartition, broker: int) -> bool:
    """Return True if the broker has confirmed that it has no files of the partition."""
    return context.replica_state(partition, broker) is ReplicaState.DELETION_SUCCESSFUL
