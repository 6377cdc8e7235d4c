"""Handles replicas in failed log directories.

Their broker is live, but these replicas are offline until the broker can open them again.
"""

from __future__ import annotations

from collections.abc import Sequence

from kreplica.controller.decisions import state_changes
from kreplica.controller.decisions.state_changes import StateChange
from kreplica.controller.event_types import ReplicasRecovered, RetryReplicas
from kreplica.controller.state.states import PartitionState, ReplicaState
from kreplica.controller.term import ControllerTerm
from kreplica.model import TopicPartition

FIRST_RETRY_SECONDS = 1.0
"""Delay before the first retry: once other leaders are elected, the broker may recreate a damaged replica."""

RETRY_SECONDS = 30.0
"""Delay before later retries; by then, a full disk may have space again."""


async def replicas_failed(term: ControllerTerm, broker: int, partitions: Sequence[TopicPartition]) -> None:
    """Elect new leaders for partitions whose replicas a broker cannot open, and remove these replicas from the ISRs."""
    context = term.context
    known = context.failed_replicas.setdefault(broker, set())
    new = [p for p in context.not_deleting(partitions) if p not in known and broker in context.replicas(p)]
    if known or new:
        term.put_later(RetryReplicas(), FIRST_RETRY_SECONDS if new else RETRY_SECONDS)
    if not new:
        return
    known.update(new)
    text = f"broker {broker} cannot use {{what}} in a failed log directory"
    term.history.set_cause(f"broker {broker} cannot use replicas in a failed log directory")
    term.history.record_many("replicas_failed", "replica", new, text, broker=broker)
    for partition in new:
        if context.replica_state(partition, broker) in (ReplicaState.NEW, ReplicaState.ONLINE):
            context.set_replica_state(partition, broker, ReplicaState.OFFLINE)
        if context.leads(broker, partition):
            context.set_partition_state(partition, PartitionState.OFFLINE)
    # The contents of a failed device are unknown: its replicas become ineligible, and a new leader epoch prevents the
    # leader from adding them to the ISR based on earlier fetches.
    await _repair(term, new, failed=[broker])


async def replicas_recovered(term: ControllerTerm, event: ReplicasRecovered) -> None:
    """Mark replicas as online after their broker was able to open them again."""
    context = term.context
    failed = context.failed_replicas.get(event.broker_id, set())
    recovered = [partition for partition in event.partitions if partition in failed]
    failed.difference_update(recovered)
    text = f"broker {event.broker_id} can use {{what}} again"
    term.history.record_many("replicas_recovered", "replica", recovered, text, broker=event.broker_id)
    for partition in recovered:
        if context.replica_state(partition, event.broker_id) is ReplicaState.OFFLINE:
            context.set_replica_state(partition, event.broker_id, ReplicaState.ONLINE)
    await _repair(term, context.not_deleting(recovered))
    # The broker opened them in an old epoch if leaders were elected while they were marked as failed.
    batch = term.new_batch()
    for partition in context.not_deleting(recovered):
        if partition in context.leadership and event.broker_id in context.replicas(partition):
            batch.lead_or_follow(partition, [event.broker_id])
    batch.send()


async def retry_replicas(term: ControllerTerm) -> None:
    """Send LeaderAndIsr for failed replicas again; the broker accepts it for those that it can open."""
    context, batch = term.context, term.new_batch()
    for broker in sorted(context.failed_replicas):
        for partition in sorted(context.failed_replicas[broker]):
            if partition in context.leadership and broker in context.replicas(partition):
                batch.lead_or_follow(partition, [broker])
            else:
                context.failed_replicas[broker].discard(partition)
    batch.send()
    if any(context.failed_replicas.values()):
        term.put_later(RetryReplicas(), RETRY_SECONDS)


async def _repair(term: ControllerTerm, partitions: Sequence[TopicPartition], failed: Sequence[int] = ()) -> None:
    rules, batch = term.rules(), term.new_batch()

    def decide(part: Sequence[TopicPartition]) -> list[StateChange]:
        return state_changes.repairs(term.context, part, rules, failed=failed)

    await term.decide(partitions, decide, batch)
    # Published even if no state changed, because the list of offline replicas changed.
    batch.publish(partitions)
    batch.send()
