"""Sessions of the coordinator, tested through its protocol in a simulation."""

from __future__ import annotations

import struct

from embedded_peer import TICK_TIME_MS, Scene

from kreplica.zookeeper.errors import (
    NoNode,
)
from kreplica.zookeeper.jute import pack_buffer
from kreplica.zookeeper.records import (
    EventType,
    frame,
)
from kreplica.zookeeper.requests import (
    CloseSession,
    Create,
    Exists,
    GetEphemerals,
    Ping,
)
from kreplica.zookeeper.responses import decode_children


def test_session_is_negotiated_and_pings_are_answered(scene: Scene) -> None:
    """The session timeout is limited to the server's range; a session has an ID and a password."""
    peer, session = scene.session(timeout_ms=1)
    assert session.timeout_ms == 2 * TICK_TIME_MS
    assert session.session_id > 0
    assert len(session.password) == 16
    assert scene.request(peer, Ping()).error == 0


def test_session_moves_only_with_its_password(scene: Scene) -> None:
    """A resumed session's old connection is closed; a wrong password gets the response for an expired session."""
    first, session = scene.session()
    thief = scene.peer()
    refused = scene.run(thief.connect(session=session._replace(password=b"x" * 16)))
    assert (refused.timeout_ms, refused.session_id) == (0, 0)
    scene.run(thief.closed)
    assert not first.is_closed
    second = scene.peer()
    assert scene.run(second.connect(session=session)) == session
    scene.run(first.closed)
    assert scene.request(second, Create("/a", ephemeral=True)).error == 0


def test_silent_session_expires_with_its_ephemeral_znodes(scene: Scene) -> None:
    """Pings keep a session alive; when they stop, it expires, and watchers of its znodes are notified."""
    silent, session = scene.session(timeout_ms=4000)
    watcher, _ = scene.session()
    scene.request(silent, Create("/e", ephemeral=True))
    scene.request(watcher, Exists("/e", watch=True))
    for _ in range(3):
        scene.pass_time(3)
        scene.request(silent, Ping())
        scene.request(watcher, Ping())
    scene.pass_time(6)
    event = scene.run(watcher.next())
    assert event.event == (EventType.NODE_DELETED, "/e")
    assert silent.is_closed
    assert scene.run(scene.peer().connect(session=session)).session_id == 0


def test_close_is_answered_after_ephemeral_znodes_are_removed(scene: Scene) -> None:
    """After that response the connection is closed, and later requests are not served."""
    peer, _ = scene.session()
    other, _ = scene.session()
    scene.request(peer, Create("/e", ephemeral=True))
    xid = peer.send(CloseSession())
    peer.send(Create("/late"))
    assert scene.run(peer.next())[:1] == (xid,)
    scene.run(peer.closed)
    assert scene.request(other, Exists("/e")).error == NoNode.code
    assert scene.request(other, Exists("/late")).error == NoNode.code


def test_sessions_and_ephemeral_znodes_survive_a_restart(scene: Scene) -> None:
    """A session whose client reconnects continues; one without a client expires after its full timeout."""
    returning, session = scene.session(timeout_ms=4000)
    absent, _ = scene.session(timeout_ms=4000)
    scene.request(returning, Create("/back", ephemeral=True))
    scene.request(absent, Create("/gone", ephemeral=True))
    scene.pass_time(3)
    scene.run(scene.coordinator.stop())
    scene.pass_time(60)
    scene.host.kill()
    scene.start()
    scene.pass_time(3)
    reconnected = scene.peer()
    assert scene.run(reconnected.connect(4000, session)) == session
    assert scene.request(reconnected, Exists("/gone")).error == 0
    scene.pass_time(3)
    assert scene.request(reconnected, Exists("/gone")).error == NoNode.code
    assert scene.request(reconnected, Exists("/back")).error == 0
    reply = scene.request(reconnected, GetEphemerals("/"))
    assert decode_children(reply.body, 0, len(reply.body)) == ["/back"]


def test_process_pause_expires_no_session(scene: Scene) -> None:
    """No ping can be received during the pause, so a session keeps the rest of its timeout."""
    peer, _ = scene.session(timeout_ms=4000)
    scene.pass_time(1)
    scene.host.pause()
    scene.pass_time(60)
    scene.host.resume()
    scene.pass_time(2)
    assert scene.request(peer, Ping()).error == 0
    scene.pass_time(5.5)
    assert peer.is_closed


def test_client_with_another_history_is_refused(scene: Scene) -> None:
    """The client has seen later transactions than the server, so the server must have another data directory."""
    peer = scene.peer()
    peer.send_raw(frame(struct.pack(">iqiq", 0, 1000, 4000, 0) + pack_buffer(bytes(16)) + b"\0"))
    scene.run(peer.closed)
    assert not peer.frames.pending


def test_handshake_without_the_read_only_byte(scene: Scene) -> None:
    """Clients older than ZooKeeper 3.4 send such a handshake."""
    peer = scene.peer()
    peer.send_raw(frame(struct.pack(">iqiq", 0, 0, 4000, 0) + pack_buffer(bytes(16))))
    scene.run(peer.frames.get())
    assert scene.request(peer, Ping()).error == 0
