"""Replicas that are to go: each is stopped first, then its files are deleted; what fails or is down is tried again.

Of topics that are deleted, of partitions that were removed, and of partitions that moved elsewhere: who began it is
told when a replica is gone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from twisted.logger import Logger

from kreplica.controller.effects.command_batch import BrokerRequests
from kreplica.controller.event_types import ReplicasStopped, RetryDeletions
from kreplica.controller.state.context import ControllerContext, Replica
from kreplica.controller.state.states import ReplicaState
from kreplica.controller.term import Office
from kreplica.errors import ErrorCode
from kreplica.model import TopicPartition

log = Logger()

DELETION_RETRY_SECONDS = 10.0

GONE_ALREADY = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
"""Answers to StopReplica that mean that nothing is there any more."""


def begin_deletion(office: Office, replicas: Iterable[Replica], requests: BrokerRequests) -> None:
    """Phase one: the replicas stop.  Those on brokers that are down wait until these are back."""
    context = office.context
    for partition, broker in replicas:
        state = context.replica_state(partition, broker)
        if state in (ReplicaState.DELETION_STARTED, ReplicaState.DELETION_SUCCESSFUL):
            continue  # it was leaving already
        if state is ReplicaState.NON_EXISTENT:
            context.move_replica(partition, broker, ReplicaState.NEW)
        context.move_replica(partition, broker, ReplicaState.OFFLINE)
        requests.stop(partition, broker, delete=False)


def all_leaving(context: ControllerContext) -> list[Replica]:
    """Every replica that is to be deleted."""
    replicas: list[Replica] = []
    for topic in sorted(context.topics):
        deleting = topic in context.deleting
        replicas += context.replicas_of_topic(topic) if deleting else context.leaving_of(topic)
    return replicas


def replicas_stopped(office: Office, event: ReplicasStopped) -> None:
    """A broker answered StopReplica: what has stopped is deleted, what is deleted is gone.

    What a process answered that is gone by now counts for nothing: the next one is asked when it joins.
    """
    context, requests = office.context, office.requests()
    known = context.brokers.get(event.broker_id)
    if known is None or known.epoch != event.broker_epoch:
        return
    for partition, error in event.results:
        if not context.is_leaving(partition, event.broker_id):
            continue
        state = context.replica_state(partition, event.broker_id)
        failed = error not in GONE_ALREADY
        if failed:
            _failed(office, partition, event.broker_id, error)
        if not event.delete and state is ReplicaState.OFFLINE and not failed:
            context.move_replica(partition, event.broker_id, ReplicaState.DELETION_STARTED)
            requests.stop(partition, event.broker_id, delete=True)
        elif event.delete and state is ReplicaState.DELETION_STARTED:
            done = ReplicaState.DELETION_INELIGIBLE if failed else ReplicaState.DELETION_SUCCESSFUL
            context.move_replica(partition, event.broker_id, done)
    requests.send()


def _failed(office: Office, partition: TopicPartition, broker: int, error: ErrorCode) -> None:
    log.warn(
        "controller: broker {broker} could not delete {partition}: {error}",
        broker=broker,
        partition=str(partition),
        error=error.name,
    )
    office.put_later(RetryDeletions(), DELETION_RETRY_SECONDS)


def brokers_gone(office: Office, brokers: Collection[int]) -> None:
    """Nobody knows whether these brokers did what they were asked for; they are asked again when they are back."""
    for partition, broker in all_leaving(office.context):
        started = office.context.replica_state(partition, broker) is ReplicaState.DELETION_STARTED
        if broker in brokers and started:
            office.context.move_replica(partition, broker, ReplicaState.DELETION_INELIGIBLE)


def resume_deletions(office: Office, brokers: Collection[int]) -> None:
    """Brokers are told everything, or it is time to try again: their replicas that wait for it are stopped first."""
    context, requests = office.context, office.requests()
    for partition, broker in all_leaving(context):
        if broker not in brokers:
            continue
        if context.replica_state(partition, broker) is ReplicaState.DELETION_INELIGIBLE:
            context.move_replica(partition, broker, ReplicaState.OFFLINE)
        if context.replica_state(partition, broker) is ReplicaState.OFFLINE:
            requests.stop(partition, broker, delete=False)
    requests.send()


def is_gone(context: ControllerContext, partition: TopicPartition, broker: int) -> bool:
    """Whether that broker has said that it has no files of it any more."""
    return context.replica_state(partition, broker) is ReplicaState.DELETION_SUCCESSFUL
