"""Consistency of the simulated ZooKeeper ensemble: order of reads and writes, elections, and sessions."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from kreplica.testing.ensemble.ensemble import SYNC_LIMIT_S, Ensemble, EnsembleOptions
from kreplica.testing.ensemble.machines import EnsembleMachines, host_name
from kreplica.testing.simulator.simulation import Simulation
from kreplica.testing.storms.cleanup import deferred_collection
from kreplica.zookeeper import (
    BadVersion,
    Create,
    MultiFailed,
    SessionState,
    SetData,
    WatchEvent,
    ZooKeeperClient,
    ZooKeeperError,
)

SESSION_MS = 6000


@pytest.fixture(autouse=True)
def _deferred_collection() -> Iterator[None]:
    with deferred_collection():
        yield


class Scene:
    """An ensemble of three servers, and clients, each on its own host."""

    def __init__(self, seed: int = 1) -> None:
        self.simulation = Simulation(seed)
        self.ensemble = Ensemble(seed, self.simulation.scheduler, EnsembleOptions())
        self.machines = EnsembleMachines(self.ensemble, self.simulation)
        self.run_until = self.simulation.run_until
        self.run = self.simulation.run
        self.run_until(self.machines.start())

    @property
    def leader(self) -> int:
        assert self.ensemble.term is not None
        return self.ensemble.term.number

    @property
    def followers(self) -> list[int]:
        return [number for number in self.machines.hosts if number != self.leader]

    def client(self, name: str, *servers: int) -> ZooKeeperClient:
        """Return a started client of these servers (all by default)."""
        connect = ",".join(f"{host_name(each)}:2181" for each in servers or self.machines.hosts)
        runtime = self.simulation.host(name).runtime
        client = ZooKeeperClient(runtime.reactor, connect, random=Random(name), session_timeout_ms=SESSION_MS)
        self.run_until(client.start())
        return client

    def data(self, client: ZooKeeperClient, path: str) -> bytes:
        data, _ = self.run_until(client.get_data(path))
        return bytes(data)


def test_a_lagging_server_serves_old_data_until_a_sync() -> None:
    """A lagging server returns another client's write only after a sync, which waits until it has caught up."""
    scene = Scene()
    lagging, other = scene.followers
    reader, writer = scene.client("reader", lagging), scene.client("writer", other)
    scene.run_until(writer.create("/a", b"old"))
    scene.run_until(reader.sync("/"))
    scene.ensemble.set_frozen(lagging, True)
    scene.run_until(writer.set_data("/a", b"new"))
    assert scene.data(reader, "/a") == b"old"
    synced, read = reader.sync("/"), reader.get_data("/a")
    scene.run(1.0)
    assert not synced.called
    assert not read.called
    scene.ensemble.set_frozen(lagging, False)
    assert scene.run_until(read)[0] == b"new"


def test_a_client_sees_its_own_writes_and_the_reason_of_a_failed_one() -> None:
    """A client's requests through a lagging server see its earlier writes, and fail with the right error."""
    scene = Scene()
    lagging, other = scene.followers
    client, rival = scene.client("client", lagging), scene.client("rival", other)
    scene.ensemble.members[lagging].lag_s = 0.5
    for number in range(20):
        scene.run_until(client.create(f"/n{number}", b"x"))
        assert scene.data(client, f"/n{number}") == b"x"
    scene.run_until(rival.set_data("/n0", b"y"))
    with pytest.raises(BadVersion):
        scene.run_until(client.set_data("/n0", b"z", 0))
    assert scene.data(client, "/n0") == b"y"
    with pytest.raises(MultiFailed):
        scene.run_until(client.multi([SetData("/n1", b"z", 0), Create("/n2", b"z")]))
    assert scene.data(client, "/n1") == b"x"


def test_watches_fire_when_the_server_applies_the_change() -> None:
    """A client receives watch events before it can read the new data, and in the order of the changes."""
    scene = Scene()
    lagging, other = scene.followers
    watcher, writer = scene.client("watcher", lagging), scene.client("writer", other)
    scene.run_until(writer.create("/a", b"old"))
    scene.run_until(watcher.sync("/"))
    seen: list[str] = []

    def fired(event: WatchEvent) -> None:
        seen.append(event.path)

    scene.run_until(watcher.get_data("/a", fired))
    scene.run_until(watcher.exists("/b", fired))
    scene.ensemble.set_frozen(lagging, True)
    scene.run_until(writer.create("/b", b""))
    scene.run_until(writer.set_data("/a", b"new"))
    scene.run(1.0)
    assert seen == []
    scene.ensemble.set_frozen(lagging, False)
    scene.run_until(lambda: len(seen) == 2)
    assert seen == ["/b", "/a"]


def test_a_client_never_goes_back_in_time() -> None:
    """A server refuses a client that has already seen newer transactions than the server has."""
    scene = Scene()
    lagging, other = scene.followers
    client = scene.client("client")
    scene.ensemble.set_frozen(lagging, True)
    scene.run_until(client.create("/a", b"x"))
    for _ in range(10):
        connected = scene.machines.server_of_session(client.session_id)
        assert connected in (scene.leader, other)
        scene.machines.server(connected).disconnect_session(client.session_id)
        scene.run_until(lambda: client.state is not SessionState.CONNECTED)
        scene.run_until(lambda: client.state is SessionState.CONNECTED)
        assert scene.data(client, "/a") == b"x"
    assert client.state is SessionState.CONNECTED


def test_sessions_survive_the_loss_of_the_leader() -> None:
    """When the leader dies, sessions, ephemeral znodes and acknowledged writes remain; other writes may be lost."""
    for seed in range(1, 8):
        scene = Scene(seed)
        client = scene.client("client")
        scene.run_until(client.create("/mine", b"", ephemeral=True))
        session_id, acknowledged = client.session_id, []
        for number in range(40):
            if number == 20:
                leader = scene.leader
                pending = [client.create(f"/p{each}", b"") for each in range(5)]
                scene.run(0.001 * seed)
                scene.machines.kill_server(leader)
                for each in pending:
                    each.addErrback(lambda failure: failure.trap(ZooKeeperError))
            try:
                scene.run_until(client.create(f"/n{number}", b""), timeout_s=20.0)
                acknowledged.append(f"n{number}")
            except ZooKeeperError:
                pass  # the connection was lost; the outcome is unknown
        scene.run_until(client.sync("/"))
        names = scene.run_until(client.get_children("/"))
        assert client.session_id == session_id
        assert {*acknowledged, "mine"} <= set(names)
        assert scene.ensemble.term is not None
        assert scene.leader != leader
        scene.run_until(scene.machines.start())
        scene.run(1.0)
        zxids = {member.replica.zxid for member in scene.ensemble.members.values()}
        trees = [member.replica.tree.nodes for member in scene.ensemble.members.values()]
        assert len(zxids) == 1
        assert [sorted(tree) for tree in trees] == [sorted(trees[0])] * 3


def test_an_isolated_leader_commits_nothing() -> None:
    """The majority elects another leader; until the isolated one notices, it serves old data and answers syncs."""
    scene = Scene()
    old = scene.leader
    client, other = scene.client("client", old), scene.client("other", *scene.followers)
    scene.run_until(client.create("/a", b"old"))
    scene.ensemble.isolate(old)
    outcome: list[object] = []
    client.set_data("/a", b"lost").addBoth(outcome.append)
    scene.run(1.0)
    assert outcome == []
    scene.run_until(lambda: scene.ensemble.term is not None and scene.leader != old, timeout_s=20.0)
    scene.run_until(other.set_data("/a", b"new"), timeout_s=20.0)
    scene.run_until(lambda: bool(outcome))
    scene.ensemble.heal()
    scene.run_until(client.sync("/"), timeout_s=20.0)
    assert scene.data(client, "/a") == b"new"


def test_an_isolated_server_serves_old_data_until_it_notices() -> None:
    """An isolated follower serves old data, then closes its connections, and catches up once it is reconnected."""
    scene = Scene()
    isolated, other = scene.followers
    client, writer = scene.client("client", isolated), scene.client("writer", other)
    scene.run_until(writer.create("/a", b"old"))
    scene.run_until(client.sync("/"))
    scene.ensemble.isolate(isolated)
    scene.run_until(writer.set_data("/a", b"new"))
    assert scene.data(client, "/a") == b"old"
    scene.run(2 * SYNC_LIMIT_S)
    assert client.state is SessionState.SUSPENDED
    scene.ensemble.heal()
    scene.run_until(lambda: client.state is SessionState.CONNECTED)
    assert scene.data(client, "/a") == b"new"


def test_the_leader_expires_sessions() -> None:
    """A client whose server is isolated for longer than the session timeout loses its session."""
    scene = Scene()
    isolated, other = scene.followers
    client, watcher = scene.client("client", isolated), scene.client("watcher", other)
    scene.run_until(client.create("/mine", b"", ephemeral=True))
    scene.ensemble.isolate(isolated)
    gone: list[WatchEvent] = []
    scene.run_until(watcher.sync("/"))
    scene.run_until(watcher.get_data("/mine", gone.append))
    scene.run_until(lambda: bool(gone), timeout_s=SESSION_MS / 1000 + 2)
    scene.ensemble.heal()
    scene.run_until(lambda: client.state is SessionState.EXPIRED)


def test_without_a_quorum_there_is_no_leader() -> None:
    """Without a majority of servers, clients are disconnected; they reconnect once a majority runs again."""
    scene = Scene()
    client = scene.client("client")
    scene.run_until(client.create("/a", b"x"))
    for number in scene.followers:
        scene.machines.kill_server(number)
    scene.run(2 * SYNC_LIMIT_S)
    assert scene.ensemble.term is None
    assert client.state is SessionState.SUSPENDED
    scene.run_until(scene.machines.start())
    scene.run_until(lambda: client.state is not SessionState.SUSPENDED)
    assert scene.data(client, "/a") == b"x"


def test_a_closed_session_is_removed_everywhere() -> None:
    """When a session is closed, its ephemeral znodes are deleted on all servers."""
    scene = Scene()
    client = scene.client("client", scene.followers[0])
    scene.run_until(client.create("/mine", b"", ephemeral=True))
    scene.run_until(client.close())
    scene.run(1.0)
    assert all("/mine" not in member.replica.tree.nodes for member in scene.ensemble.members.values())
