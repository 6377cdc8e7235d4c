"""Runs the events on one cluster, one after another, and measures each."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from kreplica.testing.designs.agent_design import AgentDesign
from kreplica.testing.designs.availability import Outages
from kreplica.testing.designs.bench_cluster import BenchCluster, Design
from kreplica.testing.designs.controller_design import ControllerDesign
from kreplica.testing.designs.layout import Partition, Shape
from kreplica.testing.designs.leader_coordinated import CoordinatedAgent
from kreplica.testing.designs.light_zookeeper import Rates
from kreplica.testing.designs.race import RaceAgent

DESIGNS: dict[str, Callable[[BenchCluster], Design]] = {
    "race": lambda cluster: AgentDesign(cluster, RaceAgent),
    "leader": lambda cluster: AgentDesign(cluster, CoordinatedAgent),
    "controller": ControllerDesign,
}
"""The designs by name."""

PIPELINED_CALLS = "pipelined"
"""Name of calls to ZooKeeper that do not wait for each response."""

NEW_TOPIC = "new-topic"
NEW_TOPIC_PARTITIONS = 100
REASSIGNED_MAX = 100


@dataclass(frozen=True, slots=True)
class Case:
    """One run.

    :param rtt_ms: round trip to ZooKeeper and between brokers.
    :param one_by_one: True if clients wait for each response of ZooKeeper before they send the next request.
    """

    design: str
    shape: Shape
    rtt_ms: float
    one_by_one: bool = False

    def row(self) -> dict[str, Any]:
        return {
            "design": self.design,
            "partitions": self.shape.partitions,
            "brokers": self.shape.brokers,
            "replication_factor": self.shape.replication_factor,
            "rtt_ms": self.rtt_ms,
            "calls": "one by one" if self.one_by_one else PIPELINED_CALLS,
        }


@dataclass(frozen=True, slots=True)
class EventResult:
    """Costs of one event.

    :param watches_at_end: watches that are set when the cluster has settled.
    :param settled_s: time from the event to the last response of ZooKeeper or the last election.
    """

    event: str
    counts: dict[str, int]
    watches_at_end: int
    outages: Outages
    settled_s: float


@dataclass(slots=True)
class CaseResult:
    """All events of one run.

    :param partition_watches: watches on znodes of single partitions after the start of the cluster.
    """

    case: Case
    events: list[EventResult] = field(default_factory=list)
    partition_watches: int = 0
    cpu_s: float = 0.0
    memory_mb: int = 0

    def rows(self) -> list[dict[str, Any]]:
        """Return a flat row per event."""
        return [
            {
                **self.case.row(),
                "event": result.event,
                **result.counts,
                "watches_at_end": result.watches_at_end,
                **asdict(result.outages),
                "settled_s": result.settled_s,
            }
            for result in self.events
        ]


class CaseRun:
    """One cluster with one design.

    :param rates: rates of the ZooKeeper server; None for the defaults.
    """

    def __init__(self, case: Case, rates: Rates | None = None) -> None:
        self._case = case
        by_epoch = case.design == "controller"
        self.cluster = BenchCluster(
            case.shape, case.rtt_ms / 1000, by_epoch=by_epoch, one_by_one=case.one_by_one, rates=rates
        )
        self.design = DESIGNS[case.design](self.cluster)
        self._result = CaseResult(case)

    def run(self, events: tuple[str, ...] | None = None) -> CaseResult:
        """Run all events, or those given; the cluster's start is always the first."""
        started_s = time.process_time()
        self.design.populate()
        steps = self._steps()
        for name in ("whole cluster starts", *steps):
            if events is None or name in events or name == "whole cluster starts":
                self._measure(name, steps.get(name, self._start_all))
        self._result.cpu_s = time.process_time() - started_s
        self._result.memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        return self._result

    def _steps(self) -> dict[str, Callable[[], None]]:
        design, second = self.design, 2
        return {
            "broker dies": lambda: design.kill_broker(second),
            "broker comes back": lambda: design.start_broker(second),
            "preferred leaders elected": design.elect_preferred,
            "controlled shutdown": lambda: design.shut_down_broker(second),
            "broker starts again": lambda: design.start_broker(second),
            "ZooKeeper session lost": lambda: design.expire_session(1),
            "topic created": self._create_topic,
            "reassignment": self._reassign,
            "topic deleted": self._delete_topic,
        }

    def _measure(self, name: str, start_event: Callable[[], None]) -> None:
        cluster = self.cluster
        cluster.counts.reset()
        cluster.zookeeper.tree.changed.clear()
        cluster.zookeeper.restart_slow_requests()
        cluster.availability.take()
        started_s = cluster.scheduler.now_s
        start_event()
        cluster.settle()
        zookeeper = cluster.zookeeper
        if name == "whole cluster starts":
            self._result.partition_watches = zookeeper.watches_below(depth=4)
        self._result.events.append(
            EventResult(
                name,
                cluster.counts.as_dict(),
                zookeeper.watch_count,
                cluster.availability.take(),
                max(zookeeper.last_s - started_s, 0.0),
            )
        )

    def _start_all(self) -> None:
        self.cluster.availability.expect(self.cluster.layout.all())
        for broker_id in self._case.shape.broker_ids:
            self.design.start_broker(broker_id)

    def _create_topic(self) -> None:
        partitions = self.cluster.layout.add_topic(NEW_TOPIC, self._new_count)
        self.cluster.availability.expect(partitions)
        self.design.create_topic(NEW_TOPIC, partitions)

    @property
    def _new_count(self) -> int:
        return min(NEW_TOPIC_PARTITIONS, self._case.shape.partitions)

    def _delete_topic(self) -> None:
        layout = self.cluster.layout
        partitions = layout.topics[NEW_TOPIC]
        for partition in partitions:
            self.cluster.availability.forget(partition)
        self.design.delete_topic(NEW_TOPIC, partitions)

    def _reassign(self) -> None:
        """Move the last replica of each partition of the new topic to a broker that has none."""
        targets: dict[Partition, tuple[int, ...]] = {}
        for partition in self.cluster.layout.topics[NEW_TOPIC][:REASSIGNED_MAX]:
            candidates = [broker_id for broker_id in self._case.shape.broker_ids if broker_id not in partition.replicas]
            if candidates:
                target = candidates[partition.number % len(candidates)]
                targets[partition] = (*partition.replicas[:-1], target)
        for partition, replicas in targets.items():
            partition.replicas = replicas
        if targets:
            self.design.reassign(targets)


def run_case(case: Case) -> CaseResult:
    """Run all events of one case."""
    return CaseRun(case).run()
