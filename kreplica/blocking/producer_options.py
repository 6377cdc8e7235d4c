"""Options of the blocking producer."""

from __future__ import annotations

from dataclasses import dataclass

from kreplica.client_core.producer_options import CommonProducerOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions(CommonProducerOptions):
    """Options of a blocking producer; for the other options, see ``CommonProducerOptions``.

    :param two_phase: transactions have no timeout; after ``prepare``, a transaction stays open until it is ended
        explicitly (KIP-939).
    :param linger_s: time for which a batch waits for more records.  Call ``poll`` while idle, because batches are sent
        only during calls.
    :param memory_size_max: maximum total size of pending records; ``send`` blocks while it is exceeded.
    """

    two_phase: bool = False
    batch_size: int = 128 << 10
    linger_s: float = 0.02
    memory_size_max: int = 64 << 20
