"""Quota on the number and total size of znodes, with a reserve for brokers.

ZooKeeper's own quotas (``/zookeeper/quota``) are per path and opt-in; this one applies to the whole tree.  Deletions
and writes that do not grow the tree are never rejected.
"""

from __future__ import annotations

from dataclasses import dataclass

from kreplica.zookeeper.embedded.znode import Znode
from kreplica.zookeeper.errors import QuotaExceeded
from kreplica.zookeeper.records import OPEN_ACL, Acl

ZNODE_OVERHEAD_BYTES = 500
"""Number of bytes counted for each znode in addition to its path, data and ACL."""

ACL_OVERHEAD_BYTES = 200
"""Number of bytes counted for each entry of an ACL other than ``OPEN_ACL``, in addition to its scheme and ID."""

REGISTRATIONS = "/brokers/ids/"
"""Parent of the brokers' ephemeral znodes, under any chroot; a session with a znode below it belongs to a broker."""

REGISTRATION_BYTES_MAX = 64 * 1024


@dataclass(frozen=True, slots=True)
class QuotaBounds:
    """Limits of one tree.

    :param bytes_max: maximum size of all znodes.
    :param count_max: maximum number of znodes.
    :param session_ephemerals_max: maximum number of ephemeral znodes of one session.
    :param reserve: fraction of both limits that only brokers may use, for example 0.2.
    """

    bytes_max: int = 384 * 2**20
    count_max: int = 1_000_000
    session_ephemerals_max: int = 50_000
    reserve: float = 0.2


class Quota:
    """Size and number of the znodes of one tree, checked against its limits.

    :ivar held_bytes: size of all znodes.
    :ivar count: number of znodes.
    :ivar rejected: number of writes rejected since the start.
    """

    def __init__(self, bounds: QuotaBounds) -> None:
        self.bounds = bounds
        self.held_bytes = 0
        self.count = 0
        self.rejected = 0
        self._bytes_open = round(bounds.bytes_max * (1 - bounds.reserve))
        self._count_open = round(bounds.count_max * (1 - bounds.reserve))

    def add(self, node: Znode) -> None:
        """Count a znode."""
        self.count += 1
        self.held_bytes += size_of(node)

    def remove(self, node: Znode) -> None:
        """Stop counting a znode."""
        self.count -= 1
        self.held_bytes -= size_of(node)

    def needs_reserve(self, growth: int, nodes: int) -> bool:
        """Return True if a write needs the reserve and therefore may only be made by a broker."""
        return self.held_bytes + growth > self._bytes_open or self.count + nodes > self._count_open

    def check(self, path: str, growth: int, nodes: int, *, is_broker: bool) -> None:
        """Raise an error if a write would exceed the quota.

        :param growth: number of bytes that the write adds.
        :param nodes: number of znodes that the write adds; a write that adds no znodes and no bytes is always allowed.
        :param is_broker: the writer is a broker, which may use the reserve.
        :raise QuotaExceeded: the write would exceed the quota.
        """
        if growth <= 0 and not nodes:
            return
        bounds = self.bounds
        if is_broker:
            fits = self.held_bytes + growth <= bounds.bytes_max and self.count + nodes <= bounds.count_max
        else:
            fits = not self.needs_reserve(growth, nodes)
        if not fits:
            self.rejected += 1
            raise QuotaExceeded(path, f"the quota is exhausted: {self.count} znodes hold {self.held_bytes} bytes")

    def check_ephemerals(self, path: str, count: int) -> None:
        """Raise an error if a session that has ``count`` ephemeral znodes must not create another one.

        :raise QuotaExceeded: the session already has the maximum number.
        """
        if count >= self.bounds.session_ephemerals_max:
            self.rejected += 1
            raise QuotaExceeded(path, f"the session already has {count} ephemeral znodes, the maximum")


def size_of(node: Znode) -> int:
    """Return the number of bytes that are counted for a znode."""
    return ZNODE_OVERHEAD_BYTES + 2 * len(node.path) + data_size(node.data) + acl_size(node.acl)


def data_size(data: bytes | None) -> int:
    """Return the number of bytes of a znode's data."""
    return len(data) if data else 0


def acl_size(acl: tuple[Acl, ...]) -> int:
    """Return the number of bytes that are counted for an ACL."""
    return 0 if acl is OPEN_ACL else sum(ACL_OVERHEAD_BYTES + len(each.scheme) + len(each.id) for each in acl)
