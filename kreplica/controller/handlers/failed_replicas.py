"""Replicas whose log directory failed: their broker lives, but they are offline until it says otherwise."""

from __future__ import annotations

from collections.abc import Sequence

from kreplica.controller.decisions import decisions
from kreplica.controller.decisions.decisions import StateChange
from kreplica.controller.event_types import ReplicasRecovered, RetryReplicas
from kreplica.controller.state.states import PartitionState, ReplicaState
from kreplica.controller.term import Office
from kreplica.model import TopicPartition

FIRST_RETRY_SECONDS = 1.0
"""So soon a broker is asked for the first time: now that others lead, it may begin a damaged replica anew."""

RETRY_SECONDS = 30.0
"""After so long a broker is asked again: a disk that was full may have room now."""


async def replicas_failed(office: Office, broker: int, partitions: Sequence[TopicPartition]) -> None:
    """A broker cannot open these replicas: others lead, and they leave the in-sync sets."""
    context = office.context
    known = context.failed.setdefault(broker, set())
    new = [p for p in context.staying(partitions) if p not in known and broker in context.replicas(p)]
    if known or new:
        office.put_later(RetryReplicas(), FIRST_RETRY_SECONDS if new else RETRY_SECONDS)
    if not new:
        return
    known.update(new)
    text = f"broker {broker} cannot use {{what}}: their log directory failed"
    office.memory.because(f"broker {broker} cannot use replicas whose log directory failed")
    office.memory.tell_of_many("replicas_failed", "replica", new, text, broker=broker)
    for partition in new:
        if context.replica_state(partition, broker) in (ReplicaState.NEW, ReplicaState.ONLINE):
            context.move_replica(partition, broker, ReplicaState.OFFLINE)
        if context.leads(broker, partition):
            context.move_partition(partition, PartitionState.OFFLINE)
    # What a failed device holds nobody knows: such a replica does not stay eligible, and the leader may not let it in
    # by what it knew before.
    await _repair(office, new, failed=[broker])


async def replicas_recovered(office: Office, event: ReplicasRecovered) -> None:
    """A broker has opened replicas after all."""
    context = office.context
    failed = context.failed.get(event.broker_id, set())
    back = [partition for partition in event.partitions if partition in failed]
    failed.difference_update(back)
    text = f"broker {event.broker_id} can use {{what}} again"
    office.memory.tell_of_many("replicas_recovered", "replica", back, text, broker=event.broker_id)
    for partition in back:
        if context.replica_state(partition, event.broker_id) is ReplicaState.OFFLINE:
            context.move_replica(partition, event.broker_id, ReplicaState.ONLINE)
    await _repair(office, context.staying(back))
    # It has opened them in the epochs that it was told of: while it counted as failed there may have been others.
    requests = office.requests()
    for partition in context.staying(back):
        if partition in context.leadership and event.broker_id in context.replicas(partition):
            requests.lead_or_follow(partition, [event.broker_id])
    requests.send()


async def retry_replicas(office: Office) -> None:
    """Give the replicas that failed their roles again; a broker that has opened one answers so."""
    context, requests = office.context, office.requests()
    for broker in sorted(context.failed):
        for partition in sorted(context.failed[broker]):
            if partition in context.leadership and broker in context.replicas(partition):
                requests.lead_or_follow(partition, [broker])
            else:
                context.failed[broker].discard(partition)
    requests.send()
    if any(context.failed.values()):
        office.put_later(RetryReplicas(), RETRY_SECONDS)


async def _repair(office: Office, partitions: Sequence[TopicPartition], failed: Sequence[int] = ()) -> None:
    rules, requests = office.rules(), office.requests()

    def decide(some: Sequence[TopicPartition]) -> list[StateChange]:
        return decisions.repairs(office.context, some, rules, failed=failed)

    await office.decide(partitions, decide, requests)
    # Also where the state stays: the list of offline replicas is another.
    requests.publish(partitions)
    requests.send()
