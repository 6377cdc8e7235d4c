"""Sizes in bytes of ZooKeeper requests and responses on the wire, without encoding them.

Encoding millions of requests would take most of the time of a run.  A test compares each formula with the real
encoding.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kreplica.zookeeper import Check, Create, Delete, Operation, Read, ReadResult, SetData
from kreplica.zookeeper.records import STAT

REQUEST_HEADER = 12
"""Frame length, request number and operation code."""

REPLY_HEADER = 20
"""Frame length, request number, transaction ID and error code."""

STAT_BYTES = STAT.size
MEMBER_HEADER = 9
"""Header of one operation or result of a multi."""

_CREATE_FIXED = 4 + 4 + 27 + 4  # lengths of path and data, the open ACL, flags
_EVENT_FIXED = REPLY_HEADER + 8  # type and state


def read_bytes(path: str) -> int:
    """Return the size of a request of exists, getData or getChildren."""
    return REQUEST_HEADER + 5 + len(path)


def data_bytes(data: bytes) -> int:
    """Return the size of a response of getData."""
    return REPLY_HEADER + 4 + len(data) + STAT_BYTES


def children_bytes(names: Iterable[str]) -> int:
    """Return the size of a response of getChildren."""
    return REPLY_HEADER + 4 + sum(4 + len(name) for name in names)


def event_bytes(path: str) -> int:
    """Return the size of a watch event."""
    return _EVENT_FIXED + 4 + len(path)


def operation_bytes(operation: Operation | Read) -> int:
    """Return the size of the body of one write or read."""
    if isinstance(operation, Create):
        return _CREATE_FIXED + len(operation.path) + len(operation.data or b"")
    if isinstance(operation, SetData):
        return 12 + len(operation.path) + len(operation.data or b"")
    if isinstance(operation, Delete | Check):
        return 8 + len(operation.path)
    return 5 + len(operation.path)


def multi_bytes(operations: Sequence[Operation | Read]) -> int:
    """Return the size of the request of a multi or multi-read."""
    return REQUEST_HEADER + MEMBER_HEADER + sum(MEMBER_HEADER + operation_bytes(operation) for operation in operations)


def multi_reply_bytes(operations: Sequence[Operation]) -> int:
    """Return the size of the response to a multi that succeeded."""
    size = REPLY_HEADER + MEMBER_HEADER
    for operation in operations:
        size += MEMBER_HEADER
        if isinstance(operation, Create):
            size += 4 + len(operation.path) + STAT_BYTES
        elif isinstance(operation, SetData):
            size += STAT_BYTES
    return size


def multi_read_reply_bytes(results: Sequence[ReadResult]) -> int:
    """Return the size of the response to a multi-read.

    :param results: (data, stat) or names by read; an error for a missing znode.
    """
    size = REPLY_HEADER + MEMBER_HEADER
    for result in results:
        size += MEMBER_HEADER
        if isinstance(result, Exception):
            size += 4
        elif isinstance(result, tuple):
            size += 4 + len(result[0]) + STAT_BYTES
        else:
            size += 4 + sum(4 + len(name) for name in result)
    return size
