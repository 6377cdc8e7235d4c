"""Visibility of changes before and after they are durable, in a simulation."""

from __future__ import annotations

import struct

import pytest
from embedded_peer import Peer, Scene

from kreplica.zookeeper.errors import NoNode
from kreplica.zookeeper.records import (
    EventType,
)
from kreplica.zookeeper.requests import Create, Delete, Exists, GetChildren, GetData, SetData
from kreplica.zookeeper.responses import decode_data


def data_of(scene: Scene, peer: Peer, path: str) -> bytes:
    reply = scene.request(peer, GetData(path))
    assert reply.error == 0
    return decode_data(reply.body, 0, len(reply.body))[0]


def test_responses_keep_the_order_of_requests(scene: Scene) -> None:
    """A pipelined read sees all writes sent before it, and no later ones."""
    peer, _ = scene.session()
    scene.request(peer, Create("/a", b"0"))
    expected = []
    for number in range(1, 50):
        expected.append((peer.send(SetData("/a", b"%d" % number)), None))
        expected.append((peer.send(GetData("/a")), b"%d" % number))
        expected.append((peer.send(Exists("/none")), None))
    for xid, data in expected:
        reply = scene.run(peer.next())
        assert reply.xid == xid
        if data is not None:
            assert decode_data(reply.body, 0, len(reply.body))[0] == data


def test_event_precedes_the_data_that_it_announces(scene: Scene) -> None:
    """Even the client that makes the change gets the event before the response."""
    peer, _ = scene.session()
    scene.request(peer, Create("/a"))
    scene.request(peer, GetData("/a", watch=True))
    xid = peer.send(SetData("/a", b"new"))
    assert scene.run(peer.next()).event == (EventType.NODE_DATA_CHANGED, "/a")
    assert scene.run(peer.next()).xid == xid


def test_changes_that_are_not_durable_are_not_visible(scene: Scene) -> None:
    """Until the disk responds, only unchanged data can be read; then all responses arrive in order."""
    writer, _ = scene.session()
    reader, _ = scene.session()
    scene.request(writer, Create("/quiet", b"q"))
    scene.request(writer, Create("/busy", b"old"))
    scene.host.offload.delay_s = (1.0, 1.0)
    write_xid = writer.send(SetData("/busy", b"new"))
    scene.pass_time(0.1)
    assert data_of(scene, reader, "/quiet") == b"q"
    dirty = reader.send(GetData("/busy"))
    missing = reader.send(Exists("/none"))
    later = reader.send(GetData("/quiet"))
    scene.pass_time(0.5)
    assert not writer.frames.pending
    assert not reader.frames.pending
    assert scene.run(writer.next()).xid == write_xid
    replies = [scene.run(reader.next()) for _ in range(3)]
    assert [reply.xid for reply in replies] == [dirty, missing, later]
    assert decode_data(replies[0].body, 0, len(replies[0].body))[0] == b"new"


def test_changes_behind_a_slow_write_are_not_visible(scene: Scene) -> None:
    """While an earlier write is not durable, later changes are hidden, and so are events about them."""
    writer, _ = scene.session()
    watcher, _ = scene.session()
    readers = [scene.session()[0] for _ in range(4)]
    for path in ("/first", "/changed", "/deleted"):
        scene.request(writer, Create(path, b"old"))
    scene.request(watcher, Exists("/created", watch=True))
    scene.host.offload.delay_s = (1.0, 1.0)
    writer.send(SetData("/first", b"new"))
    scene.pass_time(0.1)
    changes = [SetData("/changed", b"new"), Delete("/deleted"), Create("/created")]
    for request in changes:
        writer.send(request)
    scene.pass_time(0.1)
    reads = [GetData("/changed"), GetData("/deleted"), GetData("/created"), GetChildren("/")]
    for reader, request in zip(readers, reads, strict=True):
        reader.send(request)
    # The first write is durable after two delays, and the changes behind it after two more.
    scene.pass_time(2.5)
    assert len(writer.frames.pending) == 1
    assert [reader.frames.pending for reader in (*readers, watcher)] == [[]] * 5
    scene.pass_time(2)
    assert len(writer.frames.pending) == 4
    assert [scene.run(reader.next()).error for reader in readers] == [0, NoNode.code, 0, 0]
    assert scene.run(watcher.next()).event == (EventType.NODE_CREATED, "/created")


@pytest.mark.parametrize("seed", [1, 2, 3, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(4, 300))])
def test_power_loss_loses_no_acknowledged_write(seed: int) -> None:
    """Power is lost many times while requests of several clients are pending."""
    scene = Scene(seed=seed)
    acknowledged: dict[str, int] = {}
    for round_ in range(15):
        peers = [scene.session()[0] for _ in range(3)]
        sent: list[tuple[Peer, int, str, int]] = []
        for number in range(30):
            for index, peer in enumerate(peers):
                path = f"/{round_}-{index}-{number % 5}"
                request = SetData(path, b"%d" % number) if number >= 5 else Create(path, b"%d" % number)
                sent.append((peer, peer.send(request), path, number))
        scene.pass_time(0.006 * scene.simulation.random.random() + 0.001)
        for peer, xid, path, number in sent:
            if peer.frames.pending and struct.unpack_from(">i", peer.frames.pending[0])[0] == xid:
                assert scene.run(peer.next()).error == 0
                acknowledged[path] = number
        scene.host.power_loss()
        scene.start()
        reader, _ = scene.session()
        for path, number in acknowledged.items():
            assert int(data_of(scene, reader, path)) >= number, path
    assert len(acknowledged) > 10


def test_failed_store_closes_all_connections(scene: Scene) -> None:
    """The write is not acknowledged and the failure is reported; after a restart, the old or new data is found."""
    peer, _ = scene.session()
    scene.request(peer, Create("/a", b"old"))
    scene.host.disk.fail("sync", "*/log-*")
    peer.send(SetData("/a", b"new"))
    scene.run(peer.closed)
    assert not peer.frames.pending
    scene.pass_time(1)
    assert [type(failure.value) for failure in scene.failures] == [OSError]
    scene.run(scene.coordinator.stop())
    scene.host.disk.clear_faults()
    scene.host.power_loss()
    scene.start()
    other, _ = scene.session()
    assert data_of(scene, other, "/a") in (b"old", b"new")
