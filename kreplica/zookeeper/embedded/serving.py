"""Twisted factory of a running server, with its state, components, open connections and timers."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address

from twisted.internet.interfaces import IAddress, IDelayedCall
from twisted.internet.protocol import Factory
from twisted.logger import Logger
from twisted.python.failure import Failure

from kreplica.runtime import Runtime
from kreplica.zookeeper.embedded.authentication import Authentication, UnauthenticatedDispatch
from kreplica.zookeeper.embedded.commits import GroupCommit
from kreplica.zookeeper.embedded.connection import Connection, ServerInterface
from kreplica.zookeeper.embedded.dispatch import Dispatch
from kreplica.zookeeper.embedded.four_letter_words import FourLetterWords
from kreplica.zookeeper.embedded.quota import Quota
from kreplica.zookeeper.embedded.reads import Reads
from kreplica.zookeeper.embedded.session_requests import SessionRequests
from kreplica.zookeeper.embedded.sessions import Sessions
from kreplica.zookeeper.embedded.settings import AnonymousClients, ZooKeeperServerSettings
from kreplica.zookeeper.embedded.store import Image, Store
from kreplica.zookeeper.embedded.tree import Tree
from kreplica.zookeeper.embedded.watches import Watches
from kreplica.zookeeper.embedded.writes import Writes
from kreplica.zookeeper.embedded.znode import is_expired


class ServerFactory(Factory):
    """Creates the connections of a running server and owns its state, components and timers.

    :param on_failure: called once, if the store fails.
    :ivar connections: the open connections.
    :ivar connections_rejected: number of connections rejected because of a limit since the start.
    """

    noisy = False
    _log = Logger()

    def __init__(
        self,
        runtime: Runtime,
        settings: ZooKeeperServerSettings,
        store: Store,
        image: Image,
        on_failure: Callable[[Failure], None],
    ) -> None:
        self._runtime = runtime
        self._settings = settings
        self.connections: dict[Connection, None] = {}
        self.connections_rejected = 0
        self._address_counts: dict[str, int] = {}
        self._timers: dict[str, IDelayedCall] = {}
        self._stopped = False
        reactor, wall_clock_ms = runtime.reactor, runtime.wall_clock_ms
        self.tree = Tree(Quota(settings.quota))
        self.tree.restore(image.znodes)
        secret_random = runtime.secret_random
        self.sessions = Sessions(settings.tick_time_ms, secret_random)
        self.sessions.restore(image.sessions, reactor.seconds())
        self.watches: Watches[Connection] = Watches()
        self.commits = GroupCommit(reactor, self.tree, self.sessions, store, image.zxid, on_failure)
        self._writes = Writes(self.tree, self.watches, self.commits, wall_clock_ms)
        self._requests = SessionRequests(
            self.tree,
            self.sessions,
            self.watches,
            self.commits,
            self._writes,
            reactor.seconds,
            wall_clock_ms,
            settings.sessions_max,
        )
        self._words = FourLetterWords(
            self.tree,
            self.sessions,
            self.watches,
            self.commits,
            settings,
            self.connections,
            lambda: self.connections_rejected,
        )
        self._dispatch = Dispatch(
            Reads(self.tree, self.watches, self.commits),
            self._writes,
            self._requests,
            self.commits,
            ServerInterface(
                self.admit,
                self.forget,
                self._words.respond,
                settings.frame_size_max,
                reactor.seconds,
                lambda function: reactor.callLater(0, function),
            ),
            Authentication(settings.users, secret_random),
        )
        self._unauthenticated = UnauthenticatedDispatch(self._dispatch)

    # --- time ---

    def start_clock(self) -> None:
        """Start the timers that expire sessions and expendable znodes."""
        self._tick_due = self._runtime.reactor.seconds()
        self._tick()
        self._remove_expendable()

    def _tick(self) -> None:
        reactor = self._runtime.reactor
        tick_s = self._settings.tick_time_ms / 2000
        late_s = reactor.seconds() - self._tick_due
        if late_s > tick_s:
            # No ping could be received in that time, so it must not count towards the session timeouts.
            self._log.warn("this process was paused for {late_s:.1f} s; sessions are extended by that", late_s=late_s)
            self.sessions.extend(late_s)
        self._requests.expire()
        self._drop_without_session(reactor.seconds() - self.sessions.timeout_ms_max / 1000)
        self._tick_due = reactor.seconds() + tick_s
        self._timers["tick"] = reactor.callLater(tick_s, self._tick)

    def _drop_without_session(self, opened_before: float) -> None:
        """Close connections without a session that were opened before the given time."""
        for connection in list(self.connections):
            if connection.session is None and connection.opened < opened_before:
                connection.abort()

    def _remove_expendable(self) -> None:
        now_ms, nodes = self._runtime.wall_clock_ms(), self.tree.nodes
        expired = [path for path in self.tree.expendable if is_expired(nodes[path], now_ms)]
        if expired:
            self._writes.remove(expired)
        check_s = self._settings.expendable_check_ms / 1000
        self._timers["expendable"] = self._runtime.reactor.callLater(check_s, self._remove_expendable)

    def expire(self, session_id: int) -> None:
        """Expire a session immediately, as if its client had been silent for too long; idempotent."""
        session = self.sessions.by_id.get(session_id)
        if session is not None:
            session.last_heard = float("-inf")
            self._requests.expire()

    def disconnect_all(self) -> None:
        """Stop the timers and close all connections; sessions remain."""
        self._stopped = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for connection in list(self.connections):
            connection.abort()

    # --- connections ---

    def buildProtocol(self, addr: IAddress | None) -> Connection:
        dispatch = self._dispatch if self._may_be_anonymous(addr) else self._unauthenticated
        connection = Connection(dispatch, self._runtime.reactor.seconds())
        connection.factory = self
        return connection

    def _may_be_anonymous(self, addr: IAddress | None) -> bool:
        anonymous = self._settings.anonymous
        if anonymous is not AnonymousClients.LOCAL:
            return anonymous is AnonymousClients.ALL
        try:
            return ip_address(getattr(addr, "host", "")).is_loopback
        except ValueError:
            return False

    def admit(self, connection: Connection) -> bool:
        """Register a new connection; return False if its address or the server has too many connections."""
        settings = self._settings
        from_address = self._address_counts.get(connection.address, 0)
        if (
            self._stopped
            or len(self.connections) >= settings.connections_max
            or from_address >= settings.address_connections_max
        ):
            self.connections_rejected += 1
            return False
        self.connections[connection] = None
        self._address_counts[connection.address] = from_address + 1
        return True

    def forget(self, connection: Connection) -> None:
        """Unregister a lost connection; a connection that was refused is not registered."""
        if connection in self.connections:
            del self.connections[connection]
            self._address_counts[connection.address] -= 1
            if not self._address_counts[connection.address]:
                del self._address_counts[connection.address]
        self._requests.connection_lost(connection)
