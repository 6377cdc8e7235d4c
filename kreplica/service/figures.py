"""What a broker tells Prometheus: from counters and states all over the house to names that dashboards know.

Names are those of Kafka's JMX exporter and of kafka_exporter where these have one; ours start with ``kreplica_``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from kreplica.admin.metrics import Family, Histogram, Kind, Sample
from kreplica.replication import Partition, Role
from kreplica.runtime.stalls import BOUNDS_S, StallWatch
from kreplica.runtime.turns import Turns
from kreplica.server.metadata import PartitionMetadata
from kreplica.server.metrics import ApiMetrics
from kreplica.wire.messages import APIS, FETCH, PRODUCE

if TYPE_CHECKING:
    from kreplica.service.broker import Broker

PARTITION_LABELS = ("topic", "partition")

PartitionFigure = Callable[[Partition], float]
Row = tuple[str, str, PartitionFigure]

REPLICAS: Sequence[Row] = (
    ("kafka_log_log_size", "Bytes of a replica's log here.", lambda p: p.log.size_bytes),
    ("kafka_log_log_logstartoffset", "First offset of a replica's log here.", lambda p: p.log.log_start_offset),
    ("kafka_log_log_logendoffset", "Next offset of a replica's log here.", lambda p: p.log.log_end_offset),
)
"""Of every partition that is held here."""

LED: Sequence[Row] = (
    ("kafka_topic_partition_current_offset", "High watermark of a partition led here.", lambda p: p.high_watermark),
    ("kafka_topic_partition_oldest_offset", "First offset of a partition led here.", lambda p: p.log.log_start_offset),
    ("kafka_topic_partition_leader", "Broker that leads a partition led here.", lambda p: p.leadership.leader),
    ("kafka_topic_partition_replicas", "Replicas of a partition led here.", lambda p: len(p.leadership.replicas)),
    (
        "kafka_topic_partition_in_sync_replica",
        "Replicas in sync of a partition led here.",
        lambda p: len(p.leadership.isr),
    ),
    (
        "kafka_topic_partition_under_replicated_partition",
        "1 where replicas of a partition led here are not in sync.",
        lambda p: float(_is_under_replicated(p)),
    ),
    (
        "kreplica_partition_open_transactions",
        "Transactions that are open in a partition led here.",
        lambda p: len(p.log.producers.ongoing_transactions),
    ),
)
"""Of every partition that is led here: asked of all brokers, each partition comes once."""


_NEVER_ASKED = ApiMetrics()


class BrokerFigures:
    """Reads what there is; counts nothing itself."""

    def __init__(self, broker: Broker, stalls: StallWatch) -> None:
        self._broker = broker
        self._stalls = stalls

    async def families(self) -> AsyncIterator[Family | Histogram]:
        """See ``admin.metrics.Figures``."""
        for family in (*self._cluster(), *self._server(), *self._replication(), *self._controller()):
            yield family
        partitions = list(self._broker.partitions)
        led = [partition for partition in partitions if partition.is_leader]
        turns = Turns(self._broker.runtime.reactor)
        for rows, held in ((REPLICAS, partitions), (LED, led)):
            for name, text, figure in rows:
                samples = []
                for partition in held:
                    key = partition.topic_partition
                    samples.append(Sample((key.topic, str(key.partition)), figure(partition)))
                    if turns.is_over:
                        await turns.next()
                yield Family(name, Kind.GAUGE, text, PARTITION_LABELS, samples)
        yield self._stall_histogram()

    def _cluster(self) -> Iterator[Family]:
        metadata = self._broker.metadata
        yield _gauge("kafka_brokers", "Brokers that live, as far as this one was told.", len(metadata.brokers))
        topics = [Sample((name,), len(topic.partitions)) for name, topic in sorted(metadata.topics.items())]
        yield Family("kafka_topic_partitions", Kind.GAUGE, "Partitions of a topic.", ("topic",), topics)

    def _server(self) -> Iterator[Family]:
        if self._broker.server is None:
            return
        metrics = self._broker.server.metrics
        apis = [(APIS[key].name, counters) for key, counters in sorted(metrics.apis.items())]
        yield _by_api("requests", "Requests of clients and brokers.", ((n, c.requests) for n, c in apis))
        yield _by_api("errors", "Requests that closed their connection.", ((n, c.errors) for n, c in apis))
        yield _by_api("requestbytes", "Bytes of requests.", ((n, c.bytes_in) for n, c in apis))
        yield _by_api("responsebytes", "Bytes of answers.", ((n, c.bytes_out) for n, c in apis))
        times = ((name, counters.answered_time_s * 1e3) for name, counters in apis)
        yield _by_api("totaltimems", "Milliseconds from request to answer, all together.", times)
        produce, fetch = (metrics.apis.get(api.key, _NEVER_ASKED) for api in (PRODUCE, FETCH))
        topics = "kafka_server_brokertopicmetrics"
        yield _counter(f"{topics}_bytesin", "Bytes of produce requests.", produce.bytes_in)
        yield _counter(f"{topics}_bytesout", "Bytes of fetch answers, to consumers and followers.", fetch.bytes_out)
        yield _counter(f"{topics}_totalproducerequests", "Produce requests.", produce.requests)
        yield _counter(f"{topics}_totalfetchrequests", "Fetch requests.", fetch.requests)
        sockets = "kafka_server_socketservermetrics"
        yield _gauge(f"{sockets}_connection_count", "Connections that are open.", metrics.connections)
        yield _counter("kreplica_connections_accepted", "Connections that were accepted.", metrics.connections_accepted)
        yield _counter("kreplica_connections_refused", "Closed at once, for a bound.", metrics.connections_refused)
        yield _counter("kreplica_connections_idle_closed", "Closed for being idle.", metrics.connections_idle_closed)
        yield _counter("kreplica_connection_pauses", "Times a connection was not read for a bound.", metrics.pauses)
        yield _counter("kreplica_cold_reads", "Answers that waited for the disk.", metrics.cold_reads)

    def _replication(self) -> Iterator[Family]:
        partitions = list(self._broker.partitions)
        led = [partition for partition in partitions if partition.is_leader]
        name = "kafka_server_replicamanager"
        yield _gauge(f"{name}_partitioncount", "Partitions held here.", len(partitions))
        yield _gauge(f"{name}_leadercount", "Partitions led here.", len(led))
        yield _gauge(
            f"{name}_underreplicatedpartitions", "Led here, not all in sync.", sum(map(_is_under_replicated, led))
        )
        yield _gauge(
            f"{name}_underminisrpartitioncount",
            "Led here, with fewer in sync than acks=all needs.",
            sum(len(p.leadership.isr) < p.in_sync_required for p in led),
        )
        offline = sum(partition.role is Role.OFFLINE for partition in partitions)
        yield _gauge(f"{name}_offlinereplicacount", "Held in a directory that failed.", offline)
        writes = self._broker.replication.isr_writes
        yield _counter(f"{name}_isrexpands", "Replicas that came into sync.", writes.expands)
        yield _counter(f"{name}_isrshrinks", "Replicas that fell out of sync.", writes.shrinks)
        yield _counter("kreplica_isr_write_conflicts", "Writes of a state that was newer.", writes.conflicts)

    def _controller(self) -> Iterator[Family]:
        controller = self._broker.controller
        name = "kafka_controller_kafkacontroller"
        context = controller.context if controller.active else None
        yield _gauge(f"{name}_activecontrollercount", "1 on the broker that is the controller.", controller.active)
        counters = controller.counters
        yield _counter("kreplica_controller_events", "Events that were handled.", controller.queue.events_handled)
        yield _gauge("kreplica_controller_event_queue_size", "Events that wait.", len(controller.queue))
        yield _counter("kreplica_controller_commands", "Commands sent to brokers.", counters.commands)
        yield _counter("kreplica_controller_commands_unanswered", "Commands not answered in time.", counters.unanswered)
        round_trips = counters.cost.zookeeper_round_trips
        yield _counter("kreplica_controller_zookeeper_round_trips", "Times ZooKeeper was waited for.", round_trips)
        last = controller.queue.last_event
        if last is not None:
            yield _gauge("kreplica_controller_last_event_wait_seconds", "Last event, queued.", last.waited_s)
            yield _gauge("kreplica_controller_last_event_seconds", "Handling the last event.", last.handled_s)
        if context is None:
            return
        published = [p for topic in self._broker.metadata.topics.values() for p in topic.partitions.values()]
        yield _gauge(f"{name}_activebrokercount", "Brokers that live.", len(context.brokers))
        yield _gauge(f"{name}_globaltopiccount", "Topics.", len(context.topics))
        yield _gauge(f"{name}_globalpartitioncount", "Partitions.", len(published))
        yield _gauge(f"{name}_offlinepartitionscount", "Led by nobody.", sum(map(_is_offline, published)))
        yield _gauge(
            f"{name}_preferredreplicaimbalancecount",
            "Partitions that another than their first replica leads.",
            sum(map(_is_led_by_another, published)),
        )

    def _stall_histogram(self) -> Histogram:
        buckets, below = [], 0
        for bound, count in zip([*map(str, BOUNDS_S), "+Inf"], self._stalls.counts, strict=True):
            below += count
            buckets.append((bound, float(below)))
        return Histogram(
            "kreplica_reactor_delay_seconds", "How late timers of the reactor were.", buckets, self._stalls.sum_s
        )


def _is_under_replicated(partition: Partition) -> bool:
    return len(partition.leadership.isr) < len(partition.leadership.replicas)


def _is_offline(partition: PartitionMetadata) -> bool:
    return partition.leader < 0


def _is_led_by_another(partition: PartitionMetadata) -> bool:
    return partition.leader >= 0 and bool(partition.replicas) and partition.leader != partition.replicas[0]


def _gauge(name: str, text: str, value: float) -> Family:
    return Family(name, Kind.GAUGE, text, (), [Sample((), value)])


def _counter(name: str, text: str, value: float) -> Family:
    return Family(name, Kind.COUNTER, text, (), [Sample((), value)])


def _by_api(name: str, text: str, values: Iterable[tuple[str, float]]) -> Family:
    samples = [Sample((api,), value) for api, value in values]
    return Family(f"kafka_network_requestmetrics_{name}", Kind.COUNTER, text, ("request",), samples)
