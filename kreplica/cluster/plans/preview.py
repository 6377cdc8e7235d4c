"""Effect of a draft on each broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from kreplica.cluster.plans.cluster_state import ClusterState
from kreplica.cluster.plans.plan import Action, Step


@dataclass(frozen=True, slots=True)
class BrokerChange:
    """A broker before and after a plan.

    :param leaders_after: counts the preferred leaders of the plan's partitions and the current leaders of all others.
    :param bytes_in: bytes copied to this broker.
    :param bytes_out: bytes copied from this broker as leader.
    """

    broker_id: int
    replicas_before: int
    replicas_after: int
    leaders_before: int
    leaders_after: int
    bytes_in: int
    bytes_out: int


def preview(steps: Sequence[Step], cluster: ClusterState) -> list[BrokerChange]:
    """Return the change of every broker that is alive or has replicas, sorted by id."""
    assignments = cluster.assignments()
    replicas = Counter(broker for row in assignments.values() for broker in row)
    leaders = Counter(leader for key, leader in cluster.leaders.items() if key in assignments)
    replicas_after, leaders_after = replicas.copy(), leaders.copy()
    for step in steps:
        replicas_after.subtract(step.before)
        replicas_after.update(step.after)
        leaders_after.subtract(leader for leader in [cluster.leaders.get(step.key)] if leader is not None)
        leaders_after.update(step.after[:1])
    bytes_in, bytes_out = copied_bytes(steps, cluster)
    return [
        BrokerChange(
            broker,
            replicas[broker],
            replicas_after[broker],
            leaders[broker],
            leaders_after[broker],
            bytes_in[broker],
            bytes_out[broker],
        )
        for broker in cluster.holders(assignments)
    ]


def copied_bytes(steps: Sequence[Step], cluster: ClusterState) -> tuple[Counter[int], Counter[int]]:
    """Return two counters by broker: the bytes copied to it, and the bytes copied from it as leader."""
    bytes_in: Counter[int] = Counter()
    bytes_out: Counter[int] = Counter()
    for step in steps:
        if step.action is not Action.MOVE or not step.receiving_brokers:
            continue
        for broker in step.receiving_brokers:
            bytes_in[broker] += step.bytes // len(step.receiving_brokers)
        bytes_out[cluster.leaders.get(step.key, step.before[0])] += step.bytes
    return bytes_in, bytes_out
