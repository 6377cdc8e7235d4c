"""Metrics of client quotas and connection limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kreplica.cluster.quotas import CONNECTION_CREATION_RATE
from kreplica.interfaces import Family, Sample
from kreplica.interfaces import MetricKind as Kind
from kreplica.server.quotas.client_quotas import ClientQuotas
from kreplica.server.quotas.connection_limits import ConnectionLimits, ListenerCounters
from kreplica.service.metrics.metric_families import counter


def quota_families(quotas: ClientQuotas) -> Iterator[Family]:
    """Yield, by quota, how often and how long clients were throttled, and how much of it they used."""
    counters = quotas.metrics.items()
    requests = [Sample((name,), each.throttled) for name, each in counters]
    seconds = [Sample((name,), each.throttled_s) for name, each in counters]
    used = [Sample((name,), each.used) for name, each in counters]
    names = (*quotas.metrics, CONNECTION_CREATION_RATE)
    throttled = [Sample((name,), quotas.throttled.count_now(name)) for name in names]
    yield _family("throttled_requests", "Requests from clients that had exceeded a quota.", requests)
    yield _family("throttled_seconds", "Total throttle time of clients that had exceeded a quota.", seconds)
    yield _family("used", "Usage by clients with the quota, in bytes, percent times seconds, or partitions.", used)
    text = "Clients that are being throttled; addresses for connection_creation_rate."
    yield _family("throttled_clients", text, throttled, Kind.GAUGE)


def connection_families(limits: ConnectionLimits, now_s: float) -> Iterator[Family]:
    """Yield the number of connections, their creation rates and the effects of limits, by listener.

    :param now_s: the reactor's time.
    """
    listeners = sorted(limits.listeners.items())

    def family(name: str, text: str, value: Callable[[ListenerCounters], float], kind: Kind = Kind.COUNTER) -> Family:
        samples = [Sample((listener,), float(value(counters))) for listener, counters in listeners]
        return Family(f"kreplica_{name}", kind, text, ("listener",), samples)

    yield family("listener_connections", "Open connections of a listener.", lambda each: each.open, Kind.GAUGE)
    yield family(
        "connection_creation_rate",
        "New connections of a listener per second, over quota.window.num windows.",
        lambda each: each.rate.rate(now_s),
        Kind.GAUGE,
    )
    yield family(
        "connection_accept_delays",
        "Number of times that a listener stopped accepting because of max.connection.creation.rate.",
        lambda each: each.delays,
    )
    yield family(
        "connection_accept_delay_seconds",
        "Total time during which a listener stopped accepting because of max.connection.creation.rate.",
        lambda each: each.delayed_s,
    )
    yield family(
        "connections_held",
        "Connections that were not served because of their address's quota connection_creation_rate.",
        lambda each: each.held,
    )
    yield counter(
        "kreplica_connections_excess_closed",
        "Connections closed because connections of other brokers took their slots (max.connections).",
        limits.excess_closed,
    )


def _family(name: str, text: str, samples: list[Sample], kind: Kind = Kind.COUNTER) -> Family:
    return Family(f"kreplica_quota_{name}", kind, text, ("quota",), samples)
