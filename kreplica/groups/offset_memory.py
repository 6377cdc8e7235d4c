"""Memory limits of committed offsets, by group, client address and broker.

Commits are checked before anything changes; offsets loaded from the log are counted but never rejected.  A commit that
only replaces offsets, and so does not use more memory, is never rejected: consumers can continue when a limit is
reached.
"""

from __future__ import annotations

from dataclasses import dataclass

from twisted.logger import Logger

from kreplica.coordination.memory_totals import MemoryTotals
from kreplica.errors import ErrorCode, KafkaError

log = Logger()

OFFSET_BYTES = 150
"""Charged for each committed offset in addition to its encoded value."""

PENDING_BYTES = 700
"""Charged for each offset of an open transaction in addition to its encoded value."""

TRANSACTIONS_SHARE = 4
"""Offsets of open transactions may exceed each limit by the limit divided by this number. Otherwise, transactions that
replace offsets would fail when a limit is reached."""


@dataclass(frozen=True, slots=True)
class OffsetBounds:
    """Memory limits in bytes.

    :param group_bytes_max: all offsets of one group.
    :param address_bytes_max: offsets of all groups whose first commit came from one client address.
    :param bytes_max: offsets of all groups that this broker coordinates.
    """

    group_bytes_max: int = 128 * 2**20
    address_bytes_max: int = 512 * 2**20
    bytes_max: int = 1024 * 2**20


class OffsetMemory(MemoryTotals):
    """Offset memory of one broker; shared by the offsets of all its shards."""

    def __init__(self, bounds: OffsetBounds | None = None) -> None:
        super().__init__()
        self.bounds = bounds or OffsetBounds()


class _Account:
    """Memory of one group's offsets.

    :ivar address: address of the first client that committed; empty if the offsets were loaded from the log.
    """

    __slots__ = ("address", "size")

    def __init__(self, address: str) -> None:
        self.address = address
        self.size = 0


class OffsetAccounts:
    """Memory of the offsets of all groups of one shard."""

    def __init__(self, memory: OffsetMemory) -> None:
        self._memory = memory
        self._groups: dict[str, _Account] = {}
        self._is_closed = False

    def add(self, group_id: str, size: int) -> None:
        """Add to the number of bytes charged for a group; ``size`` may be negative."""
        if not size or self._is_closed:
            return
        account = self._groups.get(group_id)
        if account is None:
            account = self._groups[group_id] = _Account("")
        account.size += size
        self._memory.add(account.address, size)
        if not account.size:
            del self._groups[group_id]

    def reserve(self, group_id: str, address: str, size: int) -> None:
        """Charge for a commit that is being appended; assign the address to a group that has none."""
        if self._is_closed:
            return
        account = self._groups.get(group_id)
        if account is None:
            account = self._groups[group_id] = _Account(address)
        elif not account.address:
            self._memory.add("", -account.size)
            self._memory.add(address, account.size)
            account.address = address
        self.add(group_id, size)

    def check(self, group_id: str, address: str, growth: int, code: ErrorCode, *, is_pending: bool = False) -> None:
        """Raise an error if a group's offsets may not grow.

        :param is_pending: True if the memory is released when an open transaction ends.
        :raise KafkaError: error ``code``, if the limit of the group, the client address or the broker is reached.
        """
        if growth <= 0:
            return
        memory, bounds = self._memory, self._memory.bounds
        account = self._groups.get(group_id)
        size = growth
        if account is not None:
            size += account.size
            address = account.address or address
        at_address = memory.held_by(address) + growth
        for setting, total, total_max in (
            ("kreplica.offsets.group.bytes.max", size, bounds.group_bytes_max),
            ("kreplica.offsets.address.bytes.max", at_address, bounds.address_bytes_max),
            ("kreplica.offsets.broker.bytes.max", memory.held_bytes + growth, bounds.bytes_max),
        ):
            if total > total_max + (total_max // TRANSACTIONS_SHARE if is_pending else 0):
                memory.rejected += 1
                log.warn(
                    "group {group!r}: rejecting offsets from {address}: {total} bytes exceed {setting}={total_max}",
                    group=group_id[:100],
                    address=address,
                    total=total,
                    setting=setting,
                    total_max=total_max,
                )
                raise KafkaError(code, f"{total} bytes exceed {setting}={total_max}")

    def close(self) -> None:
        """Remove all charges for the shard."""
        self._is_closed = True
        for account in self._groups.values():
            self._memory.add(account.address, -account.size)
        self._groups = {}
