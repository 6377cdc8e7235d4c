"""Memory in bytes that a coordinator uses for clients, in total and by client address."""

from __future__ import annotations


class MemoryTotals:
    """Memory totals of one coordinator.

    :ivar held_bytes: total for all clients.
    :ivar rejected: number of requests rejected because of a memory limit since the broker started.
    """

    def __init__(self) -> None:
        self.held_bytes = 0
        self.rejected = 0
        self._by_address: dict[str, int] = {}

    def held_by(self, address: str) -> int:
        """Return the bytes charged to one client address."""
        return self._by_address.get(address, 0)

    def add(self, address: str, size: int) -> None:
        """Add to the bytes charged to an address; the size may be negative."""
        self.held_bytes += size
        total = self._by_address.get(address, 0) + size
        if total:
            self._by_address[address] = total
        else:
            self._by_address.pop(address, None)
