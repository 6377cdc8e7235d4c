"""Settings of the transaction coordinator."""

from __future__ import annotations

from dataclasses import dataclass, field

from kreplica.transactions.memory_limits import TransactionBounds


@dataclass(frozen=True, slots=True)
class TransactionsConfig:
    """Settings for transactions; times are in milliseconds.

    :param timeout_ms_max: maximum transaction timeout (``transaction.max.timeout.ms``).
    :param is_two_phase_enabled: allow transactions that do not time out (``transaction.two.phase.commit.enable``).
    """

    timeout_ms_max: int = 900_000
    abort_interval_ms: int = 10_000
    expiration_ms: int = 604_800_000
    expiration_interval_ms: int = 3_600_000
    is_two_phase_enabled: bool = False
    memory: TransactionBounds = field(default_factory=TransactionBounds)
