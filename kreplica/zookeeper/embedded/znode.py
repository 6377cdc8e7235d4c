"""One znode with its stat, and the validation of paths, without I/O."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache
from typing import NamedTuple

from kreplica.zookeeper.errors import BadArguments, NoNode
from kreplica.zookeeper.records import OPEN_ACL, STAT, Acl, Stat

# Values of ``owner`` that are not session IDs: that of containers, and the base to which a time to live is added.
CONTAINER_OWNER = -(1 << 63)
TTL_OWNER_BASE = -(1 << 56)
TTL_MS_MAX = (1 << 40) - 1

ROOT = "/"
RESERVED_PATHS = ("/zookeeper", "/zookeeper/config", "/zookeeper/quota")

# One component of a path: not "." or "..", without a slash and without the characters that ZooKeeper rejects.
is_valid_name = re.compile(
    r"(?!\.{1,2}$)[^/\x00-\x1e\x80-\x9e\ud801-\uf8fe\ufff1-\ufffe\U00010000-\U0010ffff]+"
).fullmatch


class ZnodeRow(NamedTuple):
    """The durable state of a znode.

    :param acl: None for ``OPEN_ACL``, which nearly all znodes have.
    :param owner: a session ID, ``CONTAINER_OWNER``, ``TTL_OWNER_BASE`` plus the time to live in milliseconds, or 0.
    """

    path: str
    data: bytes | None
    acl: tuple[Acl, ...] | None
    czxid: int
    mzxid: int
    pzxid: int
    ctime_ms: int
    mtime_ms: int
    version: int
    creates: int
    acl_version: int
    owner: int


class Znode:
    """One znode.

    :ivar creates: number of children ever created; also the next sequence number.
    :ivar children: names of the children in order of creation: a tuple for one child, else a dictionary; None if no
        child was ever created.
    """

    __slots__ = (
        "acl",
        "acl_version",
        "children",
        "creates",
        "ctime_ms",
        "czxid",
        "data",
        "mtime_ms",
        "mzxid",
        "owner",
        "path",
        "pzxid",
        "version",
    )

    def __init__(
        self, path: str, data: bytes | None, acl: tuple[Acl, ...], owner: int, zxid: int, time_ms: int
    ) -> None:
        self.path = path
        self.data = data
        self.acl = acl
        self.owner = owner
        self.czxid = self.mzxid = self.pzxid = zxid
        self.ctime_ms = self.mtime_ms = time_ms
        self.version = self.creates = self.acl_version = 0
        self.children: Collection[str] | None = None

    def add_child(self, name: str) -> None:
        """Add the name of a child; does nothing if it is known."""
        children = self.children
        if not children:
            self.children = _only_child(name)
        elif isinstance(children, dict):
            children[name] = None
        elif name not in children:
            self.children = dict.fromkeys((*children, name))

    def remove_child(self, name: str) -> None:
        """Remove the name of a child."""
        children = self.children
        if isinstance(children, dict):
            del children[name]
        else:
            self.children = ()

    def _stat_fields(self) -> tuple[int, ...]:
        data, children = self.data, self.children
        count = len(children) if children else 0
        return (
            self.czxid,
            self.mzxid,
            self.ctime_ms,
            self.mtime_ms,
            self.version,
            int32(self.creates * 2 - count),
            self.acl_version,
            self.owner,
            len(data) if data else 0,
            count,
            self.pzxid,
        )

    def stat(self) -> Stat:
        """Return the stat."""
        return Stat._make(self._stat_fields())

    def pack_stat(self) -> bytes:
        """Return the encoded stat."""
        return STAT.pack(*self._stat_fields())

    def row(self) -> ZnodeRow:
        """Return the durable state."""
        return ZnodeRow(
            self.path,
            self.data,
            None if self.acl is OPEN_ACL else self.acl,
            self.czxid,
            self.mzxid,
            self.pzxid,
            self.ctime_ms,
            self.mtime_ms,
            self.version,
            self.creates,
            self.acl_version,
            self.owner,
        )


@lru_cache(maxsize=16)
def _only_child(name: str) -> tuple[str]:
    """Return a tuple with one name; the znodes of all partitions share the one with ``state``."""
    return (name,)


def parent_of(path: str) -> str:
    """Return the parent path; the root is its own parent."""
    return path[: path.rfind("/")] or ROOT


def is_valid_path(path: str) -> bool:
    """Return True if the path is a valid znode path."""
    return path == ROOT or (path.startswith("/") and all(map(is_valid_name, path[1:].split("/"))))


def missing_error(path: str) -> NoNode | BadArguments:
    """Return the error for a missing znode: ``BadArguments`` if the path is invalid, otherwise ``NoNode``."""
    return NoNode(path) if is_valid_path(path) else BadArguments(path)


def is_expired(node: Znode, now_ms: int) -> bool:
    """Return True if an expendable znode may be deleted: it is an emptied container, or its time to live has passed."""
    if node.children:
        return False
    if node.owner == CONTAINER_OWNER:
        return node.creates > 0
    return now_ms - node.mtime_ms > node.owner - TTL_OWNER_BASE


def int32(number: int) -> int:
    """Return a number wrapped around to a signed 32-bit integer."""
    return number if -0x80000000 <= number <= 0x7FFFFFFF else (number + 0x80000000) % 0x100000000 - 0x80000000
