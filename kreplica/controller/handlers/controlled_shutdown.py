"""Controlled shutdown: a broker that wants to stop hands over what it leads, so that clients hardly notice."""

from __future__ import annotations

from collections.abc import Sequence

from twisted.logger import Logger

from kreplica.controller.decisions import decisions
from kreplica.controller.decisions.decisions import StateChange
from kreplica.controller.event_types import ShutdownAsked
from kreplica.controller.handlers.broker_changes import brokers_changed
from kreplica.controller.state.states import ReplicaState
from kreplica.controller.term import Office
from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import TopicPartition

log = Logger()


async def shutdown_asked(office: Office, question: ShutdownAsked) -> list[TopicPartition]:
    """Move the leaders, take the broker out of in-sync sets, and have it stop all that it does not lead any more.

    Asked again, it goes on with what is left.  From the first time on the broker is not elected, nor told to follow;
    so no leader can take it back into an in-sync set, where each new epoch asks for a fetch in it (KIP-841).

    :return: the partitions that it still leads because no other replica can.  Those that have no other replica do not
        count: it may stop all the same.
    :raise KafkaError: BROKER_NOT_AVAILABLE, STALE_BROKER_EPOCH.
    """
    context, broker = office.context, question.broker_id
    await _check_incarnation(office, question)
    if broker not in context.shutting_down:
        text = f"broker {broker} asked to stop: its leaders move"
        office.memory.tell("broker_stopping", f"broker {broker}", text)
    context.shutting_down.add(broker)
    partitions = context.staying([partition async for partition, _ in office.in_turns(context.replicas_on([broker]))])
    rules, requests = office.rules(), office.requests()

    def decide(some: Sequence[TopicPartition]) -> list[StateChange]:
        return decisions.shutdowns(context, some, rules)

    await office.decide(partitions, decide, requests)
    async for partition in office.in_turns(partitions):
        state = context.leadership.get(partition)
        is_told = context.replica_state(partition, broker) is ReplicaState.ONLINE
        if state is not None and state.leader != broker and is_told:
            context.move_replica(partition, broker, ReplicaState.OFFLINE)
            requests.stop(partition, broker, delete=False)
    requests.send()
    led = [partition for partition in partitions if context.leads(broker, partition)]
    log.info(
        "controller: broker {broker} shuts down: it held {count} partitions and still leads {led}",
        broker=broker,
        count=len(partitions),
        led=len(led),
    )
    return [partition for partition in led if len(context.replicas(partition)) > 1]


async def _check_incarnation(office: Office, question: ShutdownAsked) -> None:
    """:raise KafkaError: where another process of that broker asks than the one that lives."""
    brokers, broker = office.context.brokers, question.broker_id
    if broker not in brokers or brokers[broker].epoch < question.broker_epoch:
        await brokers_changed(office)  # it may have registered a moment ago
    known = brokers.get(broker)
    if known is None:
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker} is not registered")
    if question.broker_epoch != known.epoch:
        text = f"broker {broker} is registered with epoch {known.epoch}, not {question.broker_epoch}"
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, text)
