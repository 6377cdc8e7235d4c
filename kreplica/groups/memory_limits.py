"""Memory limits of consumer groups, by member, group, client address and broker.

Every change to a group updates its ``GroupAccount``, so that totals are known without a scan. Requests are checked
before anything changes; state loaded from the log is counted but never rejected.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from twisted.logger import Logger

from kreplica.coordination.memory_totals import MemoryTotals
from kreplica.errors import ErrorCode, KafkaError

log = Logger()

MEMBER_OVERHEAD_BYTES = 2048
"""Charged for each member in addition to its strings: objects, timer, index entries and a pending request."""

GROUP_OVERHEAD_BYTES = 2048
"""Charged for each group, with or without members."""

TEXT_OVERHEAD_BYTES = 64
"""Charged for each string or byte string in addition to its length."""

FULL = ErrorCode.GROUP_MAX_SIZE_REACHED

_GROUP_KEY = "\0group"
"""Key of the charge for the group itself; it cannot be a member id."""

_Holding = tuple[str, int]
"""Client address and bytes."""


@dataclass(frozen=True, slots=True)
class GroupBounds:
    """Memory limits in bytes.

    :param member_bytes_max: one member's protocols, metadata and subscriptions.
    :param group_bytes_max: all members of one group.
    :param address_bytes_max: all members, of any group, that joined from one client address.
    :param bytes_max: all members of all groups that this broker coordinates.
    """

    member_bytes_max: int = 2 * 2**20
    group_bytes_max: int = 64 * 2**20
    address_bytes_max: int = 128 * 2**20
    bytes_max: int = 512 * 2**20


class GroupMemory(MemoryTotals):
    """Group memory of one broker; owned by its coordinators and shared by all groups."""

    def __init__(self, bounds: GroupBounds | None = None) -> None:
        super().__init__()
        self.bounds = bounds or GroupBounds()


class GroupAccount:
    """Memory of one group; each member is charged under its own key until ``remove`` or ``close``."""

    __slots__ = ("_group_id", "_holdings", "_memory", "held_bytes")

    def __init__(self, memory: GroupMemory, group_id: str) -> None:
        self._memory = memory
        self._group_id = group_id
        self._holdings: dict[str, _Holding] = {}
        self.held_bytes = 0

    def open(self, address: str, *, is_rejectable: bool = True) -> None:
        """Charge for the group itself.

        :param address: address of the client that creates the group; empty for a loaded group.
        :raise KafkaError: as for ``check``, if ``is_rejectable``.
        """
        size = GROUP_OVERHEAD_BYTES + len(self._group_id)
        if is_rejectable:
            self.check(_GROUP_KEY, address, size)
        self.set(_GROUP_KEY, address, size)

    def check(self, key: str, address: str, size: int) -> None:
        """Raise an error if a member may not grow to this size; a member that does not grow is never rejected.

        :raise KafkaError: MESSAGE_TOO_LARGE if the member exceeds its limit; GROUP_MAX_SIZE_REACHED if the limit of
            the group, the client address or the broker is reached. Clients retry after neither error.
        """
        before_address, before = self._holdings.get(key, ("", 0))
        grown = size - before
        if grown <= 0:
            return
        memory, bounds = self._memory, self._memory.bounds
        at_address = memory.held_by(address) + (grown if before_address == address else size)
        for setting, total, total_max, code in (
            ("kreplica.group.member.bytes.max", size, bounds.member_bytes_max, ErrorCode.MESSAGE_TOO_LARGE),
            ("kreplica.group.bytes.max", self.held_bytes + grown, bounds.group_bytes_max, FULL),
            ("kreplica.group.address.bytes.max", at_address, bounds.address_bytes_max, FULL),
            ("kreplica.group.broker.bytes.max", memory.held_bytes + grown, bounds.bytes_max, FULL),
        ):
            if total > total_max:
                memory.rejected += 1
                log.warn(
                    "group {group!r}: rejecting a member from {address}: {total} bytes exceed {setting}={total_max}",
                    group=self._group_id[:100],
                    address=address,
                    total=total,
                    setting=setting,
                    total_max=total_max,
                )
                raise KafkaError(code, f"{total} bytes exceed {setting}={total_max}")

    def set(self, key: str, address: str, size: int) -> None:
        """Set the bytes charged for a member."""
        before_address, before = self._holdings.get(key, (address, 0))
        if before_address == address:
            self._memory.add(address, size - before)
        else:
            self._memory.add(before_address, -before)
            self._memory.add(address, size)
        self.held_bytes += size - before
        self._holdings[key] = (address, size)

    def remove(self, key: str) -> None:
        """Remove the charge for a member, if there is one."""
        holding = self._holdings.pop(key, None)
        if holding is not None:
            address, size = holding
            self.held_bytes -= size
            self._memory.add(address, -size)

    def rename(self, key: str, new_key: str) -> None:
        """Move the charge for a member to its new id."""
        holding = self._holdings.pop(key, None)
        if holding is not None:
            self._holdings[new_key] = holding

    def close(self) -> None:
        """Remove all charges for the group."""
        for key in list(self._holdings):
            self.remove(key)


def texts_size(texts: Iterable[str | bytes | None]) -> int:
    """Return the number of bytes charged for these strings."""
    return sum(len(text) + TEXT_OVERHEAD_BYTES for text in texts if text is not None)
