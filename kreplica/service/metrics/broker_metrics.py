"""Collects all metrics of a broker.

Names follow Kafka's JMX exporter and kafka_exporter if these have the metric; other names start with ``kreplica_``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Protocol

from kreplica.controller.controller import Controller
from kreplica.interfaces import Family, Histogram, Sample
from kreplica.interfaces import MetricKind as Kind
from kreplica.runtime.stalls import BOUNDS_S, StallWatch
from kreplica.server.metadata.metadata_cache import MetadataCache
from kreplica.server.protocol.metrics import ApiMetrics
from kreplica.server.quotas.client_quotas import ClientQuotas
from kreplica.service.broker.bearer_tokens import BearerTokens
from kreplica.service.broker.connection_settings import ConnectionLimitsUpdate
from kreplica.service.metrics.controller_metrics import controller_families
from kreplica.service.metrics.group_metrics import group_families
from kreplica.service.metrics.key_metrics import key_families
from kreplica.service.metrics.local_health import HealthDependencies, LocalHealth, LocalReport
from kreplica.service.metrics.machine_metrics import directory_families, process_families
from kreplica.service.metrics.memory_metrics import MemoryDependencies, memory_families
from kreplica.service.metrics.metric_families import by_api, counter, gauge, histogram
from kreplica.service.metrics.partition_metrics import Detail, partition_families, topic_family
from kreplica.service.metrics.quota_metrics import connection_families, quota_families
from kreplica.service.plugins import Plugins
from kreplica.settings import BrokerSettings
from kreplica.wire.messages import APIS, FETCH, PRODUCE

_NO_REQUESTS = ApiMetrics()


class MetricsDependencies(MemoryDependencies, HealthDependencies, Protocol):
    """Parts of a broker that the metrics read."""

    @property
    def metadata(self) -> MetadataCache: ...

    @property
    def plugins(self) -> Plugins: ...

    @property
    def bearer_tokens(self) -> BearerTokens: ...

    @property
    def quotas(self) -> ClientQuotas: ...

    @property
    def connection_limits(self) -> ConnectionLimitsUpdate: ...

    @property
    def controller(self) -> Controller: ...

    @property
    def settings(self) -> BrokerSettings: ...


class BrokerMetrics:
    """Collects metrics from the counters and the state of the broker's parts.

    :param health: the broker's health, if the admin API also shows it.
    """

    def __init__(self, broker: MetricsDependencies, stalls: StallWatch, health: LocalHealth | None = None) -> None:
        self._broker = broker
        self._stalls = stalls
        self._health = health or LocalHealth(broker, stalls)

    async def families(self) -> AsyncIterator[Family | Histogram]:
        """Implements ``admin.resources.metrics.MetricsSource``."""
        reactor, detail = self._broker.runtime.reactor, Detail(self._broker.settings["kreplica.metrics.detail"])
        report = await self._health.report()
        for family in (*self._cluster(), *self._server(), *self._replication(report), _faults(report)):
            yield family
        for family in memory_families(self._broker):
            yield family
        async for each in controller_families(reactor, self._broker.controller, self._broker.metadata):
            yield each
        for each in (*process_families(), *self._plugins()):
            yield each
        for family in await directory_families(self._broker.runtime, self._broker.directories.directories):
            yield family
        yield await topic_family(reactor, self._broker.metadata.topics)
        async for family in partition_families(reactor, self._broker.partitions, detail):
            yield family
        async for family in group_families(reactor, self._broker.coordinators.lag, detail):
            yield family
        yield histogram(
            "kreplica_reactor_delay_seconds",
            "Delay of reactor timers.",
            [((), BOUNDS_S, self._stalls.counts, self._stalls.sum_s)],
        )
        for each in self._stall_families():
            yield each

    def _stall_families(self) -> Iterator[Family]:
        stalls = self._stalls
        name = "kreplica_reactor_stall"
        yield counter(f"{name}s", "Stalls of the event loop of at least kreplica.stall.log.ms.", stalls.stalls)
        yield counter(f"{name}_seconds", "Total duration of stalls.", stalls.stalled_s)
        yield gauge(f"{name}_longest_seconds", "Longest stall since startup.", stalls.longest_s)

    def _cluster(self) -> Iterator[Family]:
        metadata = self._broker.metadata
        yield gauge("kafka_brokers", "Live brokers in this broker's metadata.", len(metadata.brokers))
        watches = self._broker.client.watches_count
        yield gauge("kreplica_zookeeper_watches", "ZooKeeper watches of this broker's session.", watches)

    def _server(self) -> Iterator[Family | Histogram]:
        if self._broker.server is None:
            return
        metrics = self._broker.server.metrics
        apis = [(APIS[key].name, counters) for key, counters in sorted(metrics.apis.items())]
        yield by_api("requests", "Requests from clients and brokers.", ((n, c.requests) for n, c in apis))
        yield by_api("errors", "Requests whose errors closed the connection.", ((n, c.errors) for n, c in apis))
        yield by_api("requestbytes", "Bytes of requests.", ((n, c.bytes_in) for n, c in apis))
        yield by_api("responsebytes", "Bytes of responses.", ((n, c.bytes_out) for n, c in apis))
        times = ((name, counters.response_time_s * 1e3) for name, counters in apis)
        yield by_api("totaltimems", "Sum of the times from request to response, in milliseconds.", times)
        yield histogram(
            "kreplica_request_seconds",
            "Duration of Produce and Fetch requests, including waits.",
            [
                ((name,), counters.times.bounds, counters.times.counts, counters.times.sum)
                for name, counters in apis
                if counters.times is not None
            ],
            ("request",),
        )
        produce, fetch = (metrics.apis.get(api.key, _NO_REQUESTS) for api in (PRODUCE, FETCH))
        topics = "kafka_server_brokertopicmetrics"
        yield counter(f"{topics}_bytesin", "Bytes of produce requests.", produce.bytes_in)
        yield counter(f"{topics}_bytesout", "Bytes of fetch responses to consumers and followers.", fetch.bytes_out)
        yield counter(f"{topics}_totalproducerequests", "Produce requests.", produce.requests)
        yield counter(f"{topics}_totalfetchrequests", "Fetch requests.", fetch.requests)
        telemetry = self._broker.telemetry
        yield gauge("kreplica_telemetry_clients", "Clients that request subscriptions or push metrics.", len(telemetry))
        pushes = [Sample(("accepted",), telemetry.accepted), Sample(("rejected",), telemetry.rejected)]
        text = "Metrics that clients pushed (KIP-714), by result."
        yield Family("kreplica_telemetry_pushes", Kind.COUNTER, text, ("result",), pushes)
        yield from quota_families(self._broker.quotas)
        limits = self._broker.connection_limits.limits
        yield from connection_families(limits, self._broker.runtime.reactor.seconds())
        days = [Sample((each.listener,), each.days) for each in self._broker.certificates.watch.expiries]
        text = "Days until the first certificate in the chain of a listener expires; negative if it has expired."
        yield Family("kreplica_tls_certificate_expiry_days", Kind.GAUGE, text, ("listener",), days)
        yield from key_families(self._broker.bearer_tokens.sources)
        sockets = "kafka_server_socketservermetrics"
        yield gauge(f"{sockets}_connections", "Open connections.", metrics.connections)
        yield counter("kreplica_connections_accepted", "Accepted connections.", metrics.connections_accepted)
        yield counter("kreplica_connections_refused", "New connections closed at a limit.", metrics.connections_refused)
        yield counter(
            "kreplica_connections_idle_closed",
            "Connections closed because they were idle.",
            metrics.connections_idle_closed,
        )
        yield counter(
            "kreplica_connection_pauses",
            "Number of times that reading from a connection was paused at a limit.",
            metrics.pauses,
        )
        yield counter("kreplica_cold_reads", "Fetch responses that waited for the disk.", metrics.cold_reads)

    def _replication(self, report: LocalReport) -> Iterator[Family]:
        totals = report.totals
        name = "kafka_server_replicamanager"
        yield gauge(f"{name}_partitioncount", "Replicas on this broker.", totals.replicas)
        yield gauge(f"{name}_leadercount", "Partitions that this broker leads.", len(totals.ends))
        yield gauge(
            f"{name}_underreplicatedpartitions",
            "Under-replicated partitions that this broker leads.",
            len(totals.under_replicated),
        )
        yield gauge(
            f"{name}_underminisrpartitioncount",
            "Partitions led by this broker with too few in-sync replicas for acks=all.",
            len(totals.under_min_isr),
        )
        yield gauge(f"{name}_offlinereplicacount", "Replicas in a failed log directory.", totals.offline)
        writes = self._broker.replication.isr_writes
        yield counter(f"{name}_isrexpands", "Replicas that joined an ISR.", writes.expands)
        yield counter(f"{name}_isrshrinks", "Replicas that left an ISR.", writes.shrinks)
        yield counter(
            "kreplica_isr_write_conflicts", "ISR writes that failed because the state had changed.", writes.conflicts
        )

    def _plugins(self) -> Iterator[Family]:
        plugins = self._broker.plugins
        errors = [Sample((name,), float(count)) for name, count in plugins.errors().items()]
        yield Family("kreplica_plugin_errors", Kind.COUNTER, "Exceptions in a plugin.", ("plugin",), errors)
        rejections = plugins.permissions.rejections if plugins.permissions is not None else 0
        yield counter("kreplica_authorization_refusals", "Operations that the authorizer denied.", rejections)


def _faults(report: LocalReport) -> Family:
    samples = [Sample((kind,), float(count)) for kind, count in report.counts().items()]
    return Family("kreplica_faults", Kind.GAUGE, "Current faults of this broker, by kind.", ("kind",), samples)
