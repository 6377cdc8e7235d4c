"""Options that are common to the producers of both clients."""

from __future__ import annotations

from dataclasses import dataclass

from kreplica.wire.compression import Codec

ACKS_ALL = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonProducerOptions:
    """Delivery guarantees and limits of a producer; times in seconds, sizes in bytes.

    :param acks: -1: a record is acknowledged when all in-sync replicas have stored it; 1: when the leader has appended
        it; 0: without waiting for a response.
    :param codec: compression of batches.
    :param idempotent: if True, retries write no duplicates; requires ``acks=-1``.  If False, a partition has only one
        batch in flight at a time, to preserve the order of records.  None means True if ``acks`` is -1.
    :param transactional_id: enables transactions; a newer producer with the same id aborts the open transaction.
    :param transaction_timeout_s: the coordinator aborts a transaction that is open for longer than this.
    :param batch_size: size of a batch before compression; a larger record is sent in its own batch.
    :param linger_s: time for which a batch waits for more records.
    :param memory_size_max: maximum total size of pending records.
    :param delivery_timeout_s: a record that is not written within this time fails.
    :raise ValueError: options contradict each other.
    """

    acks: int = ACKS_ALL
    codec: Codec = Codec.NONE
    idempotent: bool | None = None
    transactional_id: str | None = None
    transaction_timeout_s: float = 60.0
    batch_size: int
    linger_s: float
    memory_size_max: int
    delivery_timeout_s: float = 120.0

    def __post_init__(self) -> None:
        if self.acks not in (ACKS_ALL, 0, 1):
            raise ValueError(f"acks={self.acks}: expected -1 (all), 0 or 1")
        if self.acks != ACKS_ALL and (self.idempotent or self.transactional_id is not None):
            raise ValueError(f"acks={self.acks}: an idempotent or transactional producer requires acks=-1 (all)")
        if self.idempotent is False and self.transactional_id is not None:
            raise ValueError("a transactional producer is always idempotent")

    @property
    def is_idempotent(self) -> bool:
        """True if batches have sequence numbers."""
        return self.acks == ACKS_ALL if self.idempotent is None else self.idempotent
