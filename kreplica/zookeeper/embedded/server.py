"""``EmbeddedZooKeeper``: starts and stops the embedded ZooKeeper server."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred, DeferredLock, maybeDeferred
from twisted.internet.interfaces import IOpenSSLServerConnectionCreator
from twisted.logger import Logger
from twisted.python.failure import Failure

from kreplica.errors import StorageError, reason_of
from kreplica.runtime import Runtime
from kreplica.runtime.disk import DirectoryLock, make_directories_durably
from kreplica.zookeeper.embedded.connection import Connection
from kreplica.zookeeper.embedded.serving import ServerFactory
from kreplica.zookeeper.embedded.settings import ZooKeeperServerSettings
from kreplica.zookeeper.embedded.sqlite_store import SqliteStore
from kreplica.zookeeper.embedded.store import MemoryStore, Store


class TlsListener(NamedTuple):
    """Settings of an additional listener with TLS.

    :param port: 0 lets the system choose.
    :param creator: creates the TLS connections; if it requires client certificates, their subjects are identities.
    """

    interface: str
    port: int
    creator: IOpenSSLServerConnectionCreator


class EmbeddedZooKeeper:
    """A ZooKeeper server in this process; an instance can be started and stopped only once.

    :param runtime: clock, network, threads, disk and randomness.
    :param data_directory: created if it does not exist, and locked; None keeps all state in memory.
    :param port: 0 lets the system choose; after ``start``, the attribute ``port`` is the actual port.
    :param store: used instead of SQLite in the data directory; closed by ``stop``.
    :param on_failure: called if the store fails while the server is running, after all connections have been closed.
    :param settings: tick time, users and limits; ``tick_time_ms`` overrides the tick time.
    :param tls: additional listener; after ``start``, the attribute ``tls_port`` is its actual port.
    """

    _log = Logger()

    def __init__(
        self,
        runtime: Runtime,
        data_directory: str | None = None,
        *,
        port: int = 2181,
        interface: str = "127.0.0.1",
        tick_time_ms: int | None = None,
        store: Store | None = None,
        settings: ZooKeeperServerSettings | None = None,
        on_failure: Callable[[Failure], None] | None = None,
        tls: TlsListener | None = None,
    ) -> None:
        settings = settings or ZooKeeperServerSettings()
        self.port = port
        self.interface = interface
        self.tls_port: int | None = None
        self._tls = tls
        self._runtime = runtime
        self._directory = data_directory
        self._settings = settings if tick_time_ms is None else replace(settings, tick_time_ms=tick_time_ms)
        self._store = store
        self._on_failure = on_failure
        self._lock: DirectoryLock | None = None
        self._serving: ServerFactory | None = None
        self._listeners: list[Any] = []
        # Serializes start, stop and the stop after a failure.
        self._lifecycle = DeferredLock()

    def start(self) -> Deferred[None]:
        """Open the store and listen.

        :raise StorageError: if the data directory cannot be used.
        :raise CannotListenError: if the port is in use.
        """
        return self._lifecycle.run(lambda: Deferred.fromCoroutine(self._start()))

    async def _start(self) -> None:
        try:
            store = self._store = self._open_store()
            image = await store.load()
            serving = ServerFactory(self._runtime, self._settings, store, image, self._fail)
            self._listen(serving)
        except BaseException:
            await self._stop_listening()
            await self._release()
            raise
        self._serving = serving
        serving.start_clock()
        self._log.info(
            "ZooKeeper server on {interface}:{port}: {znodes} znodes, {sessions} sessions, zxid 0x{zxid:x}",
            interface=self.interface,
            port=self.port,
            znodes=len(serving.tree.nodes),
            sessions=len(serving.sessions.by_id),
            zxid=serving.commits.zxid,
        )

    def _listen(self, serving: ServerFactory) -> None:
        listen = self._runtime.reactor.listenTCP
        self._listeners.append(listen(self.port, serving, interface=self.interface))
        self.port = self._listeners[0].getHost().port
        if self._tls is not None:
            # Imported here because it imports OpenSSL.
            from twisted.protocols.tls import TLSMemoryBIOFactory

            factory: Any = TLSMemoryBIOFactory(self._tls.creator, False, serving)
            factory.noisy = False
            self._listeners.append(listen(self._tls.port, factory, interface=self._tls.interface))
            self.tls_port = self._listeners[1].getHost().port

    async def _stop_listening(self) -> None:
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            await maybeDeferred(listener.stopListening)

    @property
    def serving(self) -> ServerFactory | None:
        """The running server with its znodes and sessions, for inspection; None before ``start`` and after ``stop``."""
        return self._serving

    @property
    def connections(self) -> Collection[Connection]:
        """Open connections."""
        return () if self._serving is None else self._serving.connections

    def stop(self) -> Deferred[None]:
        """Close all connections and the store; sessions remain in the store.  Idempotent."""
        return self._lifecycle.run(lambda: Deferred.fromCoroutine(self._stop()))

    async def _stop(self) -> None:
        serving, self._serving = self._serving, None
        await self._stop_listening()
        if serving is not None:
            serving.disconnect_all()
            await serving.commits.when_idle()
            self._log.info("ZooKeeper server on port {port} stopped", port=self.port)
        await self._release()

    async def _release(self) -> None:
        store, self._store = self._store, None
        lock, self._lock = self._lock, None
        try:
            if store is not None:
                await store.close()
        finally:
            if lock is not None:
                lock.release()

    def _open_store(self) -> Store:
        directory = self._directory
        if directory is not None:
            try:
                make_directories_durably(self._runtime.disk, directory)
            except OSError as error:
                text = f"{directory} cannot be the embedded ZooKeeper's data directory: {reason_of(error)}"
                raise StorageError(text) from error
            self._lock = self._runtime.disk.lock_directory(directory)
        if self._store is not None:
            return self._store
        return MemoryStore() if directory is None else SqliteStore(directory, self._runtime.offload)

    def _fail(self, failure: Failure) -> None:
        # The tree in memory may be ahead of the durable state, so no client may read it.
        if failure.check(StorageError, OSError):
            # A traceback would not help to diagnose a device failure.
            reason = failure.getErrorMessage()
            self._log.error(
                "the embedded ZooKeeper's store failed; all connections are closed: {reason}", reason=reason
            )
        else:
            self._log.failure("the embedded ZooKeeper's store failed; all connections are closed", failure)
        if self._serving is not None:
            self._serving.disconnect_all()
        self.stop().addBoth(self._failed, failure)

    def _failed(self, outcome: Any, failure: Failure) -> None:
        if isinstance(outcome, Failure):
            self._log.failure("cannot close the embedded ZooKeeper after its store failed", outcome)
        if self._on_failure is not None:
            self._on_failure(failure)
