"""Limits on the memory used by transactional ids, per client address and broker.

Requests are checked before anything changes; ids loaded from the log are counted but never rejected. They are not
charged to any address until their producer starts again.
"""

from __future__ import annotations

from dataclasses import dataclass

from twisted.logger import Logger

from kreplica.coordination.memory_totals import MemoryTotals
from kreplica.transactions.states import Transaction

log = Logger()

ID_BYTES = 1000
"""Bytes charged per transactional id, in addition to its length."""

PARTITION_BYTES = 150
"""Bytes charged per partition of a transaction."""


@dataclass(frozen=True, slots=True)
class TransactionBounds:
    """Memory limits in bytes.

    :param address_bytes_max: limit for all transactional ids whose producers started from one client address.
    :param bytes_max: limit for all transactional ids that this broker coordinates.
    """

    address_bytes_max: int = 128 * 2**20
    bytes_max: int = 512 * 2**20


class TransactionMemory(MemoryTotals):
    """Memory used by the transactional ids of one broker; owned by its coordinator and shared by all shards."""

    def __init__(self, bounds: TransactionBounds) -> None:
        super().__init__()
        self.bounds = bounds

    def has_room(self, address: str, growth: int) -> bool:
        """Return True if an address may occupy more bytes; otherwise the rejection is counted and logged.

        :param address: empty for a transactional id that was loaded from the log.
        """
        if growth <= 0:
            return True
        at_address = self._by_address.get(address, 0) + growth if address else 0
        for setting, total, total_max in (
            ("kreplica.transactional.id.address.bytes.max", at_address, self.bounds.address_bytes_max),
            ("kreplica.transactional.id.broker.bytes.max", self.held_bytes + growth, self.bounds.bytes_max),
        ):
            if total > total_max:
                self.rejected += 1
                log.warn(
                    "rejecting a transactional producer from {address}: {total} bytes exceed {setting}={total_max}",
                    address=address or "an unknown address",
                    total=total,
                    setting=setting,
                    total_max=total_max,
                )
                return False
        return True


class ShardMemory:
    """Memory used by the transactional ids of one shard."""

    def __init__(self, memory: TransactionMemory) -> None:
        self._memory = memory
        self._by_address: dict[str, int] = {}
        self._is_closed = False

    def add(self, address: str, size: int) -> None:
        """Add to the bytes charged to an address; the size may be negative."""
        if size and not self._is_closed:
            self._by_address[address] = self._by_address.get(address, 0) + size
            self._memory.add(address, size)

    def has_room(self, address: str, growth: int) -> bool:
        """See ``TransactionMemory.has_room``."""
        return self._memory.has_room(address, growth)

    def close(self) -> None:
        """Remove all charges of the shard."""
        self._is_closed = True
        for address, size in self._by_address.items():
            self._memory.add(address, -size)


def size_of_id(transactional_id: str) -> int:
    """Return the bytes charged for a transactional id without a transaction."""
    return ID_BYTES + len(transactional_id)


def size_of(transaction: Transaction) -> int:
    """Return the bytes charged for a transactional id and its transaction."""
    return size_of_id(transaction.transactional_id) + PARTITION_BYTES * len(transaction.partitions)
