"""Rarely used requests to the coordinator."""

from __future__ import annotations

import pytest
from embedded_peer import Scene

from kreplica.zookeeper.embedded.znode import CONTAINER_OWNER, TTL_OWNER_BASE
from kreplica.zookeeper.errors import (
    AuthFailed,
    BadArguments,
    MarshallingError,
    NoNode,
    NoWatcher,
    Unimplemented,
)
from kreplica.zookeeper.jute import Reader, pack_buffer, pack_int32, pack_int64, pack_text
from kreplica.zookeeper.records import (
    CREATOR_ALL_ACL,
    OPEN_ACL,
    AddWatchMode,
    EventType,
    Opcode,
    WatcherType,
    pack_acl,
    read_stat,
)
from kreplica.zookeeper.requests import (
    AddWatch,
    Auth,
    Check,
    CheckWatches,
    Create,
    Delete,
    Exists,
    GetChildren,
    GetData,
    Multi,
    MultiRead,
    Ping,
    RemoveWatches,
    SetData,
    SetWatches,
    Sync,
)
from kreplica.zookeeper.responses import decode_multi_results


def create_body(path: str, flags: int) -> bytes:
    return pack_text(path) + pack_buffer(b"") + pack_acl(OPEN_ACL) + pack_int32(flags)


def test_containers_and_ttl_znodes(scene: Scene) -> None:
    """Containers are removed when their last child is deleted, TTL znodes when they have expired."""
    peer, _ = scene.session()
    assert peer.send_code(Opcode.CREATE_CONTAINER, create_body("/box", 4))
    reply = scene.run(peer.next())
    reader = Reader(reply.body)
    assert (reader.text(), read_stat(reader).ephemeral_owner) == ("/box", CONTAINER_OWNER)
    peer.send_code(Opcode.CREATE_TTL, create_body("/mortal", 5) + pack_int64(5000))
    reply = scene.run(peer.next())
    reader = Reader(reply.body)
    assert (reader.text(), read_stat(reader).ephemeral_owner) == ("/mortal", TTL_OWNER_BASE + 5000)
    scene.request(peer, Create("/box/a"))
    scene.request(peer, Delete("/box/a"))
    for _ in range(20):
        scene.pass_time(5)
        scene.request(peer, Ping())
    assert scene.request(peer, Exists("/box")).error == NoNode.code
    assert scene.request(peer, Exists("/mortal")).error == NoNode.code


@pytest.mark.parametrize(
    ("opcode", "body"),
    [
        (Opcode.CREATE, create_body("/a", 7)),
        (Opcode.CREATE, create_body("/a", -1)),
        (Opcode.CREATE, create_body("/a", 5)),
        (Opcode.CREATE_TTL, create_body("/a", 5) + pack_int64(0)),
        (Opcode.CREATE_TTL, create_body("/a", 0) + pack_int64(5)),
        (Opcode.CREATE_TTL, create_body("/a", 5) + pack_int64(1 << 41)),
    ],
)
def test_invalid_creation_flags_are_refused(scene: Scene, opcode: int, body: bytes) -> None:
    """A create with invalid flags is refused, and the connection stays open."""
    peer, _ = scene.session()
    peer.send_code(opcode, body)
    assert scene.run(peer.next()).error == BadArguments.code
    assert scene.request(peer, Exists("/a")).error == NoNode.code


def test_unknown_operations_are_refused(scene: Scene) -> None:
    """Reconfiguration and undefined operation codes get the error Unimplemented."""
    peer, _ = scene.session()
    for opcode in (Opcode.RECONFIG, 4711):
        peer.send_code(opcode, b"")
        assert scene.run(peer.next()).error == Unimplemented.code


def test_whoami_lists_the_identities(scene: Scene) -> None:
    """The response omits password hashes."""
    peer, _ = scene.session()
    scene.request(peer, Auth("digest", b"ann:secret"))
    peer.send_code(Opcode.WHO_AM_I, b"")
    reader = Reader(scene.run(peer.next()).body)
    identities = reader.vector(lambda: (reader.text(), reader.text()))
    assert [scheme for scheme, _ in identities] == ["ip", "digest"]
    assert identities[1] == ("digest", "ann")


def test_wrong_credentials_close_the_connection_but_not_the_session(scene: Scene) -> None:
    """The error is sent before the connection is closed."""
    peer, session = scene.session()
    assert scene.request(peer, Auth("unheard-of", b"")).error == AuthFailed.code
    scene.run(peer.closed)
    assert scene.run(scene.peer().connect(session=session)) == session


def test_failed_multi_has_a_result_for_each_operation(scene: Scene) -> None:
    """Operations before the failed one have code 0; those after it have the code for 'not tried'."""
    peer, _ = scene.session()
    reply = scene.request(peer, Multi([Create("/a"), Check("/", 99), Delete("/a")]))
    assert reply.error == 0
    assert decode_multi_results(reply.body, 0, len(reply.body)) == [0, -103, -2]
    assert scene.request(peer, Exists("/a")).error == NoNode.code


def test_huge_multi_read_is_refused(scene: Scene) -> None:
    """Reading the same large znode twenty thousand times would return gigabytes."""
    peer, _ = scene.session()
    scene.request(peer, Create("/a", bytes(500_000)))
    assert scene.request(peer, MultiRead([GetData("/a")] * 100)).error == MarshallingError.code
    assert scene.request(peer, MultiRead([GetData("/a")] * 2)).error == 0


def test_watches_are_checked_and_removed(scene: Scene) -> None:
    """A missing watch is an error; a persistent watch is neither a data watch nor a child watch."""
    peer, _ = scene.session()
    scene.request(peer, GetChildren("/", watch=True))
    scene.request(peer, AddWatch("/x", AddWatchMode.PERSISTENT))
    assert scene.request(peer, CheckWatches("/", WatcherType.CHILDREN)).error == 0
    assert scene.request(peer, CheckWatches("/", WatcherType.DATA)).error == NoWatcher.code
    assert scene.request(peer, RemoveWatches("/", WatcherType.ANY)).error == 0
    assert scene.request(peer, RemoveWatches("/", WatcherType.ANY)).error == NoWatcher.code
    assert scene.request(peer, CheckWatches("/x", WatcherType.ANY)).error == 0
    assert scene.request(peer, CheckWatches("/x", WatcherType.DATA)).error == NoWatcher.code


def test_set_watches_sends_missed_events(scene: Scene) -> None:
    """After a reconnection, missed events are sent at once; the other watches stay registered."""
    writer, _ = scene.session()
    peer, session = scene.session()
    for path in ("/changed", "/deleted", "/same", "/parent"):
        scene.request(writer, Create(path))
    seen = scene.request(peer, Sync("/")).zxid
    scene.request(writer, SetData("/changed", b"new"))
    scene.request(writer, Delete("/deleted"))
    scene.request(writer, Create("/created"))
    scene.request(writer, Create("/parent/child"))
    reconnected = scene.peer()
    scene.run(reconnected.connect(session=session, last_zxid_seen=seen))
    watches = SetWatches(
        seen, ["/changed", "/deleted", "/same"], ["/created", "/none"], ["/parent", "/same"], ["/p"], ["/same"]
    )
    xid = reconnected.send(watches)
    events = [scene.run(reconnected.next()).event for _ in range(4)]
    assert events == [
        (EventType.NODE_DATA_CHANGED, "/changed"),
        (EventType.NODE_DELETED, "/deleted"),
        (EventType.NODE_CREATED, "/created"),
        (EventType.NODE_CHILDREN_CHANGED, "/parent"),
    ]
    assert scene.run(reconnected.next()).xid == xid
    scene.request(writer, SetData("/same", b"new"))
    assert scene.run(reconnected.next()).event == (EventType.NODE_DATA_CHANGED, "/same")
    scene.request(writer, Create("/none"))
    assert scene.run(reconnected.next()).event == (EventType.NODE_CREATED, "/none")


def test_watch_without_read_permission_gets_no_event(scene: Scene) -> None:
    """A watch must not bypass the ACL."""
    owner, _ = scene.session()
    stranger, _ = scene.session()
    scene.request(owner, Auth("digest", b"ann:secret"))
    scene.request(stranger, AddWatch("/", AddWatchMode.PERSISTENT_RECURSIVE))

    scene.request(owner, Create("/secret", acl=CREATOR_ALL_ACL))
    scene.request(owner, SetData("/secret", b"x"))
    scene.request(owner, Delete("/secret"))
    scene.request(owner, Create("/open"))
    assert scene.run(stranger.next()).event == (EventType.NODE_CREATED, "/open")
