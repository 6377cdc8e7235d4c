"""Handlers of read requests.

The handlers of the most frequent requests, ``get_data`` and ``exists``, decode the request body
(``data[position:end]``) themselves; the others receive decoded requests.  A handler appends one response to the
connection's sink or raises an error.  A ``ZooKeeperError`` becomes an error response; a decoding error closes the
connection.
"""

from __future__ import annotations

from struct import Struct

from kreplica.errors import ProtocolError
from kreplica.zookeeper.embedded.access import check_access, hide_digests, may_see_digests
from kreplica.zookeeper.embedded.commits import Commits
from kreplica.zookeeper.embedded.connection import Connection
from kreplica.zookeeper.embedded.tree import Tree
from kreplica.zookeeper.embedded.watches import Watches
from kreplica.zookeeper.embedded.znode import Znode
from kreplica.zookeeper.errors import MarshallingError, NoNode, ZooKeeperError
from kreplica.zookeeper.jute import unpack_int32
from kreplica.zookeeper.records import OPEN_ACL, STAT, Permission, reply_frame
from kreplica.zookeeper.requests import (
    GetAcl,
    GetAllChildrenNumber,
    GetChildren,
    GetData,
    GetEphemerals,
    MultiRead,
    Sync,
)
from kreplica.zookeeper.responses import (
    ReadResult,
    encode_acl,
    encode_children,
    encode_children_and_stat,
    encode_count,
    encode_multi_read_results,
    encode_path,
)

# Maximum size of the response to one multi-read.
MULTI_READ_BYTES_MAX = 16 << 20
# Larger responses are counted as unsent bytes, so that a slow client cannot make the server buffer an unlimited number.
LARGE_RESPONSE_BYTES = 1024

# Frame length, xid, zxid, error code (0) and data length.
_DATA_RESPONSE = Struct(">iiqii")
_DATA_RESPONSE_FIXED_SIZE = _DATA_RESPONSE.size - 4 + STAT.size


def _path_and_watch(data: bytes, position: int, end: int) -> tuple[str, int]:
    start = position + 4
    stop = start + unpack_int32(data, position)[0]
    if stop + 1 != end:
        raise ProtocolError("read", f"a path of {stop - start} bytes in a body of {end - position} bytes")
    return data[start:stop].decode(), data[stop]


class Reads:
    """Serves reads; one per server."""

    def __init__(self, tree: Tree, watches: Watches[Connection], commits: Commits) -> None:
        self._tree = tree
        self._watches = watches
        self._commits = commits

    def get_data(self, connection: Connection, xid: int, opcode: int, data: bytes, position: int, end: int) -> None:
        path, watch = _path_and_watch(data, position, end)
        node = self._tree.nodes.get(path)
        if node is None:
            raise NoNode(path)
        if node.acl is not OPEN_ACL:
            check_access(node.acl, Permission.READ, connection.identities, path)
        if watch:
            self._watches.data.add(path, connection)
        sink = self._commits.sink_for_znode(connection, path)
        value = node.data
        if value is None:
            size, value = -1, b""
        else:
            size = len(value)
            if size > LARGE_RESPONSE_BYTES:
                connection.count_unsent(size)
        header = _DATA_RESPONSE.pack(_DATA_RESPONSE_FIXED_SIZE + len(value), xid, connection.barrier.zxid, 0, size)
        sink.append(header + value + node.pack_stat())

    def exists(self, connection: Connection, xid: int, opcode: int, data: bytes, position: int, end: int) -> None:
        path, watch = _path_and_watch(data, position, end)
        node = self._tree.nodes.get(path)
        if node is not None and node.acl is not OPEN_ACL:
            check_access(node.acl, Permission.READ, connection.identities, path)
        if watch:
            self._watches.data.add(path, connection)
        if node is None:
            raise NoNode(path)
        sink = self._commits.sink_for_znode(connection, path)
        sink.append(reply_frame(xid, connection.barrier.zxid, 0, node.pack_stat()))

    def get_children(self, connection: Connection, xid: int, request: GetChildren) -> None:
        """Serve getChildren and getChildren2."""
        names, node = self._children(connection, request)
        self._commits.sink_for_znode(connection, request.path)
        body = encode_children_and_stat(names, node.stat()) if request.with_stat else encode_children(names)
        _respond(connection, xid, body)

    def _children(self, connection: Connection, request: GetChildren) -> tuple[list[str], Znode]:
        node = self._tree.get(request.path)
        check_access(node.acl, Permission.READ, connection.identities, request.path)
        if request.watch:
            self._watches.children.add(request.path, connection)
        return list(node.children or ()), node

    def get_acl(self, connection: Connection, xid: int, request: GetAcl) -> None:
        """Serve getACL; password hashes are hidden from clients without ADMIN permission."""
        node = self._tree.get(request.path)
        check_access(node.acl, Permission.READ | Permission.ADMIN, connection.identities, request.path)
        acl = node.acl if may_see_digests(node.acl, connection.identities) else hide_digests(node.acl)
        self._commits.sink_for_znode(connection, request.path)
        _respond(connection, xid, encode_acl(acl, node.stat()))

    def sync(self, connection: Connection, xid: int, request: Sync) -> None:
        """Respond when all earlier transactions are durable."""
        self._commits.sink_for_tree(connection)
        _respond(connection, xid, encode_path(request.path))

    def get_ephemerals(self, connection: Connection, xid: int, request: GetEphemerals) -> None:
        """List the ephemeral znodes of this session."""
        own = self._tree.ephemerals.get(connection.session_id, {})
        self._commits.sink_for_tree(connection)
        _respond(connection, xid, encode_children([path for path in own if path.startswith(request.prefix)]))

    def get_all_children_number(self, connection: Connection, xid: int, request: GetAllChildrenNumber) -> None:
        node = self._tree.get(request.path)
        check_access(node.acl, Permission.READ, connection.identities, request.path)
        self._commits.sink_for_tree(connection)
        _respond(connection, xid, encode_count(self._tree.count_below(request.path)))

    def multi_read(self, connection: Connection, xid: int, request: MultiRead) -> None:
        """Serve all reads from one state of the tree; a read can fail without failing the others.

        :raise MarshallingError: if the response would be too large.
        """
        results: list[ReadResult] = []
        size = 0
        for member in request.reads:
            result = self._read_one(connection, member)
            size += _size_of(result)
            if size > MULTI_READ_BYTES_MAX:
                raise MarshallingError(member.path, f"the response would be larger than {MULTI_READ_BYTES_MAX} bytes")
            results.append(result)
        self._commits.sink_for_tree(connection)
        _respond(connection, xid, encode_multi_read_results(results))

    def _read_one(self, connection: Connection, member: GetData | GetChildren) -> ReadResult:
        try:
            if isinstance(member, GetChildren):
                return self._children(connection, member._replace(watch=False))[0]
            node = self._tree.get(member.path)
            check_access(node.acl, Permission.READ, connection.identities, member.path)
        except ZooKeeperError as error:
            return error
        return node.data or b"", node.stat()


def _respond(connection: Connection, xid: int, body: bytes) -> None:
    if len(body) > LARGE_RESPONSE_BYTES:
        connection.count_unsent(len(body))
    connection.sink.append(reply_frame(xid, connection.barrier.zxid, 0, body))


def _size_of(result: ReadResult) -> int:
    if isinstance(result, ZooKeeperError):
        return 13
    if isinstance(result, list):
        return sum(len(name) + 4 for name in result)
    return len(result[0]) + STAT.size
