"""How a producer writes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from kreplica.client_core.partitioning import DefaultPartitioner, Partitioner
from kreplica.wire.compression import Codec

ACKS_ALL = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """How a producer writes; seconds and bytes.

    :param acks: -1: a record is written when all in-sync replicas have it; 1: when the leader has it; 0: when sent.
    :param codec: how batches are compressed.
    :param idempotent: retries write nothing twice; goes with ``acks=-1`` only.  None: yes, where it does.  Without, a
        partition has one batch under way at a time, which keeps the order, but not more than that.
    :param transactional_id: for transactions: who takes the same id over ends what this one left open.
    :param transaction_timeout_s: a transaction that lasts longer is aborted by its coordinator.
    :param batch_size: of a batch before compression; a larger record has a batch of its own.
    :param linger_s: so long a batch waits for more records.  In any case it waits while the one before it is under way,
        until it is full: where records come faster than answers, batches grow by themselves.
    :param request_size_max: of the batches in one request.  A record that is larger fails at once.
    :param memory_size_max: of records without an outcome; beyond it ``send`` takes no more.
    :param delivery_timeout_s: a record that is not written by then fails; one that is under way then waits for its
        answer, as long as ``ClientOptions.request_timeout_s`` allows.
    :param topic_timeout_s: records for a topic, or a partition, that is not there fail after so long.
    :param partitioner: is made with the producer, and given its randomness.
    :raise ValueError: what contradicts itself.
    """

    acks: int = ACKS_ALL
    codec: Codec = Codec.NONE
    idempotent: bool | None = None
    transactional_id: str | None = None
    transaction_timeout_s: float = 60.0
    batch_size: int = 64 << 10
    linger_s: float = 0.0
    request_size_max: int = 8 << 20
    memory_size_max: int = 32 << 20
    delivery_timeout_s: float = 120.0
    topic_timeout_s: float = 10.0
    partitioner: Callable[[Random], Partitioner] = DefaultPartitioner

    def __post_init__(self) -> None:
        if self.acks not in (ACKS_ALL, 0, 1):
            raise ValueError(f"acks={self.acks}: -1 (all), 0 or 1 is expected")
        if self.acks != ACKS_ALL and (self.idempotent or self.transactional_id is not None):
            raise ValueError(f"acks={self.acks}: what is idempotent or transactional needs acks=-1 (all)")
        if self.idempotent is False and self.transactional_id is not None:
            raise ValueError("transactions are idempotent always")
        if min(self.batch_size, self.request_size_max, self.memory_size_max) <= 0:
            raise ValueError("batch_size, request_size_max and memory_size_max are more than 0")
        if self.linger_s < 0 or min(self.delivery_timeout_s, self.topic_timeout_s, self.transaction_timeout_s) <= 0:
            raise ValueError("linger_s is not less than 0, and each of the time-outs is more than that")

    @property
    def is_idempotent(self) -> bool:
        """Whether batches are numbered."""
        return self.acks == ACKS_ALL if self.idempotent is None else self.idempotent
