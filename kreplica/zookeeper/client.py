"""The client: ZooKeeper's operations, each a Deferred, on one pipelined connection."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from kreplica.runtime import Reactor
from kreplica.zookeeper.chroot import Chroot
from kreplica.zookeeper.ensemble import Ensemble, TlsContextFactory
from kreplica.zookeeper.errors import NodeExists, NoNode
from kreplica.zookeeper.multi import multi_decoder
from kreplica.zookeeper.records import FRAME_SIZE_MAX, OPEN_ACL, Acl, AddWatchMode, Opcode, Stat
from kreplica.zookeeper.requests import (
    ANY_VERSION,
    AddWatch,
    Create,
    Delete,
    Exists,
    GetAcl,
    GetChildren,
    GetData,
    Operation,
    Read,
    SetAcl,
    SetData,
    Sync,
    encode_operations,
)
from kreplica.zookeeper.responses import (
    Created,
    OperationResult,
    ReadResult,
    decode_acl,
    decode_children,
    decode_created,
    decode_data,
    decode_empty,
    decode_multi_read_results,
    decode_path,
    decode_stat,
)
from kreplica.zookeeper.sasl import SaslCredentials
from kreplica.zookeeper.session import ANSWER_SIZE_MAX, Session, SessionOptions, SessionState
from kreplica.zookeeper.standing_watch import Watch
from kreplica.zookeeper.watches import WatchListener

_log = Logger()

SessionListener = Callable[[SessionState], None]


class ZooKeeperClient:
    """A client of one ensemble.

    It has one session at a time and makes none by itself but the first (``start``).  When that has ended (``EXPIRED``,
    ``AUTH_FAILED``) every request fails, until the caller asks for another session with ``renew``, on purpose.

    What becomes of a request:

    * while ``CONNECTED`` it is sent; the answer or a typed error comes
    * while ``CONNECTING`` or ``SUSPENDED`` it waits for a connection, for at most ``waiting_ms_max``, then fails
      with ``NotSent``
    * a request that was sent on a connection that is then lost fails with ``ConnectionLoss``: whether it took effect
      is unknown, and only the caller can find out
    * when the session ends, all fail at once with ``SessionExpired`` (or ``AuthFailed``, ``ClientClosed``)

    Session listeners hear of a change before any request fails or is answered because of it.  A one-shot watch calls
    its listener once; watches move with the session to another server and end with it.

    :param connect_string: ``host:port,host:port/chroot``.
    :param random: shuffles the servers and makes the jitter between tries.
    :param session_timeout_ms: as asked for; the server grants it within its own limits.
    :param connection_timeout_ms: how long ``start`` and ``renew`` try.
    :param auth: (scheme, credentials) of identities, such as ``("digest", b"user:password")``.
    :param sasl: a user for SASL DIGEST-MD5.
    :param tls_context_factory: makes a connection creator for a server's host name
        (``twisted.internet.ssl.optionsForClientTLS``); None is plain TCP.
    :param resume: (``session_id``, ``session_password``) of a session to continue; ``start`` fails with
        ``SessionExpired`` where it has ended.  None makes a new one.
    :param frame_size_max: the servers' ``jute.maxbuffer``, in bytes: larger requests fail with ``RequestTooLarge``.
    :param answer_size_max: in bytes; a larger answer ends the connection.
    :param requests_max: requests without an answer; one more fails with ``PipelineFull``, as it does beyond
        ``request_bytes_max`` bytes of them.
    :param waiting_ms_max: None is the session's timeout.
    """

    def __init__(
        self,
        reactor: Reactor,
        connect_string: str,
        *,
        random: random.Random,
        session_timeout_ms: int = 18_000,
        connection_timeout_ms: int = 30_000,
        auth: Sequence[tuple[str, bytes]] = (),
        sasl: SaslCredentials | None = None,
        tls_context_factory: TlsContextFactory | None = None,
        resume: tuple[int, bytes] | None = None,
        frame_size_max: int = FRAME_SIZE_MAX,
        answer_size_max: int = ANSWER_SIZE_MAX,
        requests_max: int = 100_000,
        request_bytes_max: int = 64 * 1024 * 1024,
        waiting_ms_max: int | None = None,
    ) -> None:
        self._reactor = reactor
        self._random = random
        self._ensemble = Ensemble.parse(connect_string)
        self._chroot = Chroot(self._ensemble.chroot)
        self._absolute = self._chroot.absolute
        self._connection_timeout_s = connection_timeout_ms / 1000
        self._options = SessionOptions(
            timeout_ms=session_timeout_ms,
            auth=tuple(auth),
            sasl=sasl,
            tls_context_factory=tls_context_factory,
            resume=resume,
            frame_size_max=frame_size_max,
            answer_size_max=answer_size_max,
            requests_max=requests_max,
            request_bytes_max=request_bytes_max,
            waiting_ms_max=waiting_ms_max,
        )
        self._listeners: list[SessionListener] = []
        self._session = Session(reactor, self._ensemble, random, self, self._options)
        self._started = False

    # The session.

    def start(self) -> Deferred[None]:
        """Establish the first session; called once.

        :return: fires when it is there; fails with ``OperationTimeout`` after ``connection_timeout_ms``, with
            ``AuthFailed`` where the credentials are refused, with ``ClientClosed`` after ``close``.
        """
        assert not self._started, "a client is started once; renew() makes another session"
        self._started = True
        return self._session.start(self._connection_timeout_s)

    def renew(self) -> Deferred[None]:
        """Establish another session in place of one that has ended (also of one that could not be established).

        Nothing moves over: neither watches nor requests.

        :return: as ``start``.
        """
        assert self._session.state.ended, "the session has not ended"
        options = replace(self._options, resume=None)
        self._session = Session(self._reactor, self._ensemble, self._random, self, options)
        return self._session.start(self._connection_timeout_s)

    def close(self) -> Deferred[None]:
        """End the session, after the answers to earlier requests; ephemeral znodes are gone when this fires.

        A session that has no connection just now is left to expire.
        """
        return self._session.close()

    @property
    def state(self) -> SessionState:
        """Of the present session."""
        return self._session.state

    @property
    def session_id(self) -> int:
        """The present session's; 0 before it is established."""
        return self._session.id

    @property
    def session_password(self) -> bytes:
        """What proves that a session is ours, for ``resume``; a secret."""
        return self._session.password

    @property
    def session_timeout_ms(self) -> int:
        """As the server has granted it; before that as asked for."""
        return self._session.timeout_ms

    @property
    def last_zxid(self) -> int:
        """The last transaction of the ensemble that the session has seen."""
        return self._session.last_zxid

    @property
    def last_problem(self) -> str:
        """Why the last attempt to reach a server failed; empty while the session has a connection."""
        return self._session.problem

    @property
    def server_accepted(self) -> bool:
        """True if a server has accepted a connection of the present session, even if it opened no session."""
        return self._session.server_accepted

    @property
    def session_may_have_expired(self) -> bool:
        """Whether the server may have given the session up although nothing has said so.

        True once the session's timeout has passed since it was last confirmed.  Whoever acts on the strength of an
        ephemeral znode stops acting then, for another may act in its place.
        """
        return self._session.may_have_expired

    def on_session_event(self, listener: SessionListener) -> Callable[[], None]:
        """Have a listener called with each new state of the session.

        :return: call it to stop that; again does nothing.
        """
        # A wrapper of its own makes each registration removable apart, also of the same listener.
        entry: SessionListener = lambda state: listener(state)  # noqa: E731
        self._listeners.append(entry)

        def remove() -> None:
            if entry in self._listeners:
                self._listeners.remove(entry)

        return remove

    def session_changed(self, session: Session, state: SessionState) -> None:
        """Called by the session."""
        if session is not self._session:
            return
        for listener in tuple(self._listeners):
            try:
                listener(state)
            except Exception:
                _log.failure("A session listener failed on {state}", state=state)

    # Operations on one znode.

    def create(
        self,
        path: str,
        data: bytes | None = b"",
        *,
        acl: tuple[Acl, ...] = OPEN_ACL,
        ephemeral: bool = False,
        sequence: bool = False,
    ) -> Deferred[Created]:
        """Make a znode.

        :param data: None makes one without data, which ZooKeeper's Java client can tell from empty data.
        :param ephemeral: it goes when the session ends.
        :param sequence: a ten-digit counter is appended to the path.
        :return: its (path, stat).
        :raise NodeExists: also ``NoNode`` without a parent, ``NoChildrenForEphemerals``, ``InvalidAcl``, ``NoAuth``.
        """
        request = Create(self._absolute(path), data, acl, ephemeral, sequence)
        return self._session.submit(Opcode.CREATE2, request.encode(), self._decode_created, path)

    def delete(self, path: str, version: int = ANY_VERSION) -> Deferred[None]:
        """Remove a znode.

        :param version: that its data must have; -1 is any.
        :raise NoNode: also ``BadVersion``, ``NotEmpty``, ``NoAuth``.
        """
        body = Delete(self._absolute(path), version).encode()
        return self._session.submit(Opcode.DELETE, body, decode_empty, path)

    def exists(self, path: str, watch: WatchListener | None = None) -> Deferred[Stat | None]:
        """Read a znode's stat; None where there is no such znode.

        :param watch: called once, when the znode is made, changed or deleted.
        """
        absolute = self._absolute(path)
        body = Exists(absolute, watch is not None).encode()
        answered = watch and self._session.watches.left_by_exists(absolute, self._chroot.listener(watch))
        answer: Deferred[Stat | None] = self._session.submit(Opcode.EXISTS, body, decode_stat, path, answered)
        return answer.addErrback(_none_without_node)

    def get_data(self, path: str, watch: WatchListener | None = None) -> Deferred[tuple[bytes, Stat]]:
        """Read a znode's data and stat.

        :param watch: called once, when the data changes or the znode is deleted; not left where the read fails.
        :raise NoNode: or ``NoAuth``.
        """
        absolute = self._absolute(path)
        body = GetData(absolute, watch is not None).encode()
        answered = watch and self._session.watches.left_by_data(absolute, self._chroot.listener(watch))
        return self._session.submit(Opcode.GET_DATA, body, decode_data, path, answered)

    def set_data(self, path: str, data: bytes, version: int = ANY_VERSION) -> Deferred[Stat]:
        """Replace a znode's data.

        :param version: that its data must have; -1 is any.
        :raise NoNode: also ``BadVersion``, ``NoAuth``.
        """
        body = SetData(self._absolute(path), data, version).encode()
        return self._session.submit(Opcode.SET_DATA, body, decode_stat, path)

    def get_children(self, path: str, watch: WatchListener | None = None) -> Deferred[list[str]]:
        """Read the names of a znode's children, in no particular order.

        :param watch: called once, when a child is made or deleted, or the znode itself is deleted.
        :raise NoNode: or ``NoAuth``.
        """
        absolute = self._absolute(path)
        body = GetChildren(absolute, watch is not None).encode()
        answered = watch and self._session.watches.left_by_children(absolute, self._chroot.listener(watch))
        return self._session.submit(Opcode.GET_CHILDREN, body, decode_children, path, answered)

    def get_acl(self, path: str) -> Deferred[tuple[tuple[Acl, ...], Stat]]:
        """Read a znode's ACL and stat."""
        return self._session.submit(Opcode.GET_ACL, GetAcl(self._absolute(path)).encode(), decode_acl, path)

    def set_acl(self, path: str, acl: tuple[Acl, ...], version: int = ANY_VERSION) -> Deferred[Stat]:
        """Replace a znode's ACL.

        :param version: of the ACL (``Stat.acl_version``); -1 is any.
        """
        body = SetAcl(self._absolute(path), acl, version).encode()
        return self._session.submit(Opcode.SET_ACL, body, decode_stat, path)

    def sync(self, path: str = "/") -> Deferred[str]:
        """Let this client's server catch up with the leader; reads made after this see all earlier writes."""
        return self._session.submit(
            Opcode.SYNC,
            Sync(self._absolute(path)).encode(),
            lambda *body: self._chroot.relative(decode_path(*body)),
            path,
        )

    # Several at once.

    def multi(self, operations: Sequence[Operation]) -> Deferred[list[OperationResult]]:
        """Do all of these operations, in order, or none.

        :return: one result per operation: ``Created``, ``Stat`` (SetData) or None (Delete, Check).
        :raise MultiFailed: naming the first operation that failed; nothing was done.
        """
        absolute = (
            [each._replace(path=self._absolute(each.path)) for each in operations] if self._chroot.path else operations
        )
        decode = multi_decoder(operations, self._chroot.relative if self._chroot.path else None)
        return self._session.submit(Opcode.MULTI, encode_operations(absolute), decode, None)

    def multi_read(self, reads: Sequence[Read]) -> Deferred[list[ReadResult]]:
        """Answer all of these reads from one state of the tree (ZooKeeper 3.6 and newer).

        :param reads: without watches.
        :return: per read: (data, stat), a list of children's names, or the error (``NoNode``, ``NoAuth``) as a value.
        :raise Unimplemented: where the server is too old; some close the connection instead (``ConnectionLoss``).
        """
        paths = [each.path for each in reads]
        absolute = [each._replace(path=self._absolute(each.path)) for each in reads] if self._chroot.path else reads
        return self._session.submit(
            Opcode.MULTI_READ,
            encode_operations(absolute),
            lambda data, start, end: decode_multi_read_results(data, start, end, paths),
            None,
        )

    # Watches that stay.

    def add_watch(self, path: str, listener: WatchListener, *, recursive: bool = False) -> Deferred[Watch]:
        """Have a listener called with every change of a znode, until it is removed or the session ends.

        What changes while the connection is lost is never told.  When it is back, the listener is called with an event
        of type ``NONE`` and the watched path: read again whatever is derived from it.  (ZooKeeper 3.6 and newer.)

        :param recursive: also of all znodes below it; each tells of itself, so there is no news of children then.
        """
        absolute = self._absolute(path)
        mode = AddWatchMode.PERSISTENT_RECURSIVE if recursive else AddWatchMode.PERSISTENT
        watch = Watch(self._session, path, absolute, mode, self._chroot.listener(listener))
        body = AddWatch(absolute, mode).encode()
        return self._session.submit(Opcode.ADD_WATCH, body, watch.decode, path, watch.answered)

    # The chroot.

    def create_chroot(self) -> Deferred[None]:
        """Make the chroot's znode and those above it, where they do not exist."""
        return Deferred.fromCoroutine(self._create_chroot())

    async def _create_chroot(self) -> None:
        for path in self._chroot.prefixes():
            found = self._session.submit(Opcode.EXISTS, Exists(path).encode(), decode_stat, path)
            if await found.addErrback(_none_without_node) is not None:
                continue
            try:
                await self._session.submit(Opcode.CREATE2, Create(path).encode(), decode_created, path)
            except NodeExists:
                pass  # another client was quicker

    def _decode_created(self, data: bytes, start: int, end: int) -> Created:
        created = decode_created(data, start, end)
        return created._replace(path=self._chroot.relative(created.path)) if self._chroot.path else created


def _none_without_node(failure: Failure) -> None:
    if not isinstance(failure.value, NoNode):
        failure.raiseException()
