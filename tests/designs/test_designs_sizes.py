"""The computed sizes of ZooKeeper messages equal those of their encodings."""

from __future__ import annotations

import pytest

from kreplica.testing.designs import sizes
from kreplica.zookeeper import Check, Create, Delete, EventType, GetChildren, GetData, NoNode, SetData, Stat, WatchEvent
from kreplica.zookeeper.records import KeeperState, encode_watch_event
from kreplica.zookeeper.requests import Exists, encode_operations
from kreplica.zookeeper.responses import encode_children, encode_data, encode_multi_read_results

STAT = Stat(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
OPERATIONS = [Create("/a/b", b"data"), SetData("/a", b"more", 3), Delete("/c", 1), Check("/d", 2)]


@pytest.mark.parametrize("operation", [*OPERATIONS, GetData("/a/b"), GetChildren("/a")], ids=str)
def test_requests(operation: Create | SetData | Delete | Check | GetData | GetChildren) -> None:
    """The body of each request has the computed size."""
    assert sizes.operation_bytes(operation) == len(operation.encode())


def test_reads() -> None:
    """Requests for exists, and responses to getData, getChildren and watches, have the computed sizes."""
    assert sizes.read_bytes("/a/b") == sizes.REQUEST_HEADER + len(Exists("/a/b").encode())
    assert sizes.data_bytes(b"data") == sizes.REPLY_HEADER + len(encode_data(b"data", STAT))
    assert sizes.children_bytes(["a", "bcd"]) == sizes.REPLY_HEADER + len(encode_children(["a", "bcd"]))
    event = WatchEvent(EventType.NODE_CREATED, KeeperState.SYNC_CONNECTED, "/a/b")
    assert sizes.event_bytes("/a/b") == sizes.REPLY_HEADER + len(encode_watch_event(event))


def test_multis() -> None:
    """Multis and multi-reads have the computed sizes."""
    assert sizes.multi_bytes(OPERATIONS) == sizes.REQUEST_HEADER + len(encode_operations(OPERATIONS))
    reads = [GetData("/a"), GetChildren("/b"), GetData("/gone")]
    results = [(b"data", STAT), ["x", "yz"], NoNode("/gone")]
    assert sizes.multi_bytes(reads) == sizes.REQUEST_HEADER + len(encode_operations(reads))
    encoded = encode_multi_read_results(results)
    assert sizes.multi_read_reply_bytes(results) == sizes.REPLY_HEADER + len(encoded)
