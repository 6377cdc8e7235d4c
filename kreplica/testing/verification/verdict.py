"""Result of a verification run, as text and as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kreplica.testing.anomalies import AnomalyReport
from kreplica.testing.verification.options import ACKS_ALL


@dataclass(frozen=True, slots=True)
class RunSetup:
    """Cluster and topic of a run.

    :param brokers: number of brokers at the start.
    :param acks: ``acks`` setting of the producers.
    """

    brokers: int
    topic: str
    partitions: int
    replication_factor: int
    min_in_sync: int
    acks: int

    @property
    def acks_text(self) -> str:
        """Value of ``acks`` in Kafka's notation."""
        return "all" if self.acks == ACKS_ALL else str(self.acks)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of one run.

    :param load_s: time for which the producers wrote, in seconds.
    :param sent: number of records sent.
    :param read: number of records read by all readers.
    :param latency_ms: acknowledgement latencies ``p50``, ``p99`` and ``max``.
    :param longest_silence_s: longest time without an acknowledgement while records were unacknowledged.
    :param producer_restarts: number of times a broker had lost a producer's state.
    :param reader_restarts: number of times a log ended before a reader's position.
    :param errors: number of retried client errors by name.
    :param settled: True if all sent records were acknowledged in the end, and each reader has read all acknowledged
        records.
    :param deletion_error: reason why the topic was not deleted; empty if it was deleted or kept on request.
    """

    setup: RunSetup
    load_s: float
    sent: int
    acknowledged: int
    acknowledged_bytes: int
    read: int
    latency_ms: dict[str, float]
    longest_silence_s: float
    producer_restarts: int
    reader_restarts: int
    errors: dict[str, int]
    settled: bool
    report: AnomalyReport
    deletion_error: str = ""

    @property
    def clean(self) -> bool:
        """True if the run has settled and no guarantee was violated."""
        return self.settled and not self.report.errors

    @property
    def records_per_s(self) -> float:
        return self.acknowledged / self.load_s if self.load_s else 0.0

    def as_json(self) -> dict[str, Any]:
        """Return the result for JSON; anomalies come with a few examples of each kind, as lines of text."""
        anomalies = [
            {
                "kind": row.kind.value,
                "count": row.count,
                "error": row.is_error,
                "examples": [str(anomaly).strip() for anomaly in self.report.examples[row.kind]],
            }
            for row in self.report.rows
        ]
        return {
            "clean": self.clean,
            "settled": self.settled,
            "topic": self.setup.topic,
            "brokers": self.setup.brokers,
            "partitions": self.setup.partitions,
            "replication_factor": self.setup.replication_factor,
            "min_insync_replicas": self.setup.min_in_sync,
            "acks": self.setup.acks_text,
            "load_seconds": round(self.load_s, 3),
            "records_sent": self.sent,
            "records_acknowledged": self.acknowledged,
            "bytes_acknowledged": self.acknowledged_bytes,
            "records_read": self.read,
            "records_per_second": round(self.records_per_s, 1),
            "latency_ms": {name: round(value, 3) for name, value in self.latency_ms.items()},
            "longest_silence_seconds": round(self.longest_silence_s, 3),
            "producer_restarts": self.producer_restarts,
            "reader_restarts": self.reader_restarts,
            "client_errors": self.errors,
            "anomalies": anomalies,
            "not_removed": self.deletion_error,
        }
