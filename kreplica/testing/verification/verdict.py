"""What came of a run, for people and for programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kreplica.testing.anomalies import AnomalyReport
from kreplica.testing.verification.options import ACKS_ALL


@dataclass(frozen=True, slots=True)
class Scene:
    """Where a run happened.

    :param brokers: how many there were at the start.
    :param acks: that producers asked for.
    """

    brokers: int
    topic: str
    partitions: int
    replication_factor: int
    min_in_sync: int
    acks: int

    @property
    def acks_text(self) -> str:
        """As Kafka's own settings have it."""
        return "all" if self.acks == ACKS_ALL else str(self.acks)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of one run.

    :param load_s: for how long producers wrote.
    :param sent: records.
    :param read: records, all readers together.
    :param latency_ms: of acknowledgements, ``p50``, ``p99`` and ``max``.
    :param longest_silence_s: in which something was to be acknowledged, and nothing was.
    :param producer_restarts: how often a broker did not know what a producer had written before.
    :param reader_restarts: how often a log ended before a reader's position.
    :param errors: that clients met and tried to overcome, by name.
    :param settled: whether all that was sent was acknowledged in the end, and all of that read by every reader.
    :param not_removed: why the topic is still there; empty where it is gone, or was to stay.
    """

    scene: Scene
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
    not_removed: str = ""

    @property
    def clean(self) -> bool:
        """Whether the cluster did what the settings promise, and came back."""
        return self.settled and not self.report.errors

    @property
    def records_per_s(self) -> float:
        """Acknowledged, over the time of writing."""
        return self.acknowledged / self.load_s if self.load_s else 0.0

    def as_json(self) -> dict[str, Any]:
        """For programs; the anomalies with a few examples of each kind, as lines of text."""
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
            "topic": self.scene.topic,
            "brokers": self.scene.brokers,
            "partitions": self.scene.partitions,
            "replication_factor": self.scene.replication_factor,
            "min_insync_replicas": self.scene.min_in_sync,
            "acks": self.scene.acks_text,
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
            "not_removed": self.not_removed,
        }
