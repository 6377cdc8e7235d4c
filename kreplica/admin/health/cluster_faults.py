"""Faults of the cluster that follow from the published metadata. Pure functions."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from kreplica.admin.cluster_state.counts import Counts
from kreplica.admin.health.faults import Fault, broker_fault, partitions_fault
from kreplica.model import TopicPartition


def cluster_faults(counts: Counts, live: Collection[int], controller_id: int) -> Iterator[Fault]:
    """Yield the faults of partitions, of absent brokers and of the controller.

    :param live: the brokers in the published metadata.
    :param controller_id: negative if no controller is known.
    """
    if counts.offline:
        yield partitions_fault("no_leader", counts.offline, "has no leader", "have no leader")
    if controller_id < 0 or controller_id not in live:
        text = "No broker is the controller: partitions are served, but their leaders and replicas cannot change."
        yield Fault("no_controller", "cluster", text)
    if counts.under_min_isr:
        yield under_min_isr_fault(counts.under_min_isr)
    for broker, broker_counts in sorted(counts.brokers.items()):
        if broker not in live and broker_counts.replicas:
            replicas = "1 replica" if broker_counts.replicas == 1 else f"{broker_counts.replicas:,} replicas"
            why = "it stopped, died or lost its ZooKeeper session"
            text = f"Broker {broker}, which holds {replicas}, is not registered: {why}."
            yield broker_fault("broker_gone", broker, text)
    if counts.under_replicated:
        yield under_replicated_fault(counts.under_replicated, counts.under_min_isr)


def under_min_isr_fault(partitions: list[TopicPartition]) -> Fault:
    """Return the fault of partitions that reject ``acks=all``."""
    return partitions_fault(
        "under_min_isr", partitions, "has too few in-sync replicas", "have too few in-sync replicas"
    )


def under_replicated_fault(partitions: list[TopicPartition], under_min_isr: Collection[TopicPartition]) -> Fault:
    """Return the fault of partitions with replicas out of sync.

    :param under_min_isr: the partitions that reject ``acks=all``, which have their own fault.
    """
    rejecting = set(under_min_isr)
    writable = sum(key not in rejecting for key in partitions)
    consequence = ""  # all of them are writable
    if writable == 0:
        consequence = "records can be read, but fewer failures are tolerated"
    elif writable < len(partitions):
        consequence = f"all records can be written and read in {writable:,} of them, but fewer failures are tolerated"
    return partitions_fault(
        "under_replicated", partitions, "is under-replicated", "are under-replicated", consequence
    )
