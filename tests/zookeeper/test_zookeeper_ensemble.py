"""Connect strings, and a real ensemble that loses some of its servers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from kreplica.zookeeper import BadArguments, ConnectionLoss, SessionExpired, SessionState, Stat, ZooKeeperClient
from kreplica.zookeeper.ensemble import Ensemble, Server, ServerOrder
from tests.support.real_reactor import run
from tests.support.real_zookeeper import LOOPBACK, RealZooKeeper


@pytest.mark.parametrize(
    ("text", "servers", "chroot"),
    [
        ("a:1", [("a", 1)], ""),
        ("a", [("a", 2181)], ""),
        ("a:", [("a", 2181)], ""),
        ("a:1, b:2 ,c", [("a", 1), ("b", 2), ("c", 2181)], ""),
        ("a:1,b:2/kafka/one", [("a", 1), ("b", 2)], "/kafka/one"),
        ("a:1/", [("a", 1)], ""),
        ("[::1]:2182,[fe80::1]", [("::1", 2182), ("fe80::1", 2181)], ""),
        ("::1/k", [("::1", 2181)], "/k"),
    ],
)
def test_connect_strings(text: str, servers: list[tuple[str, int]], chroot: str) -> None:
    """Connect strings have the format of ``zookeeper.connect``, extended by IPv6 addresses."""
    assert Ensemble.parse(text) == Ensemble(tuple(Server(*each) for each in servers), chroot)


@pytest.mark.parametrize("text", ["", "a:b", "a:0", "a:70000", "a,,b", "/x", "[::1", "[::1]2181", "a/b//c", "a:-1"])
def test_invalid_connect_strings_are_refused(text: str) -> None:
    """The error contains the string."""
    with pytest.raises(BadArguments, match="connect string"):
        Ensemble.parse(text)


def test_clients_are_spread_over_the_servers() -> None:
    """Each client tries the servers in its own random order."""
    ensemble = Ensemble.parse("a,b,c,d")
    firsts = [ServerOrder(ensemble, random.Random(seed)).next()[0].host for seed in range(200)]
    assert all(30 < firsts.count(host) < 70 for host in "abcd")


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealZooKeeper]:
    with RealZooKeeper(tmp_path_factory.mktemp("ensemble"), places=[LOOPBACK] * 3, sync_to_disk=False) as zookeeper:
        yield zookeeper


def client_of(zookeeper: RealZooKeeper, **options: Any) -> ZooKeeperClient:
    from twisted.internet import reactor

    return ZooKeeperClient(
        reactor,  # type: ignore[arg-type]
        zookeeper.connect_string,
        **{"random": random.Random(5), "session_timeout_ms": 6000, **options},
    )


async def wait_for_state(client: ZooKeeperClient, state: SessionState) -> None:
    """Wait until the client is in the given state."""
    if client.state is not state:
        reached: Deferred[None] = Deferred()
        remove = client.on_session_event(lambda new: reached.callback(None) if new is state else None)
        await reached
        remove()


def test_session_survives_the_death_of_the_leader(ensemble: RealZooKeeper) -> None:
    """After the leader is killed, sessions, ephemeral znodes and watches remain, and writes continue."""

    async def scenario() -> None:
        # Several clients, so that some of them are connected to the server that dies.
        clients = [client_of(ensemble, random=random.Random(seed)) for seed in range(6)]
        for client in clients:
            await client.start()
        first = clients[0]
        await first.create("/leader")
        heard: list[str] = []
        for number, client in enumerate(clients):
            await client.create(f"/leader/{number}", b"", ephemeral=True)
            await client.exists("/leader/flag", lambda event: heard.append(event.path))
        ids = [client.session_id for client in clients]
        leader = ensemble.leader
        leader.kill()
        await write_until_done(first, "/leader/flag")
        for client in clients:
            await client.sync()
        assert heard == ["/leader/flag"] * len(clients)
        assert [client.session_id for client in clients] == ids
        assert sorted(await first.get_children("/leader")) == [*map(str, range(6)), "flag"]
        leader.start()
        for client in clients:
            await client.close()

    run(scenario(), 60)
    ensemble.wait_until_serving()


async def read_until_done(client: ZooKeeperClient, path: str) -> Stat | None:
    """Read a znode's stat, and retry after lost connections."""
    while True:
        try:
            return await client.exists(path)
        except ConnectionLoss:
            continue


async def write_until_done(client: ZooKeeperClient, path: str) -> None:
    """Create a znode as callers must: after a lost connection, check whether the request was executed."""
    while True:
        try:
            if await client.exists(path) is None:
                await client.create(path)
            return
        except ConnectionLoss:
            continue


def test_session_survives_the_loss_of_the_quorum(ensemble: RealZooKeeper) -> None:
    """Without a quorum the session is suspended, not expired, and it resumes when the quorum is back."""

    async def scenario() -> None:
        client = client_of(ensemble, waiting_ms_max=20_000)
        await client.start()
        await client.create("/e", ephemeral=True)
        before = client.session_id
        victims = [server for server in ensemble.servers if server.mode == "follower"]
        for server in victims:
            server.kill()
        await wait_for_state(client, SessionState.SUSPENDED)
        for server in victims:
            server.start()
        stat = await read_until_done(client, "/e")
        assert stat is not None
        assert stat.ephemeral_owner == client.session_id == before
        await client.close()

    run(scenario(), 60)
    ensemble.wait_until_serving()


def test_session_of_a_paused_client_expires(ensemble: RealZooKeeper) -> None:
    """After the pause, the client learns that the ensemble has expired its session."""

    async def scenario() -> None:
        observer = client_of(ensemble)
        await observer.start()
        client = client_of(ensemble, session_timeout_ms=1000)
        await client.start()
        await client.create("/late", ephemeral=True)
        gone: Deferred[object] = Deferred()
        await observer.exists("/late", gone.callback)
        pause_client(client)
        await gone
        request = client.exists("/late")
        resume_client(client)
        with pytest.raises((SessionExpired, ConnectionLoss)):
            await request
        await wait_for_state(client, SessionState.EXPIRED)
        await observer.close()
        await client.close()

    run(scenario(), 60)


def pause_client(client: ZooKeeperClient) -> None:
    """Stop the client's reads and timers, as a pause of its process would."""
    connection: Any = client._session._connection
    connection.transport.pauseProducing()
    connection._timer.cancel()


def resume_client(client: ZooKeeperClient) -> None:
    """Restart the client's reads and timers."""
    connection: Any = client._session._connection
    connection._schedule_check()
    connection.transport.resumeProducing()


def test_host_name_is_resolved_and_a_dead_server_is_skipped(ensemble: RealZooKeeper) -> None:
    """The connect string contains an address without a server, and ``localhost``."""

    async def scenario() -> None:
        from twisted.internet import reactor

        port = ensemble.servers[0].port
        for seed in range(4):
            client = ZooKeeperClient(
                reactor,  # type: ignore[arg-type]
                f"127.0.0.1:9,localhost:{port}",
                random=random.Random(seed),
            )
            await client.start()
            assert client.state is SessionState.CONNECTED
            await client.close()

    run(scenario(), 30)
