"""Metrics of the controller and of the plans that it executes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from kreplica.controller.controller import Controller
from kreplica.controller.state.context import ControllerContext
from kreplica.interfaces import Family, Histogram, Sample
from kreplica.interfaces import MetricKind as Kind
from kreplica.runtime import Reactor
from kreplica.runtime.time_slice import TimeSlice
from kreplica.server.metadata.metadata_cache import MetadataCache, PartitionMetadata
from kreplica.service.metrics.metric_families import counter, gauge, histogram


async def controller_families(
    reactor: Reactor, controller: Controller, metadata: MetadataCache
) -> AsyncIterator[Family | Histogram]:
    """Yield the controller's metrics; those about plans and the cluster only on the active controller."""
    name = "kafka_controller_kafkacontroller"
    context = controller.context if controller.active else None
    yield gauge(f"{name}_activecontrollercount", "1 on the broker that is the controller.", controller.active)
    counters = controller.counters
    yield counter("kreplica_controller_events", "Handled events.", controller.queue.events_handled)
    yield gauge("kreplica_controller_event_queue_size", "Events in the queue.", len(controller.queue))
    yield counter("kreplica_controller_commands", "Commands sent to brokers.", counters.commands)
    yield counter(
        "kreplica_controller_commands_unanswered", "Commands that received no response in time.", counters.unanswered
    )
    round_trips = counters.cost.zookeeper_round_trips
    yield counter("kreplica_controller_zookeeper_round_trips", "ZooKeeper round trips.", round_trips)
    resumptions = counters.resumptions
    yield counter(
        "kreplica_controller_zookeeper_resumptions", "Requests continued after a lost connection.", resumptions
    )
    watches = controller.watches_count
    yield gauge("kreplica_controller_zookeeper_watches", "ZooKeeper watches of the active controller.", watches)
    last = controller.queue.last_event
    if last is not None:
        yield gauge(
            "kreplica_controller_last_event_wait_seconds",
            "Time that the last event waited in the queue.",
            last.waited_s,
        )
        yield gauge("kreplica_controller_last_event_seconds", "Time to handle the last event.", last.handled_s)
    totals = controller.queue.totals
    for title, help_, spread in (
        ("event_wait_seconds", "Time that events waited in the queue.", totals.waited),
        ("event_seconds", "Time to handle events.", totals.handled),
        ("event_zookeeper_round_trips", "ZooKeeper round trips per event.", totals.round_trips),
    ):
        yield histogram(f"kreplica_controller_{title}", help_, [((), spread.bounds, spread.counts, spread.sum)])
    if context is None:
        return
    for family in _plans(context):
        yield family
    count, offline, led_by_others = await _counts(reactor, metadata)
    yield gauge(f"{name}_activebrokercount", "Live brokers.", len(context.brokers))
    yield gauge(f"{name}_globaltopiccount", "Topics.", len(context.topics))
    yield gauge(f"{name}_globalpartitioncount", "Partitions.", count)
    yield gauge(f"{name}_offlinepartitionscount", "Partitions without a leader.", offline)
    yield gauge(
        f"{name}_preferredreplicaimbalancecount",
        "Partitions not led by their preferred replica.",
        led_by_others,
    )


async def _counts(reactor: Reactor, metadata: MetadataCache) -> tuple[int, int, int]:
    """Return the number of all partitions, of those without a leader, and of those not led by the preferred replica."""
    time_slice = TimeSlice(reactor)
    count = offline = led_by_others = 0
    for topic in list(metadata.topics.values()):
        for partition in topic.partitions.values():
            count += 1
            offline += partition.leader < 0
            led_by_others += _is_led_by_another(partition)
        if time_slice.is_over:
            await time_slice.next()
    return count, offline, led_by_others


def _plans(context: ControllerContext) -> Iterator[Family]:
    plans = [(plan_id, run.progress) for plan_id, run in sorted(context.plans.items())]
    moves = [
        Sample((plan_id, state), float(getattr(progress, state)))
        for plan_id, progress in plans
        for state in ("waiting", "moving", "finished", "failed", "cancelled")
    ]
    yield Family("kreplica_plan_moves", Kind.GAUGE, "Moves of plans that have not ended.", ("plan", "state"), moves)
    for name, text, values in (
        ("bytes", "Bytes that a plan copies.", [(p, progress.bytes) for p, progress in plans]),
        (
            "bytes_done",
            "Bytes that the finished moves of a plan copied.",
            [(p, progress.bytes_done) for p, progress in plans],
        ),
    ):
        samples = [Sample((plan_id,), float(value)) for plan_id, value in values]
        yield Family(f"kreplica_plan_{name}", Kind.GAUGE, text, ("plan",), samples)


def _is_led_by_another(partition: PartitionMetadata) -> bool:
    return partition.leader >= 0 and bool(partition.replicas) and partition.leader != partition.replicas[0]
