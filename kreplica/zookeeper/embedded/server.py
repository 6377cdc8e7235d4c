"""The coordinator as a whole: put together, started and stopped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IAddress, IDelayedCall
from twisted.internet.protocol import Factory
from twisted.logger import Logger
from twisted.python.failure import Failure

from kreplica.errors import StorageError
from kreplica.runtime import Runtime
from kreplica.runtime.disk import DirectoryLock
from kreplica.zookeeper.embedded.commits import GroupCommit
from kreplica.zookeeper.embedded.connection import Connection
from kreplica.zookeeper.embedded.dispatch import Dispatch
from kreplica.zookeeper.embedded.reads import Reads
from kreplica.zookeeper.embedded.session_requests import SessionRequests
from kreplica.zookeeper.embedded.sessions import Sessions
from kreplica.zookeeper.embedded.sqlite_store import SqliteStore
from kreplica.zookeeper.embedded.store import Image, MemoryStore, Store
from kreplica.zookeeper.embedded.tree import Tree, is_expired
from kreplica.zookeeper.embedded.watches import Watches
from kreplica.zookeeper.embedded.words import Words
from kreplica.zookeeper.embedded.writes import Writes
from kreplica.zookeeper.records import FRAME_SIZE_MAX

TICK_TIME_MS = 2_000
CONNECTIONS_MAX = 2_000
EXPENDABLE_CHECK_MS = 60_000
# Later than this, a tick says that the whole process was stopped, not that the clients were silent.
LATE_TICKS_FORGIVEN = 1


class EmbeddedCoordinator:
    """A ZooKeeper server in this process.

    It is started once and stopped once; its state outlives it in the store.

    :param runtime: its clock, network, threads, disk and randomness.
    :param data_directory: made where it does not exist, and locked; None keeps everything in memory.
    :param port: 0 lets the system choose; ``port`` of the started coordinator says which.
    :param tick_time_ms: sessions time out after 2 to 20 of these, whatever their clients ask for.
    :param store: instead of SQLite in the data directory; the coordinator closes it.
    :param connections_max: further ones are closed at once.
    :param frame_size_max: the longest request in bytes (ZooKeeper's ``jute.maxbuffer``).
    :param expendable_check_ms: how often containers and expired znodes are looked for.
    :param on_failure: called when the store fails while running; the coordinator has then cut everybody off.
    """

    _log = Logger()

    def __init__(
        self,
        runtime: Runtime,
        data_directory: str | None = None,
        *,
        port: int = 2181,
        interface: str = "127.0.0.1",
        tick_time_ms: int = TICK_TIME_MS,
        store: Store | None = None,
        connections_max: int = CONNECTIONS_MAX,
        frame_size_max: int = FRAME_SIZE_MAX,
        expendable_check_ms: int = EXPENDABLE_CHECK_MS,
        on_failure: Callable[[Failure], None] | None = None,
    ) -> None:
        self.port = port
        self.interface = interface
        self._runtime = runtime
        self._directory = data_directory
        self._tick_time_ms = tick_time_ms
        self._store = store
        self._connections_max = connections_max
        self._frame_size_max = frame_size_max
        self._expendable_check_ms = expendable_check_ms
        self._on_failure = on_failure
        self._lock: DirectoryLock | None = None
        self._listener: Any = None
        self._timers: dict[str, IDelayedCall] = {}
        self._connections: dict[Connection, None] = {}
        self._tree = Tree()
        self._sessions = Sessions(tick_time_ms, runtime.random)
        self._watches: Watches[Connection] = Watches()
        self._stopping = False

    # --- start and stop ---

    def start(self) -> Deferred[None]:
        """Open the store and listen.

        :raise StorageError: where the data directory cannot be used.
        :raise CannotListenError: where the port is taken.
        """
        return Deferred.fromCoroutine(self._start())

    async def _start(self) -> None:
        store = self._store = self._open_store()
        try:
            image = await store.load()
            self._compose(store, image)
            self._listen()
        except BaseException:
            await self._release()
            raise
        self._tick_due = self._runtime.reactor.seconds()
        self._tick()
        self._remove_expendable()
        self._log.info(
            "coordinator on {interface}:{port}: {znodes} znodes, {sessions} sessions, transaction 0x{zxid:x}",
            interface=self.interface,
            port=self.port,
            znodes=len(self._tree.nodes),
            sessions=len(self._sessions.by_id),
            zxid=self._commits.zxid,
        )

    def stop(self) -> Deferred[None]:
        """Close all connections and the store; sessions live on in it.  Again does nothing."""
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        if self._stopping:
            return
        self._stopping = True
        await self._hang_up()
        if hasattr(self, "_commits"):
            await self._commits.when_idle()
        await self._release()
        self._log.info("coordinator on port {port} stopped", port=self.port)

    async def _hang_up(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        listener, self._listener = self._listener, None
        if listener is not None:
            await maybeDeferred(listener.stopListening)
        for connection in list(self._connections):
            connection.abort()

    async def _release(self) -> None:
        store, self._store = self._store, None
        try:
            if store is not None:
                await store.close()
        finally:
            lock, self._lock = self._lock, None
            if lock is not None:
                lock.release()

    def _open_store(self) -> Store:
        directory = self._directory
        if directory is not None:
            try:
                self._runtime.disk.make_directories(directory)
            except OSError as error:
                raise StorageError(f"{directory} cannot be the coordinator's data directory: {error}") from error
            self._lock = self._runtime.disk.lock_directory(directory)
        if self._store is not None:
            return self._store
        return MemoryStore() if directory is None else SqliteStore(directory, self._runtime.offload)

    def _compose(self, store: Store, image: Image) -> None:
        reactor, wall_clock_ms = self._runtime.reactor, self._runtime.wall_clock_ms
        tree, sessions, watches = self._tree, self._sessions, self._watches
        tree.restore(image.znodes)
        sessions.restore(image.sessions, reactor.seconds())
        commits = self._commits = GroupCommit(reactor, tree, sessions, store, image.zxid, self._fail)
        writes = self._writes = Writes(tree, watches, commits, wall_clock_ms)
        self._session_requests = SessionRequests(
            tree, sessions, watches, commits, writes, reactor.seconds, wall_clock_ms
        )
        words = Words(tree, sessions, watches, commits, self._settings(), lambda: self._connections)
        self._dispatch = Dispatch(
            Reads(tree, watches, commits),
            writes,
            self._session_requests,
            commits,
            reactor.seconds,
            self._admit,
            self._forget,
            words.answer,
            self._frame_size_max,
        )

    def _settings(self) -> dict[str, object]:
        return {
            "clientPort": self.port,
            "dataDir": self._directory or "",
            "tickTime": self._tick_time_ms,
            "maxClientCnxns": self._connections_max,
            "minSessionTimeout": self._sessions.timeout_ms_min,
            "maxSessionTimeout": self._sessions.timeout_ms_max,
            "jute.maxbuffer": self._frame_size_max,
        }

    def _listen(self) -> None:
        factory = _Connections(self._dispatch)
        self._listener = self._runtime.reactor.listenTCP(self.port, factory, interface=self.interface)
        self.port = self._listener.getHost().port

    # --- connections ---

    def _admit(self, connection: Connection) -> bool:
        if self._stopping or len(self._connections) >= self._connections_max:
            return False
        self._connections[connection] = None
        return True

    def _forget(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
        self._session_requests.connection_lost(connection)

    # --- time ---

    def _tick(self) -> None:
        reactor = self._runtime.reactor
        tick_s = self._tick_time_ms / 2000
        late_s = reactor.seconds() - self._tick_due
        if late_s > LATE_TICKS_FORGIVEN * tick_s:
            self._log.warn("this process stood still for {late_s:.1f} s; sessions get that time back", late_s=late_s)
            self._sessions.forgive(late_s)
        self._session_requests.expire()
        self._tick_due = reactor.seconds() + tick_s
        self._timers["tick"] = reactor.callLater(tick_s, self._tick)

    def _remove_expendable(self) -> None:
        now_ms, nodes = self._runtime.wall_clock_ms(), self._tree.nodes
        expired = [path for path in self._tree.expendable if is_expired(nodes[path], now_ms)]
        if expired:
            self._writes.remove(expired)
        check_s = self._expendable_check_ms / 1000
        self._timers["expendable"] = self._runtime.reactor.callLater(check_s, self._remove_expendable)

    # --- the worst ---

    def _fail(self, failure: Failure) -> None:
        # The tree in memory may be ahead of what is durable: nobody may see it any more.
        self._log.failure("the coordinator's store failed; all connections are closed", failure)
        self._stopping = True
        Deferred.fromCoroutine(self._give_up(failure)).addErrback(
            lambda also: self._log.failure("while closing after that", also)
        )

    async def _give_up(self, failure: Failure) -> None:
        await self._hang_up()
        await self._release()
        if self._on_failure is not None:
            self._on_failure(failure)


class _Connections(Factory):
    noisy = False

    def __init__(self, dispatch: Dispatch) -> None:
        self._dispatch = dispatch

    def buildProtocol(self, addr: IAddress | None) -> Connection:
        connection = Connection(self._dispatch)
        connection.factory = self
        return connection
