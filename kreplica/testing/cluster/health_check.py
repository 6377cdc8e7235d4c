"""Checks that all brokers report the same health figures, and that these match the state in ZooKeeper.

Cluster figures come from each broker's published metadata, metrics from the leaders.  They may differ briefly while a
change spreads; ``wait_until_health_agrees`` allows for this.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Coroutine
from typing import Any, TypeVar

from twisted.internet.defer import Deferred

from kreplica.admin.cluster_state.counts import CachedCounts, Counts
from kreplica.cluster import znodes
from kreplica.cluster.eligible_leaders import required_isr_size
from kreplica.interfaces import Family
from kreplica.model import TopicPartition
from kreplica.runtime.stalls import StallWatch
from kreplica.service.composition.broker import Broker
from kreplica.service.metrics.broker_metrics import BrokerMetrics
from kreplica.service.metrics.local_health import LocalHealth, LocalReport
from kreplica.testing.cluster.cluster import SimulatedCluster
from kreplica.testing.cluster.state import assignment_of, state_of, znode

T = TypeVar("T")

RETRY_S = 0.5

METRIC_PREFIX = "kafka_server_replicamanager"


def wait_until_health_agrees(cluster: SimulatedCluster, timeout_s: float = 30.0) -> None:
    """Run until the figures agree.

    :raise AssertionError: the figures do not agree in time; the message names a difference.
    """
    until_s = cluster.simulation.now_s + timeout_s
    while True:
        try:
            check_health_agrees(cluster)
            return
        except AssertionError:
            if cluster.simulation.now_s > until_s:
                raise
        cluster.run(RETRY_S)


def check_health_agrees(cluster: SimulatedCluster) -> None:
    """Compare the figures of all running brokers with each other, with their metrics and with ZooKeeper."""
    brokers = {
        number: machine.program
        for number, machine in cluster.brokers.items()
        if machine.running and not machine.host.is_paused
    }
    led: Counter[str] = Counter()
    for number, broker in brokers.items():
        counts = _run(cluster, _counts(broker))
        expected = _state_in_zookeeper(cluster, broker)
        reported = {"offline": counts.offline, "behind": counts.under_replicated, "below": counts.under_min_isr}
        assert reported == expected, f"broker {number} counts {reported}, but ZooKeeper has {expected}"
        report, metrics = _run(cluster, _local(broker))
        totals = report.totals
        for metric, value in (
            ("underreplicatedpartitions", len(totals.under_replicated)),
            ("underminisrpartitioncount", len(totals.under_min_isr)),
            ("offlinereplicacount", totals.offline),
        ):
            assert metrics[f"{METRIC_PREFIX}_{metric}", ()] == value, f"{metric} of broker {number}"
        for kind, count in report.counts().items():
            assert metrics["kreplica_faults", (kind,)] == count, f"faults {kind} of broker {number}"
        led.update(behind=len(totals.under_replicated), below=len(totals.under_min_isr))
        if broker.controller.active:
            offline = metrics["kafka_controller_kafkacontroller_offlinepartitionscount", ()]
            assert offline == len(counts.offline), f"the controller has {offline} offline partitions"
    for metric, count in led.items():
        assert count == len(expected[metric]), f"the leaders have {count} partitions {metric}, not {expected[metric]}"


def _run(cluster: SimulatedCluster, work: Coroutine[Deferred[Any], Any, T]) -> T:
    result: T = cluster.run_until(Deferred.fromCoroutine(work))
    return result


async def _counts(broker: Broker) -> Counts:
    reactor, minimum = broker.runtime.reactor, broker.dynamic_settings.min_insync_replicas
    return await CachedCounts(reactor, broker.metadata, minimum).current()


async def _local(broker: Broker) -> tuple[LocalReport, dict[tuple[str, tuple[str, ...]], float]]:
    stalls = StallWatch(broker.runtime.reactor)
    health = LocalHealth(broker, stalls)
    metrics = {
        (family.name, tuple(sample.labels)): sample.value
        async for family in BrokerMetrics(broker, stalls, health).families()
        if isinstance(family, Family)
        for sample in family.samples
    }
    return await health.report(), metrics


def _state_in_zookeeper(cluster: SimulatedCluster, broker: Broker) -> dict[str, list[TopicPartition]]:
    """Return the partitions without a leader, with replicas out of sync, and below ``min.insync.replicas``."""
    partitions: dict[str, list[TopicPartition]] = {"offline": [], "behind": [], "below": []}
    topics = znode(cluster, znodes.TOPICS)
    for topic in sorted((topics.children or ()) if topics is not None else ()):
        assignment = assignment_of(cluster, topic)
        assert assignment is not None
        if znode(cluster, znodes.delete_topic_path(topic)) is not None:
            continue
        for number, replicas in sorted(assignment.partitions.items()):
            key = TopicPartition(topic, number)
            state = state_of(cluster, key)
            if state is None:
                continue
            if state.leader < 0:
                partitions["offline"].append(key)
            elif len(state.isr) < len(replicas):
                partitions["behind"].append(key)
                needed = required_isr_size(broker.dynamic_settings.min_insync_replicas(topic), len(replicas))
                if len(state.isr) < needed:
                    partitions["below"].append(key)
    return partitions
