"""Metrics of client quotas."""

from __future__ import annotations

from collections.abc import Iterator

from kreplica.interfaces import Family, Sample
from kreplica.interfaces import MetricKind as Kind
from kreplica.server.quotas.client_quotas import ClientQuotas


def quota_families(quotas: ClientQuotas) -> Iterator[Family]:
    """Yield how often and for how long clients were throttled, by quota."""
    counters = quotas.metrics.items()
    requests = [Sample((name,), each.throttled) for name, each in counters]
    seconds = [Sample((name,), each.throttled_s) for name, each in counters]
    yield _family("requests", "Requests of clients that had exceeded a quota.", requests)
    yield _family("seconds", "Sum of the throttle times of these requests.", seconds)


def _family(name: str, text: str, samples: list[Sample]) -> Family:
    return Family(f"kreplica_quota_throttled_{name}", Kind.COUNTER, text, ("quota",), samples)
