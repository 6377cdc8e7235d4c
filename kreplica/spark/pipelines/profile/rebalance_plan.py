"""Converts a profile to a request for a rebalance plan; no I/O."""

from __future__ import annotations

from math import ceil
from typing import Any

from kreplica.spark.pipelines.profile.report import PartitionStatistics, ProfileReport

BYTES, RATE = "bytes", "rate"
WEIGHTS = (BYTES, RATE)


def rebalance_request(report: ProfileReport, by: str) -> dict[str, Any]:
    """Return the body of ``POST /v1/plans`` (admin API) for a plan that balances the topics' replicas by weight.

    :param by: ``BYTES`` of the log, or ``RATE``, bytes per second between each topic's first and last timestamp.
    """
    weights = [
        {"topic": topic.topic, "partition": each.partition, "weight": weight}
        for topic in report.topics
        for each in topic.partitions
        if (weight := _weight(each, by))
    ]
    return {
        "kind": "rebalance",
        "topics": [topic.topic for topic in report.topics],
        **({"weights": weights} if weights else {}),
        "comment": f"Balances {'bytes' if by == BYTES else 'bytes per second'}, as measured by a profile of"
        f" {report.records:,} records.",
    }


def _weight(statistics: PartitionStatistics, by: str) -> int:
    return statistics.size_bytes if by == BYTES else ceil(statistics.bytes_per_second)
