"""Options of a verification run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kreplica.testing.clients.idempotent_producer import Load
from kreplica.wire.batches import HEADER_SIZE

ACKS_ALL = -1
REQUEST_TIMEOUT_S = 5.0
"""Request timeout in seconds, short so that a client leaves a broker that hangs."""

RECORD_OVERHEAD = 40
"""Maximum size of a record without its payload: lengths, timestamp and number."""

MESSAGE_SIZE_MAX = 1_048_588
"""Default of ``max.message.bytes``."""

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class VerificationOptions:
    """Options of one run.

    :param bootstrap: bootstrap servers, tried in order.
    :param topic: name of the topic to create; empty for a name with a random suffix.
    :param keep: keep the topic after the run.
    :param replication_factor: None means 3, or the number of brokers if there are fewer.
    :param min_in_sync: ``min.insync.replicas`` of the topic; None means one less than the replication
        factor, but at least 1.
    :param configs: additional topic settings, which override those of the run.
    :param acks: -1 or 1.
    :param producers: number of producers per partition.
    :param records_per_s: total rate of all producers.
    :param batch_records: average number of records per batch.
    :param value_size_max: maximum size of a record's value in bytes.
    :param seconds: time for which the producers write.
    :param settle_s: maximum time without a new acknowledgement or read after the producers have stopped writing.
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
        """Maximum size in bytes of a batch that the producers send."""
        return self._records_max * (self.value_size_max + RECORD_OVERHEAD) + HEADER_SIZE

    @property
    def message_size_max(self) -> int:
        """Maximum size in bytes of a batch that the topic accepts."""
        return int(self.configs.get("max.message.bytes", MESSAGE_SIZE_MAX))

    @property
    def _records_max(self) -> int:
        return 2 * self.batch_records - 1

    def load(self, topic: str, partition: int) -> Load:
        batches_per_s = self.records_per_s / self.batch_records / self.partitions / self.producers
        return Load(
            topic,
            [partition],
            self.acks,
            interval_s=1 / batches_per_s,
            records_max=self._records_max,
            value_size_max=self.value_size_max,
            request_timeout_s=REQUEST_TIMEOUT_S,
        )
