"""ZooKeeper client: pipelined operations on one connection, each returning a Deferred."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from kreplica.runtime import Reactor
from kreplica.zookeeper.chroot import Chroot, create_znodes
from kreplica.zookeeper.default_acls import AclOf, with_default_acls
from kreplica.zookeeper.digest_md5 import SaslCredentials
from kreplica.zookeeper.ensemble import Ensemble, TlsContextFactory
from kreplica.zookeeper.errors import NoNode
from kreplica.zookeeper.jute import pack_text_and_flag
from kreplica.zookeeper.multi import multi_decoder
from kreplica.zookeeper.persistent_watch import Watch
from kreplica.zookeeper.records import FRAME_SIZE_MAX, OPEN_ACL, Acl, AddWatchMode, Opcode, Stat
from kreplica.zookeeper.requests import (
    ANY_VERSION,
    AddWatch,
    Create,
    Delete,
    GetAcl,
    Operation,
    Read,
    SetAcl,
    Sync,
    encode_operations,
    encode_set_data,
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
from kreplica.zookeeper.session import Session, SessionState
from kreplica.zookeeper.session_options import RESPONSE_SIZE_MAX, SessionOptions
from kreplica.zookeeper.watches import WatchListener

_log = Logger()

SessionListener = Callable[[SessionState], None]


class ZooKeeperClient:
    """Client of one ensemble.

    It has one session at a time.  ``start`` establishes the first one.  After a session has ended (``EXPIRED``,
    ``AUTH_FAILED``), every request fails until the caller establishes a new session with ``renew``.

    Request handling depends on the session's state:

    * ``CONNECTED``: the request is sent; it completes with the response or with a typed error.
    * ``CONNECTING`` or ``SUSPENDED``: the request waits for a connection for at most ``waiting_ms_max``, then fails
      with ``NotSent``.
    * If the connection is lost after the request was sent, it fails with ``ConnectionLoss``; the request may or may
      not have taken effect.
    * When the session ends, all pending requests fail with ``SessionExpired``, ``AuthFailed`` or ``ClientClosed``.

    Session listeners are called before any request completes or fails because of a state change.  A one-shot watch
    calls its listener once.  Watches move to another server with the session and end with it.

    :param connect_string: ``host:port,host:port/chroot``.
    :param random: shuffles the servers and provides the jitter between connection attempts.
    :param session_timeout_ms: requested session timeout; the server clamps it to its own limits.
    :param connection_timeout_ms: time limit of ``start`` and ``renew``.
    :param auth: (scheme, credentials) pairs that authenticate the session, such as ``("digest", b"user:password")``.
    :param sasl: credentials for SASL DIGEST-MD5.
    :param tls_context_factory: creates a connection creator for a server's host name
        (``twisted.internet.ssl.optionsForClientTLS``); None means plain TCP.  If the creator has an attribute
        ``certificate_error``, errors contain it.
    :param acl_of: returns the ACL of each znode that the caller creates with ``OPEN_ACL``, the default.
    :param resume: (``session_id``, ``session_password``) of a session to resume; ``start`` fails with
        ``SessionExpired`` if it has ended.  None creates a new session.
    :param frame_size_max: the servers' ``jute.maxbuffer``, in bytes; larger requests fail with ``RequestTooLarge``.
    :param response_size_max: maximum response size in bytes; a larger response closes the connection.
    :param requests_max: maximum number of unanswered requests; further requests fail with ``PipelineFull``.
    :param request_bytes_max: maximum total size of unanswered requests; beyond it requests fail with ``PipelineFull``.
    :param waiting_ms_max: maximum time for which a request waits for a connection; None means the session timeout.
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
        acl_of: AclOf | None = None,
        resume: tuple[int, bytes] | None = None,
        frame_size_max: int = FRAME_SIZE_MAX,
        response_size_max: int = RESPONSE_SIZE_MAX,
        requests_max: int = 100_000,
        request_bytes_max: int = 64 * 1024 * 1024,
        waiting_ms_max: int | None = None,
    ) -> None:
        self._reactor = reactor
        self._random = random
        self._ensemble = Ensemble.parse(connect_string)
        self._chroot = Chroot(self._ensemble.chroot)
        self._absolute = self._chroot.absolute
        self._acl_of = acl_of
        self._connection_timeout_s = connection_timeout_ms / 1000
        self._options = SessionOptions(
            timeout_ms=session_timeout_ms,
            auth=tuple(auth),
            sasl=sasl,
            tls_context_factory=tls_context_factory,
            resume=resume,
            frame_size_max=frame_size_max,
            response_size_max=response_size_max,
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

        :return: fires when the session is established; fails with ``OperationTimeout`` after
            ``connection_timeout_ms``, with ``AuthFailed`` if the server rejects the credentials, and with
            ``ClientClosed`` after ``close``.
        """
        assert not self._started, "start() must be called only once; renew() establishes a new session"
        self._started = True
        return self._session.start(self._connection_timeout_s)

    def renew(self) -> Deferred[None]:
        """Replace a session that has ended, or that could not be established, with a new one.

        Watches and requests of the old session are not carried over.

        :return: as for ``start``.
        """
        assert self._session.state.ended, "the session has not ended"
        self._session = Session(self._reactor, self._ensemble, self._random, self, replace(self._options, resume=None))
        return self._session.start(self._connection_timeout_s)

    def close(self) -> Deferred[None]:
        """Close the session after the responses to earlier requests; fires when the connection is closed.

        A session without a connection is left to expire at the server.
        """
        return self._session.close()

    @property
    def state(self) -> SessionState:
        """State of the current session."""
        return self._session.state

    @property
    def session_id(self) -> int:
        """ID of the current session; 0 before it is established."""
        return self._session.id

    @property
    def session_password(self) -> bytes:
        """Password of the session, for ``resume``; secret."""
        return self._session.password

    @property
    def session_timeout_ms(self) -> int:
        """Negotiated session timeout; before the handshake, the requested one."""
        return self._session.timeout_ms

    @property
    def watches_count(self) -> int:
        """Number of watches in the session: one per path and kind, as the server counts them."""
        return self._session.watches.count

    @property
    def last_zxid(self) -> int:
        """Last transaction ID (zxid) that the session has seen."""
        return self._session.last_zxid

    @property
    def last_problem(self) -> str:
        """Reason why the last attempt to reach a server failed; empty while the session has a connection."""
        return self._session.problem

    @property
    def server_accepted(self) -> bool:
        """True if a server has accepted a connection of the current session, even if it did not establish it."""
        return self._session.server_accepted

    @property
    def session_may_have_expired(self) -> bool:
        """True if the server may have expired the session without this client knowing.

        This is the case once the session timeout has passed since the server last confirmed the session.  A process
        that relies on an ephemeral znode (such as the controller) must then stop acting, because another process may
        have replaced it.
        """
        return self._session.may_have_expired

    def on_session_event(self, listener: SessionListener) -> Callable[[], None]:
        """Call a listener with each new state of the session.

        :return: a function that removes the listener; idempotent.
        """
        # One wrapper per registration, so that a listener registered twice can be removed once.
        entry: SessionListener = lambda state: listener(state)  # noqa: E731
        self._listeners.append(entry)

        def remove() -> None:
            if entry in self._listeners:
                self._listeners.remove(entry)

        return remove

    def session_changed(self, session: Session, state: SessionState) -> None:
        """Notify the listeners; called by the session."""
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
        """Create a znode.

        :param data: None creates a znode without data, which ZooKeeper's Java client distinguishes from empty data.
        :param ephemeral: the server deletes the znode when the session ends.
        :param sequence: the server appends a ten-digit counter to the path.
        :return: (path, stat).
        :raise NodeExists: or ``NoNode`` (no parent), ``NoChildrenForEphemerals``, ``InvalidAcl``, ``NoAuth``.
        """
        if self._acl_of is not None and acl is OPEN_ACL:
            acl = self._acl_of(path)
        request = Create(self._absolute(path), data, acl, ephemeral, sequence)
        return self._session.submit(Opcode.CREATE2, request.encode(), self._decode_created, path)

    def delete(self, path: str, version: int = ANY_VERSION) -> Deferred[None]:
        """Delete a znode.

        :param version: expected data version; -1 matches any.
        :raise NoNode: or ``BadVersion``, ``NotEmpty``, ``NoAuth``.
        """
        body = Delete(self._absolute(path), version).encode()
        return self._session.submit(Opcode.DELETE, body, decode_empty, path)

    def exists(self, path: str, watch: WatchListener | None = None) -> Deferred[Stat | None]:
        """Read a znode's stat; the result is None if the znode does not exist.

        :param watch: called once, when the znode is created, changed or deleted.
        """
        absolute = self._absolute(path)
        body = pack_text_and_flag(absolute, watch is not None)
        on_response = watch and self._session.watches.prepare_exists(absolute, self._chroot.listener(watch))
        result: Deferred[Stat | None] = self._session.submit(Opcode.EXISTS, body, decode_stat, path, on_response)
        return result.addErrback(_none_if_no_node)

    def get_data(self, path: str, watch: WatchListener | None = None) -> Deferred[tuple[bytes, Stat]]:
        """Read a znode's data and stat.

        :param watch: called once, when the data changes or the znode is deleted; not registered if the read fails.
        :raise NoNode: or ``NoAuth``.
        """
        absolute = self._absolute(path)
        body = pack_text_and_flag(absolute, watch is not None)
        on_response = watch and self._session.watches.prepare_data(absolute, self._chroot.listener(watch))
        return self._session.submit(Opcode.GET_DATA, body, decode_data, path, on_response)

    def set_data(self, path: str, data: bytes, version: int = ANY_VERSION) -> Deferred[Stat]:
        """Replace a znode's data.

        :param version: expected data version; -1 matches any.
        :raise NoNode: or ``BadVersion``, ``NoAuth``.
        """
        body = encode_set_data(self._absolute(path), data, version)
        return self._session.submit(Opcode.SET_DATA, body, decode_stat, path)

    def get_children(self, path: str, watch: WatchListener | None = None) -> Deferred[list[str]]:
        """Read the names of a znode's children, in no particular order.

        :param watch: called once, when a child is created or deleted, or the znode itself is deleted.
        :raise NoNode: or ``NoAuth``.
        """
        absolute = self._absolute(path)
        body = pack_text_and_flag(absolute, watch is not None)
        on_response = watch and self._session.watches.prepare_children(absolute, self._chroot.listener(watch))
        return self._session.submit(Opcode.GET_CHILDREN, body, decode_children, path, on_response)

    def get_acl(self, path: str) -> Deferred[tuple[tuple[Acl, ...], Stat]]:
        """Read a znode's ACL and stat."""
        return self._session.submit(Opcode.GET_ACL, GetAcl(self._absolute(path)).encode(), decode_acl, path)

    def set_acl(self, path: str, acl: tuple[Acl, ...], version: int = ANY_VERSION) -> Deferred[Stat]:
        """Replace a znode's ACL.

        :param version: expected ACL version (``Stat.acl_version``); -1 matches any.
        """
        body = SetAcl(self._absolute(path), acl, version).encode()
        return self._session.submit(Opcode.SET_ACL, body, decode_stat, path)

    def sync(self, path: str = "/") -> Deferred[str]:
        """Make this client's server catch up with the leader; later reads see all earlier writes."""
        return self._session.submit(
            Opcode.SYNC,
            Sync(self._absolute(path)).encode(),
            lambda *body: self._chroot.relative(decode_path(*body)),
            path,
        )

    # Operations on several znodes.

    def multi(self, operations: Sequence[Operation]) -> Deferred[list[OperationResult]]:
        """Apply all of these operations in order, or none of them.

        :return: one result per operation: ``Created``, ``Stat`` (SetData) or None (Delete, Check).
        :raise MultiFailed: an operation failed, so none was applied; contains the index of the operation that failed.
        """
        absolute = operations if self._acl_of is None else with_default_acls(operations, self._acl_of)
        if self._chroot.path:
            absolute = [each._replace(path=self._absolute(each.path)) for each in absolute]
        decode = multi_decoder(operations, self._chroot.relative if self._chroot.path else None)
        return self._session.submit(Opcode.MULTI, encode_operations(absolute), decode, None)

    def multi_read(self, reads: Sequence[Read]) -> Deferred[list[ReadResult]]:
        """Perform all of these reads on one state of the tree (ZooKeeper 3.6 and newer).

        :param reads: without watches.
        :return: for each read: (data, stat), a list of child names, or the error (``NoNode``, ``NoAuth``) as a value.
        :raise Unimplemented: if the server is too old; some old servers close the connection (``ConnectionLoss``).
        """
        paths = [each.path for each in reads]
        absolute = [each._replace(path=self._absolute(each.path)) for each in reads] if self._chroot.path else reads
        return self._session.submit(
            Opcode.MULTI_READ,
            encode_operations(absolute),
            lambda data, start, end: decode_multi_read_results(data, start, end, paths),
            None,
        )

    # Persistent watches.

    def add_watch(self, path: str, listener: WatchListener, *, recursive: bool = False) -> Deferred[Watch]:
        """Call a listener for every change to a znode until the watch is removed or the session ends.

        Changes made while the connection is lost are not delivered.  After the reconnect, the listener is called with
        an event of type ``NONE`` and the watched path, and must read the state again.  Requires ZooKeeper 3.6.

        :param recursive: also watch all descendants; the server then sends no NODE_CHILDREN_CHANGED events.
        """
        absolute = self._absolute(path)
        mode = AddWatchMode.PERSISTENT_RECURSIVE if recursive else AddWatchMode.PERSISTENT
        watch = Watch(self._session, path, absolute, mode, self._chroot.listener(listener))
        body = AddWatch(absolute, mode).encode()
        return self._session.submit(Opcode.ADD_WATCH, body, watch.decode, path, watch.on_response)

    # The chroot.

    def create_chroot(self) -> Deferred[None]:
        """Create the chroot's znode and its ancestors if they do not exist."""
        return Deferred.fromCoroutine(create_znodes(self._chroot.prefixes(), self._session.submit, self._acl_of))

    def _decode_created(self, data: bytes, start: int, end: int) -> Created:
        created = decode_created(data, start, end)
        return created._replace(path=self._chroot.relative(created.path)) if self._chroot.path else created


def _none_if_no_node(failure: Failure) -> None:
    if not isinstance(failure.value, NoNode):
        failure.raiseException()
