"""Lost connections, expiry and refusal of sessions, on real, embedded and simulated servers."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred, DeferredList

from kreplica.zookeeper import (
    AuthFailed,
    ClientClosed,
    ConnectionLoss,
    EventType,
    NotSent,
    OperationTimeout,
    SessionExpired,
    SessionState,
    ZooKeeperClient,
)
from tests.support.zookeeper_scene import Events, Scene, ServerUnderTest

CONNECTED, SUSPENDED, EXPIRED = SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.EXPIRED


class States(list[SessionState]):
    """A session listener that records the states and can be awaited."""

    def __init__(self, client: ZooKeeperClient) -> None:
        super().__init__()
        self._waiters: list[tuple[SessionState, Deferred[None]]] = []
        self.stop = client.on_session_event(self._on_state)

    def _on_state(self, state: SessionState) -> None:
        self.append(state)
        waiters, self._waiters = self._waiters, []
        for expected, waiter in waiters:
            if expected is state:
                waiter.callback(None)
            else:
                self._waiters.append((expected, waiter))

    def next(self, state: SessionState) -> Deferred[None]:
        """Return a Deferred that fires with the next change to a state."""
        waiter: Deferred[None] = Deferred()
        self._waiters.append((state, waiter))
        return waiter


def test_session_survives_a_lost_connection(zookeeper_server: ServerUnderTest) -> None:
    """The session is suspended and then connected again, with its ID, ephemeral znodes and pending requests."""

    async def scenario(scene: Scene) -> None:
        link = scene.link()
        client = await scene.client(connect_string=link.connect_string)
        states = States(client)
        await client.create("/e", b"1", ephemeral=True)
        before = client.session_id
        suspended = states.next(SUSPENDED)
        link.cut()
        await suspended
        assert client.state is SUSPENDED
        data, _ = await client.get_data("/e")
        assert data == b"1"
        assert states == [SUSPENDED, CONNECTED]
        assert client.session_id == before

    zookeeper_server.run(scenario)


def test_requests_in_flight_fail_after_the_session_event(
    zookeeper_server: ServerUnderTest,
) -> None:
    """Listeners are notified of the lost connection before any request fails with an unknown outcome."""

    async def scenario(scene: Scene) -> None:
        link = scene.link()
        client = await scene.client(connect_string=link.connect_string)
        await client.create("/a", b"")
        calls: list[str] = []
        client.on_session_event(lambda state: calls.append(state.name))
        link.freeze()
        writes = [client.set_data("/a", b"%d" % number) for number in range(3)]
        for write in writes:
            write.addErrback(lambda failure: calls.append(type(failure.value).__name__))
        scene.reactor.callLater(0.05, link.cut)
        await DeferredList(writes)
        assert calls == ["SUSPENDED", "ConnectionLoss", "ConnectionLoss", "ConnectionLoss"]
        await client.sync()
        assert calls[-1] == "CONNECTED"

    zookeeper_server.run(scenario)


def test_watches_move_to_the_next_connection(zookeeper_server: ServerUnderTest) -> None:
    """Missed changes are sent at once; persistent watches report that they may have missed events."""

    async def scenario(scene: Scene) -> None:
        link = scene.link()
        watcher, writer = await scene.client(connect_string=link.connect_string), await scene.client()
        for path in ("/data", "/children", "/deleted", "/quiet", "/persistent"):
            await writer.create(path)
        data, children, made, deleted, quiet, persistent = (Events() for _ in range(6))
        await watcher.get_data("/data", data)
        await watcher.get_children("/children", children)
        await watcher.exists("/made", made)
        await watcher.get_data("/deleted", deleted)
        await watcher.get_data("/quiet", quiet)
        await watcher.add_watch("/persistent", persistent)
        await watcher.add_watch("/deep", persistent, recursive=True)
        suspended = States(watcher).next(SUSPENDED)
        await link.stop()
        await suspended
        await writer.set_data("/data", b"1")
        await writer.create("/children/c")
        await writer.create("/made")
        await writer.delete("/deleted")
        await writer.set_data("/persistent", b"missed")
        link.restart()
        await watcher.sync()
        assert [(await each.get()).type for each in (data, children, made, deleted)] == [
            EventType.NODE_DATA_CHANGED,
            EventType.NODE_CHILDREN_CHANGED,
            EventType.NODE_CREATED,
            EventType.NODE_DELETED,
        ]
        assert [(event.type, event.path) for event in persistent.unheard] == [
            (EventType.NONE, "/persistent"),
            (EventType.NONE, "/deep"),
        ]
        persistent.pending.clear()
        await writer.set_data("/quiet", b"1")
        await writer.set_data("/persistent", b"1")
        await writer.create("/deep")
        await writer.create("/deep/er")
        await watcher.sync()
        assert [event.path for event in quiet.unheard] == ["/quiet"]
        assert [event.path for event in persistent.unheard] == ["/persistent", "/deep", "/deep/er"]

    zookeeper_server.run(scenario)


def test_expired_session_is_renewed_by_its_owner_only(zookeeper_server: ServerUnderTest) -> None:
    """No session is created before ``renew`` is called, and the new session gets no events of the old one."""

    async def scenario(scene: Scene) -> None:
        link = scene.link()
        client = await scene.client(connect_string=link.connect_string)
        states = States(client)
        await client.create("/e", ephemeral=True)
        events = Events()
        await client.get_data("/e", events)
        old = client.session_id
        suspended, expired = states.next(SUSPENDED), states.next(EXPIRED)
        await link.stop()
        await suspended
        calls: list[object] = []
        client.on_session_event(calls.append)
        waiting = client.create("/from-the-old-session")
        waiting.addErrback(lambda failure: calls.append(type(failure.value)))
        await scene.expire(client)
        link.restart()
        await expired
        await waiting
        assert calls == [EXPIRED, SessionExpired]
        with pytest.raises(SessionExpired):
            await client.exists("/e")
        assert client.session_may_have_expired

        await client.renew()
        assert client.state is CONNECTED
        assert client.session_id != old
        assert await client.exists("/e") is None
        assert await client.exists("/from-the-old-session") is None
        await client.create("/e")
        await client.sync()
        assert events.unheard == []
        assert not client.session_may_have_expired

    zookeeper_server.run(scenario)


def test_expiry_while_connected_is_detected(zookeeper_server: ServerUnderTest) -> None:
    """The client learns of the expiry from a closed connection or a refused request."""

    async def scenario(scene: Scene) -> None:
        client = await scene.client(session_timeout_ms=1000)
        expired = States(client).next(EXPIRED)
        await scene.expire(client)
        await expired
        assert client.state is EXPIRED

    zookeeper_server.run(scenario)


def test_session_is_resumed_by_another_client(zookeeper_server: ServerUnderTest) -> None:
    """The other client needs the ID and the password; a wrong password, ID or an expired session is refused."""

    async def scenario(scene: Scene) -> None:
        link = scene.link()
        first = await scene.client(connect_string=link.connect_string)
        await first.create("/e", ephemeral=True)
        identity = (first.session_id, first.session_password)
        await link.stop()
        second = await scene.client(resume=identity)
        assert second.session_id == identity[0]
        stat = await second.exists("/e")
        assert stat is not None
        assert stat.ephemeral_owner == identity[0]
        for wrong in ((identity[0], b"\x01" * 16), (0x1234567, identity[1])):
            with pytest.raises(SessionExpired):
                await scene.new_client(resume=wrong).start()
        assert await second.exists("/e") is not None
        await second.close()
        with pytest.raises(SessionExpired):
            await scene.new_client(resume=identity).start()

    zookeeper_server.run(scenario)


def test_silent_server_is_abandoned_in_time(zookeeper_server: ServerUnderTest) -> None:
    """A connection on which nothing arrives is closed after two thirds of the session timeout."""

    async def scenario(scene: Scene) -> None:
        link = scene.link()
        client = await scene.client(connect_string=link.connect_string, session_timeout_ms=1200)
        states = States(client)
        started = scene.reactor.seconds()
        suspended, connected = states.next(SUSPENDED), states.next(CONNECTED)
        link.freeze()
        request = client.exists("/")
        await suspended
        assert 0.7 < scene.reactor.seconds() - started < 3
        with pytest.raises(ConnectionLoss, match="silent"):
            await request
        await connected

    zookeeper_server.run(scenario)


def test_idle_session_is_kept_alive(zookeeper_server: ServerUnderTest) -> None:
    """Pings alone keep the session alive for more than twice its timeout."""

    async def scenario(scene: Scene) -> None:
        client = await scene.client(session_timeout_ms=800)
        states = States(client)
        idle: Deferred[None] = Deferred()
        scene.reactor.callLater(2.0, idle.callback, None)
        await idle
        assert await client.exists("/x") is None
        assert states == []
        assert not client.session_may_have_expired

    zookeeper_server.run(scenario)


def test_server_limits_the_session_timeout(zookeeper_server: ServerUnderTest) -> None:
    """The client uses the granted value."""

    async def scenario(scene: Scene) -> None:
        modest = await scene.client(session_timeout_ms=3000)
        greedy = await scene.client(session_timeout_ms=10_000_000)
        assert modest.session_timeout_ms == 3000
        assert 3000 < greedy.session_timeout_ms < 10_000_000

    zookeeper_server.run(scenario)


def test_refused_credentials_end_the_session(zookeeper_server: ServerUnderTest) -> None:
    """With an unknown scheme, ``start`` and all requests fail, and nothing is retried."""

    async def scenario(scene: Scene) -> None:
        client = scene.new_client(auth=[("nosuch", b"x")])
        states = States(client)
        early = client.exists("/")
        with pytest.raises(AuthFailed):
            await client.start()
        for request in (early, client.exists("/")):
            with pytest.raises(AuthFailed):
                await request
        assert states == [SessionState.AUTH_FAILED]

    zookeeper_server.run(scenario)


def test_close_lets_earlier_requests_finish(zookeeper_server: ServerUnderTest) -> None:
    """Requests sent before ``close`` complete; later ones are refused."""

    async def scenario(scene: Scene) -> None:
        client, other = await scene.client(), await scene.client()
        made = [client.create(f"/{number}", ephemeral=number > 50) for number in range(100)]
        closed = client.close()
        late = client.create("/late")
        outcomes = await DeferredList(made)
        assert all(succeeded for succeeded, _ in outcomes)
        with pytest.raises(ClientClosed):
            await late
        await closed
        await client.close()
        assert client.state is SessionState.CLOSED
        assert len(await other.get_children("/")) == 51

    zookeeper_server.run(scenario)


def test_start_without_a_server_fails(zookeeper_server: ServerUnderTest) -> None:
    """After a timeout, ``start`` raises an error that contains the last failure."""

    async def scenario(scene: Scene) -> None:
        link = scene.link()
        await link.stop()
        client = scene.new_client(connect_string=link.connect_string, connection_timeout_ms=300)
        request = client.exists("/")
        with pytest.raises(OperationTimeout, match=r"no session within 0\.3 s; last attempt: 127.*refused"):
            await client.start()
        assert client.state is SessionState.CLOSED
        with pytest.raises(NotSent):
            await request

    zookeeper_server.run(scenario)


def test_requests_without_a_connection_time_out(zookeeper_server: ServerUnderTest) -> None:
    """The requests fail as not sent, so they have changed nothing; the session continues."""

    async def scenario(scene: Scene) -> None:
        link = scene.link()
        client = await scene.client(connect_string=link.connect_string, waiting_ms_max=100)
        suspended = States(client).next(SUSPENDED)
        await link.stop()
        await suspended
        early = client.create("/a")
        cancelled = client.create("/b")
        cancelled.addErrback(lambda failure: None)
        cancelled.cancel()
        with pytest.raises(NotSent, match=r"no connection for 0\.1 s"):
            await early
        link.restart()
        connected = States(client).next(CONNECTED)
        await connected
        assert await client.get_children("/") == []

    zookeeper_server.run(scenario)


def test_failing_listener_does_not_affect_others(zookeeper_server: ServerUnderTest) -> None:
    """Other listeners and responses are not affected; a removed listener is no longer called."""

    async def scenario(scene: Scene) -> None:
        client = scene.new_client()
        heard: list[Any] = []

        def fail(event: object) -> None:
            heard.append("failed")
            raise RuntimeError("an error in a listener")

        client.on_session_event(fail)
        remove = client.on_session_event(heard.append)
        await client.start()
        await client.create_chroot()
        assert heard == ["failed", CONNECTED]
        remove()
        remove()
        await client.create("/a")
        await client.get_data("/a", fail)
        await client.get_data("/a", heard.append)
        await client.set_data("/a", b"1")
        await client.close()
        assert [each if isinstance(each, str) else type(each).__name__ for each in heard] == [
            *("failed", "SessionState", "failed", "WatchEvent", "failed"),
        ]

    zookeeper_server.run(scenario)
