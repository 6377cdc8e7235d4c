"""Handlers of write requests: each is one transaction, applied immediately and acknowledged when durable."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeAlias

from kreplica.errors import ProtocolError
from kreplica.zookeeper.embedded.access import Identity, effective_acl, is_allowed
from kreplica.zookeeper.embedded.commits import Commits, ResponseQueue
from kreplica.zookeeper.embedded.connection import Connection
from kreplica.zookeeper.embedded.operations import CREATE_TTL, PlainChange, decode_change, decode_changes
from kreplica.zookeeper.embedded.quota import (
    REGISTRATION_BYTES_MAX,
    REGISTRATIONS,
    ZNODE_OVERHEAD_BYTES,
    acl_size,
    data_size,
)
from kreplica.zookeeper.embedded.tree import Tree
from kreplica.zookeeper.embedded.watches import Notice, Watches
from kreplica.zookeeper.embedded.znode import CONTAINER_OWNER, TTL_MS_MAX, TTL_OWNER_BASE, Znode, is_valid_path
from kreplica.zookeeper.errors import BadArguments, NoNode, RuntimeInconsistency, ZooKeeperError
from kreplica.zookeeper.jute import pack_text
from kreplica.zookeeper.records import (
    OPEN_ACL,
    XID_WATCH_EVENT,
    Acl,
    EventType,
    KeeperState,
    Opcode,
    Permission,
    WatchEvent,
    encode_watch_event,
    reply_frame,
)
from kreplica.zookeeper.requests import MULTI_HEADER, SetAcl
from kreplica.zookeeper.responses import encode_multi_failure

# Flags of a create.
_EPHEMERAL_FLAGS = (1, 3)
_SEQUENCE_FLAGS = (2, 3, 6)
_CONTAINER_FLAG = 4
_TIME_TO_LIVE_FLAGS = (5, 6)
_FLAGS_MAX = 6

_CREATE = int(Opcode.CREATE)
_MULTI_END = MULTI_HEADER.pack(-1, True, -1)

# Result of an operation: the response body, and the znode that the operation created, changed or deleted, if any.
Applied: TypeAlias = tuple[bytes, Znode | None]


class Requester(ResponseQueue, Protocol):
    """Client that sent a write: a connection or, in the simulated ensemble, a client of another server.

    :ivar identities: authenticated identities of the client.
    """

    identities: tuple[Identity, ...]

    @property
    def session_id(self) -> int:
        """ID of the client's session."""

    def count_unsent(self, size: int) -> None:
        """Count a response or event that was added to the sink; close the connection if too many bytes are unsent."""


class Writes:
    """Serves writes and sends watch events; one per server.

    :param wall_clock_ms: returns the time for ``ctime`` and ``mtime``.
    """

    def __init__(
        self, tree: Tree, watches: Watches[Connection], commits: Commits, wall_clock_ms: Callable[[], int]
    ) -> None:
        self._tree = tree
        self._watches = watches
        self._commits = commits
        self._wall_clock_ms = wall_clock_ms
        self._appliers: dict[int, Callable[[Requester, PlainChange, int, int], Applied]] = {
            Opcode.CREATE: self._create,
            Opcode.CREATE2: self._create,
            Opcode.CREATE_CONTAINER: self._create,
            Opcode.CREATE_TTL: self._create,
            Opcode.SET_DATA: self._set_data,
            Opcode.DELETE: self._delete,
            Opcode.CHECK: self._check,
        }
        self._result_headers = {opcode: MULTI_HEADER.pack(opcode, False, 0) for opcode in self._appliers}
        for opcode in (Opcode.CREATE_CONTAINER, Opcode.CREATE_TTL):
            self._result_headers[opcode] = self._result_headers[Opcode.CREATE2]

    # --- requests ---

    def change(self, connection: Requester, xid: int, opcode: int, data: bytes, position: int, end: int) -> None:
        """Serve a single create, setData, delete or check."""
        change, stop = decode_change(opcode, data, position, end)
        if stop != end:
            raise ProtocolError("request", f"{end - stop} bytes too many")
        commits = self._commits
        zxid = commits.zxid + 1
        body, node = self._appliers[opcode](connection, change, zxid, self._wall_clock_ms())
        commits.zxid = zxid
        if node is not None and self._watches:
            self._send_events(self._notices(opcode, node), zxid, node)
        commits.sink_for_change(connection).append(reply_frame(xid, zxid, 0, body))

    def multi(self, connection: Requester, xid: int, opcode: int, data: bytes, position: int, end: int) -> None:
        """Serve a multi."""
        changes = decode_changes(data, position, end)
        commits = self._commits
        zxid, time_ms = commits.zxid + 1, self._wall_clock_ms()
        pieces: list[bytes] = []
        changed: list[tuple[int, Znode]] = []
        self._tree.begin()
        for change in changes:
            try:
                body, node = self._appliers[change[0]](connection, change, zxid, time_ms)
            except ZooKeeperError as error:
                self._tree.roll_back()
                self._send_failed_multi(connection, xid, len(changes), len(pieces), error)
                return
            pieces.append(self._result_headers[change[0]] + body)
            if node is not None:
                changed.append((change[0], node))
        self._tree.commit()
        commits.zxid = zxid
        if self._watches:
            for changed_by, node in changed:
                self._send_events(self._notices(changed_by, node), zxid, node)
        pieces.append(_MULTI_END)
        response = reply_frame(xid, zxid, 0, b"".join(pieces))
        connection.count_unsent(len(response))
        commits.sink_for_change(connection).append(response)

    def _send_failed_multi(
        self, connection: Requester, xid: int, count: int, failed_index: int, error: ZooKeeperError
    ) -> None:
        codes = [0] * failed_index + [error.code] + [RuntimeInconsistency.code] * (count - failed_index - 1)
        sink = self._commits.sink_for_tree(connection)
        sink.append(reply_frame(xid, connection.barrier.zxid, 0, encode_multi_failure(codes)))

    def set_acl(self, connection: Requester, xid: int, request: SetAcl) -> None:
        """Replace a znode's ACL; no watches fire."""
        if not is_valid_path(request.path):
            raise BadArguments(request.path)
        acl = effective_acl(request.acl, connection.identities, request.path)
        before = self._tree.nodes.get(request.path)
        if before is not None:
            self._check_growth(connection, request.path, acl_size(acl) - acl_size(before.acl))
        node = self._tree.set_acl(request.path, acl, request.version, connection.identities)
        self._commits.zxid += 1
        sink = self._commits.sink_for_change(connection)
        sink.append(reply_frame(xid, self._commits.zxid, 0, node.pack_stat()))

    def remove(self, paths: Iterable[str]) -> None:
        """Delete expired znodes, or those of a closed session, in one transaction, regardless of their ACLs.

        The zxid is incremented even if there are no znodes to delete, because closing a session is a transaction.
        """
        commits = self._commits
        commits.zxid += 1
        removed = [self._tree.remove(path, commits.zxid) for path in paths]
        commits.transaction_applied()
        for node in removed:
            self._send_events(self._watches.deleted(node.path), commits.zxid, node)

    # --- operations ---

    def _create(self, connection: Requester, change: PlainChange, zxid: int, time_ms: int) -> Applied:
        opcode, path, value, acl, flags, time_to_live_ms = change
        if acl is not OPEN_ACL:
            acl = self._tree.acls.share(effective_acl(acl, connection.identities, path))
        owner = 0
        if flags or opcode == CREATE_TTL:
            owner = self._owner(connection, opcode, path, flags, time_to_live_ms)
        growth = ZNODE_OVERHEAD_BYTES + 2 * len(path) + data_size(value) + acl_size(acl)
        self._check_quota(connection, path, growth, owner)
        node = self._tree.create(
            path, value, acl, owner, flags in _SEQUENCE_FLAGS, connection.identities, zxid, time_ms
        )
        packed_path = pack_text(node.path)
        return (packed_path if opcode == _CREATE else packed_path + node.pack_stat()), node

    def _owner(self, connection: Requester, opcode: int, path: str, flags: int, time_to_live_ms: int) -> int:
        if not 0 <= flags <= _FLAGS_MAX or (flags in _TIME_TO_LIVE_FLAGS) != (opcode == CREATE_TTL):
            raise BadArguments(path, f"creation flags {flags} are invalid in operation {opcode}")
        if flags in _EPHEMERAL_FLAGS:
            return connection.session_id
        if flags == _CONTAINER_FLAG:
            return CONTAINER_OWNER
        if flags in _TIME_TO_LIVE_FLAGS:
            if not 0 < time_to_live_ms <= TTL_MS_MAX:
                raise BadArguments(path, f"time to live {time_to_live_ms} ms is not between 1 and {TTL_MS_MAX}")
            return TTL_OWNER_BASE + time_to_live_ms
        return 0

    def _check_quota(self, connection: Requester, path: str, growth: int, owner: int = 0, nodes: int = 1) -> None:
        quota = self._tree.quota
        if owner > 0:
            quota.check_ephemerals(path, len(self._tree.ephemerals.get(owner, ())))
        if quota.needs_reserve(growth, nodes):
            registers = owner > 0 and REGISTRATIONS in path and growth <= REGISTRATION_BYTES_MAX
            is_broker = registers or self._is_broker(connection.session_id)
            quota.check(path, growth, nodes, is_broker=is_broker)

    def _is_broker(self, session_id: int) -> bool:
        return any(REGISTRATIONS in path for path in self._tree.ephemerals.get(session_id, ()))

    def _check_growth(self, connection: Requester, path: str, growth: int) -> None:
        if growth > 0:
            self._check_quota(connection, path, growth, nodes=0)

    def _set_data(self, connection: Requester, change: PlainChange, zxid: int, time_ms: int) -> Applied:
        before = self._tree.nodes.get(change[1])
        if before is not None:
            self._check_growth(connection, change[1], data_size(change[2]) - data_size(before.data))
        node = self._tree.set_data(change[1], change[2], change[4], connection.identities, zxid, time_ms)
        return node.pack_stat(), node

    def _delete(self, connection: Requester, change: PlainChange, zxid: int, time_ms: int) -> Applied:
        return b"", self._tree.delete(change[1], change[4], connection.identities, zxid)

    def _check(self, connection: Requester, change: PlainChange, zxid: int, time_ms: int) -> Applied:
        self._tree.check(change[1], change[4], connection.identities)
        return b"", None

    # --- watches ---

    def _notices(self, opcode: int, node: Znode) -> Sequence[Notice[Connection]]:
        if opcode == Opcode.SET_DATA:
            return self._watches.data_changed(node.path)
        if opcode == Opcode.DELETE:
            return self._watches.deleted(node.path)
        return self._watches.created(node.path)

    def _send_events(self, notices: Sequence[Notice[Connection]], zxid: int, node: Znode) -> None:
        frames: dict[tuple[EventType, str], bytes] = {}
        for connection, type_, path in notices:
            # Watchers without READ permission receive no event.  A deleted znode is no longer in the tree.
            acl = self._acl(path, node)
            if acl is not OPEN_ACL and not is_allowed(acl, Permission.READ, connection.identities):
                continue
            frame = frames.get((type_, path))
            if frame is None:
                frame = frames[type_, path] = event_frame(type_, path, zxid)
            self._commits.sink_for_change(connection).append(frame)
            connection.count_unsent(len(frame))

    def _acl(self, path: str, node: Znode) -> tuple[Acl, ...]:
        if path == node.path:
            return node.acl
        try:
            return self._tree.get(path).acl
        except NoNode:
            return OPEN_ACL


def event_frame(type_: EventType, path: str, zxid: int) -> bytes:
    """Encode a watch event."""
    event = WatchEvent(type_, KeeperState.SYNC_CONNECTED, path)
    return reply_frame(XID_WATCH_EVENT, zxid, 0, encode_watch_event(event))
