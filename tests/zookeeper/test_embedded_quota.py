"""Limits on the resources of one client: znodes, ephemeral znodes, sessions, watches."""

from __future__ import annotations

import pytest
from embedded_peer import TICK_TIME_MS, Peer, Scene

from kreplica.zookeeper.embedded import watches
from kreplica.zookeeper.embedded.quota import QuotaBounds
from kreplica.zookeeper.embedded.settings import ZooKeeperServerSettings
from kreplica.zookeeper.errors import NoNode, QuotaExceeded, Throttled
from kreplica.zookeeper.records import AddWatchMode
from kreplica.zookeeper.requests import AddWatch, Create, Delete, Exists, Multi, Ping, SetData

MIB = 2**20


def quota_scene(**bounds: int) -> Scene:
    return Scene(ZooKeeperServerSettings(tick_time_ms=TICK_TIME_MS, quota=QuotaBounds(**bounds)))


def fill(scene: Scene, peer: Peer, size: int = 100_000) -> int:
    """Create znodes until one is refused, and return the number of created znodes."""
    for number in range(1000):
        error = scene.request(peer, Create(f"/junk-{number}", bytes(size))).error
        if error:
            assert error == QuotaExceeded.code
            return number
    raise AssertionError("no znode was refused")


def register_broker(scene: Scene) -> Peer:
    """Register a broker, and return its session's peer."""
    peer, _ = scene.session(host="broker")
    for path in ("/brokers", "/brokers/ids"):
        scene.request(peer, Create(path))
    assert scene.request(peer, Create("/brokers/ids/1", b"{}", ephemeral=True)).error == 0
    return peer


def test_bytes_of_znodes_are_bounded() -> None:
    """A client that fills the tree gets QuotaExceeded; a broker can use the reserve; deletions release bytes."""
    scene = quota_scene(bytes_max=2 * MIB)
    serving = scene.coordinator.serving
    assert serving is not None
    quota = serving.tree.quota
    writer = register_broker(scene)
    before = quota.held_bytes
    peer, _ = scene.session()
    created_count = fill(scene, peer)
    assert 14 <= created_count <= 17
    assert quota.held_bytes <= 0.8 * 2 * MIB
    assert scene.request(writer, Create("/brokers/state", bytes(100_000))).error == 0
    assert scene.request(writer, SetData("/brokers/state", bytes(100_001))).error == 0
    for number in range(created_count):
        assert scene.request(peer, Delete(f"/junk-{number}")).error == 0
    scene.request(writer, Delete("/brokers/state"))
    assert quota.held_bytes == before


def test_broker_registers_in_a_full_tree() -> None:
    """The znodes of a broker's registration may use the reserve."""
    scene = quota_scene(bytes_max=2 * MIB)
    peer, _ = scene.session()
    for path in ("/brokers", "/brokers/ids"):
        scene.request(peer, Create(path))
    fill(scene, peer)
    codes = [scene.request(peer, Create(f"/small-{number}")).error for number in range(300)]
    assert codes[-1] == QuotaExceeded.code
    joining, _ = scene.session(host="broker")
    assert scene.request(joining, Create("/brokers/ids/2", b"{}", ephemeral=True)).error == 0
    assert scene.request(joining, Create("/controller", b"{}", ephemeral=True)).error == 0


def test_reserve_is_bounded() -> None:
    """Even a broker cannot exceed the total limit."""
    scene = quota_scene(bytes_max=2 * MIB)
    assert fill(scene, register_broker(scene)) <= 20


def test_number_of_znodes_is_bounded() -> None:
    """The number of znodes is limited even if they are empty."""
    scene = quota_scene(count_max=100)
    peer, _ = scene.session()
    assert fill(scene, peer, 0) == 76, "80 including the four znodes of a new tree"


def test_writes_that_do_not_grow_the_tree_are_accepted() -> None:
    """A full tree can be changed and read, and a multi that does not fit changes nothing."""
    scene = quota_scene(bytes_max=2 * MIB)
    peer, _ = scene.session()
    fill(scene, peer)
    assert scene.request(peer, SetData("/junk-0", bytes(99_000))).error == 0
    reply = scene.request(peer, Multi([Create("/a"), Create("/b", bytes(500_000))]))
    assert QuotaExceeded.code.to_bytes(4, "big", signed=True) in reply.body
    assert scene.request(peer, Exists("/a")).error == NoNode.code
    assert scene.request(peer, Ping()).error == 0


def test_ephemeral_znodes_per_session_are_bounded() -> None:
    """Each session has its own limit."""
    scene = quota_scene(session_ephemerals_max=10)
    peer, _ = scene.session()
    codes = [scene.request(peer, Create(f"/e{number}", ephemeral=True)).error for number in range(11)]
    assert codes == [0] * 10 + [QuotaExceeded.code]
    other, _ = scene.session(host="other")
    assert scene.request(other, Create("/mine", ephemeral=True)).error == 0


def test_sessions_are_bounded() -> None:
    """A client's abandoned sessions are expired to make room for new ones; other clients' sessions are kept."""
    scene = Scene(ZooKeeperServerSettings(tick_time_ms=TICK_TIME_MS, sessions_max=20))
    serving = scene.coordinator.serving
    assert serving is not None
    keeper, _ = scene.session(host="keeper")
    scene.request(keeper, Create("/mine", ephemeral=True))
    for _ in range(100):
        peer, _ = scene.session(timeout_ms=20_000)
        peer.transport.loseConnection()
        scene.run(peer.closed)
    assert len(serving.sessions.by_id) <= 20
    assert scene.request(keeper, Exists("/mine")).error == 0
    assert scene.request(scene.session(host="other")[0], Ping()).error == 0


def test_connections_of_one_address_are_bounded() -> None:
    """When an address has reached its limit, others can still connect; closing a connection makes room."""
    scene = Scene(ZooKeeperServerSettings(tick_time_ms=TICK_TIME_MS, connections_max=10, address_connections_max=3))
    serving = scene.coordinator.serving
    assert serving is not None
    peers = [scene.session()[0] for _ in range(3)]
    refused = scene.peer()
    scene.run(refused.closed)
    assert serving.connections_rejected == 1
    assert [scene.request(peer, Ping()).error for peer in peers] == [0, 0, 0]
    assert scene.request(scene.session(host="neighbour")[0], Ping()).error == 0
    peers[0].transport.loseConnection()
    scene.pass_time(1)
    assert scene.request(scene.session()[0], Ping()).error == 0


def test_watches_of_all_connections_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the limit on all watches, only connections with few watches can add more."""
    monkeypatch.setattr(watches, "TOTAL_BYTES_MAX", 20_000)
    monkeypatch.setattr(watches, "SMALL_WATCHER_BYTES", 2_000)
    scene = quota_scene()
    serving = scene.coordinator.serving
    assert serving is not None
    greedy, _ = scene.session()
    codes = [scene.request(greedy, Exists(f"/n{number}", watch=True)).error for number in range(100)]
    assert codes[-1] == Throttled.code
    assert serving.watches.data.held_bytes < 21_000
    modest, _ = scene.session(host="modest")
    watch = AddWatch("/mine", AddWatchMode.PERSISTENT)
    assert scene.request(modest, watch).error == 0
    greedy.transport.loseConnection()
    scene.run(greedy.closed)
    scene.pass_time(1)
    assert serving.watches.data.held_bytes < 300
