"""How a producer writes."""

from __future__ import annotations

from dataclasses import dataclass

from kreplica.wire.compression import Codec

ACKS_ALL = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """How a producer writes.

    :param acks: -1: a record is written when all in-sync replicas have it; 1: when the leader has it; 0: when sent.
    :param idempotent: retries write nothing twice; goes with ``acks=-1`` only.  None: yes, where it does.
    :param transactional_id: for transactions: who takes the same id over ends what this one left open.
    :param transaction_timeout_s: a transaction that lasts longer is aborted.
    :param two_phase: none is ever aborted for that: who ``prepare``s it says how it ends (KIP-939).
    :param batch_size: bytes of a batch before compression; a larger record has a batch of its own.
    :param linger_s: so long a batch waits for more records.  Nothing happens between calls: ``poll`` where you idle.
    :param memory_size_max: bytes of records without an outcome; beyond it ``send`` waits.
    :param delivery_timeout_s: a record that is not written by then fails.
    """

    acks: int = ACKS_ALL
    codec: Codec = Codec.NONE
    idempotent: bool | None = None
    transactional_id: str | None = None
    transaction_timeout_s: float = 60.0
    two_phase: bool = False
    batch_size: int = 128 << 10
    linger_s: float = 0.02
    memory_size_max: int = 64 << 20
    delivery_timeout_s: float = 120.0

    def __post_init__(self) -> None:
        if self.acks not in (ACKS_ALL, 0, 1):
            raise ValueError(f"acks={self.acks}: -1 (all), 0 or 1 is expected")
        if self.acks != ACKS_ALL and (self.idempotent or self.transactional_id is not None):
            raise ValueError(f"acks={self.acks}: what is idempotent or transactional needs acks=-1 (all)")
        if self.idempotent is False and self.transactional_id is not None:
            raise ValueError("transactions are idempotent always")

    @property
    def is_idempotent(self) -> bool:
        """Whether batches are numbered."""
        return self.acks == ACKS_ALL if self.idempotent is None else self.idempotent
