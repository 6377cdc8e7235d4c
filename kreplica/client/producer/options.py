"""Options of the Twisted producer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from kreplica.client_core.partitioning import DefaultPartitioner, Partitioner
from kreplica.client_core.producer_options import CommonProducerOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions(CommonProducerOptions):
    """Options of a producer; times in seconds, sizes in bytes.

    :param acks: -1: a record is acknowledged when all in-sync replicas have stored it; 1: when the leader has appended
        it; 0: without waiting for a response.
    :param codec: compression of batches.
    :param idempotent: if True, retries write no duplicates; requires ``acks=-1``.  If False, a partition has only one
        batch in flight at a time, to preserve the order of records.  None means True if ``acks`` is -1.
    :param transactional_id: enables transactions; a newer producer with the same id aborts the open transaction.
    :param transaction_timeout_s: the coordinator aborts a transaction that is open for longer than this.
    :param batch_size: size of a batch before compression; a larger record is sent in its own batch.
    :param linger_s: time for which a batch waits for more records.  A batch that is not full also waits while the
        previous batch of its partition is in flight, so that batches grow when records arrive faster than responses.
    :param request_size_max: maximum size of all batches in one request; a larger record fails immediately.
    :param memory_size_max: maximum size of all pending records; beyond it, ``send`` fails with ``BufferFull``.
    :param delivery_timeout_s: a record that is not written within this time fails; a record in flight still waits for
        its response, for at most ``ClientOptions.request_timeout_s``.
    :param topic_timeout_s: records for a nonexistent topic or partition fail after this time.
    :param partitioner: called with the client's random generator when the producer is created.
    :raise ValueError: options contradict each other.
    """

    batch_size: int = 64 << 10
    linger_s: float = 0.0
    request_size_max: int = 8 << 20
    memory_size_max: int = 32 << 20
    topic_timeout_s: float = 10.0
    partitioner: Callable[[Random], Partitioner] = DefaultPartitioner

    def __post_init__(self) -> None:
        CommonProducerOptions.__post_init__(self)
        if min(self.batch_size, self.request_size_max, self.memory_size_max) <= 0:
            raise ValueError("batch_size, request_size_max and memory_size_max must be greater than 0")
        if self.linger_s < 0 or min(self.delivery_timeout_s, self.topic_timeout_s, self.transaction_timeout_s) <= 0:
            raise ValueError("linger_s must not be negative; delivery, topic and transaction timeouts must be positive")
