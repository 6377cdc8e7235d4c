"""What a verification is to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kreplica.testing.clients.idempotent_producer import Load
from kreplica.wire.batches import HEADER_SIZE

ACKS_ALL = -1
ANSWER_TIMEOUT_S = 5.0
"""How long a client waits for a broker, before it looks for another: a broker that stands still is soon left."""

RECORD_OVERHEAD = 40
"""Bytes of a record besides its filling, at most: its lengths, its timestamp, its number."""

MESSAGE_SIZE_MAX = 1_048_588
"""Bytes of a batch that brokers take by default."""

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class VerificationOptions:
    """One run.

    :param bootstrap: brokers that are asked first, one after the other.
    :param topic: a name that no topic has; empty for one with a random suffix.
    :param keep: whether the topic stays at the end.
    :param replication_factor: None for 3, or as many as there are brokers.
    :param min_in_sync: ``min.insync.replicas`` of the topic; None for one less than replicas, and at least 1.
    :param configs: more settings of the topic, over those that a run chooses.
    :param acks: -1 or 1.
    :param producers: of each partition.
    :param records_per_s: of all producers together.
    :param batch_records: of one batch, on average.
    :param value_size_max: bytes.
    :param seconds: how long producers write.
    :param settle_s: how long it may take, after that, until anything further is acknowledged or read.
    """

    bootstrap: Sequence[Address]
    topic: str = ""
    keep: bool = False
    partitions: int = 3
    replication_factor: int | None = None
    min_in_sync: int | None = None
    configs: dict[str, str] = field(default_factory=dict)
    acks: int = ACKS_ALL
    producers: int = 1
    records_per_s: float = 500.0
    batch_records: int = 5
    value_size_max: int = 200
    seconds: float = 30.0
    settle_s: float = 60.0

    @property
    def batch_size_max(self) -> int:
        """Bytes of the largest batch that may come about."""
        return self._records_max * (self.value_size_max + RECORD_OVERHEAD) + HEADER_SIZE

    @property
    def message_size_max(self) -> int:
        """Bytes of the largest batch that the topic takes."""
        return int(self.configs.get("max.message.bytes", MESSAGE_SIZE_MAX))

    @property
    def _records_max(self) -> int:
        return 2 * self.batch_records - 1

    def load(self, topic: str, partition: int) -> Load:
        """What each producer of a partition writes."""
        batches_per_s = self.records_per_s / self.batch_records / self.partitions / self.producers
        return Load(
            topic,
            [partition],
            self.acks,
            interval_s=1 / batches_per_s,
            records_max=self._records_max,
            value_size_max=self.value_size_max,
            answer_timeout_s=ANSWER_TIMEOUT_S,
        )
