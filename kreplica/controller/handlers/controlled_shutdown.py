"""Controlled shutdown: moves leaders away from a broker before it stops."""

from __future__ import annotations

from collections.abc import Sequence

from twisted.logger import Logger

from kreplica.controller.decisions import state_changes
from kreplica.controller.decisions.state_changes import StateChange
from kreplica.controller.event_types import ShutdownRequested
from kreplica.controller.handlers.broker_changes import brokers_changed
from kreplica.controller.state.states import ReplicaState
from kreplica.controller.term import ControllerTerm
from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import TopicPartition

log = Logger()


async def shutdown_requested(term: ControllerTerm, request: ShutdownRequested) -> list[TopicPartition]:
    """Move the leaders, remove the broker from ISRs, and stop its replicas that are not leaders.

    A repeated request continues with the remaining partitions.  After the first request, the broker is neither elected
    nor made a follower, so no leader can add it to the ISR again: this requires a fetch in the current leader epoch
    (KIP-841).

    :return: the partitions that the broker still leads because no other replica can lead them.  Partitions with a
        single replica are not included and do not delay the shutdown.
    :raise KafkaError: BROKER_NOT_AVAILABLE, STALE_BROKER_EPOCH.
    """
    context, broker = term.context, request.broker_id
    await _check_incarnation(term, request)
    if broker not in context.shutting_down:
        text = f"broker {broker} requested a controlled shutdown: its leaders are being moved"
        term.history.record("broker_stopping", f"broker {broker}", text)
    context.shutting_down.add(broker)
    replicas = term.in_slices(context.replicas_on([broker]))
    partitions = context.not_deleting([partition async for partition, _ in replicas])
    rules, batch = term.rules(), term.new_batch()

    def decide(part: Sequence[TopicPartition]) -> list[StateChange]:
        return state_changes.controlled_shutdown_changes(context, part, rules)

    await term.decide(partitions, decide, batch)
    async for partition in term.in_slices(partitions):
        state = context.leadership.get(partition)
        is_following = context.replica_state(partition, broker) is ReplicaState.ONLINE
        if state is not None and state.leader != broker and is_following:
            context.set_replica_state(partition, broker, ReplicaState.OFFLINE)
            batch.stop(partition, broker, delete=False)
    batch.send()
    still_led = [partition for partition in partitions if context.leads(broker, partition)]
    log.info(
        "controller: broker {broker} is shutting down: it has replicas of {count} partitions and still leads {led}",
        broker=broker,
        count=len(partitions),
        led=len(still_led),
    )
    return [partition for partition in still_led if len(context.replicas(partition)) > 1]


async def _check_incarnation(term: ControllerTerm, request: ShutdownRequested) -> None:
    """Check that the request comes from the registered process of the broker.

    :raise KafkaError: BROKER_NOT_AVAILABLE, STALE_BROKER_EPOCH.
    """
    brokers, broker = term.context.brokers, request.broker_id
    if broker not in brokers or brokers[broker].epoch < request.broker_epoch:
        await brokers_changed(term)  # the registration may be newer than the last read
    known = brokers.get(broker)
    if known is None:
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker} is not registered")
    if request.broker_epoch != known.epoch:
        text = f"broker {broker} is registered with epoch {known.epoch}, not {request.broker_epoch}"
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, text)
