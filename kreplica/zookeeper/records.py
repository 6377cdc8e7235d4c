"""Values of ZooKeeper's protocol: operation codes, stat, ACLs, watch events, and the session handshake."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum, IntFlag
from functools import partial
from struct import Struct
from typing import NamedTuple

from kreplica.errors import ProtocolError
from kreplica.zookeeper.jute import FALSE, INT32, TRUE, Reader, pack_buffer, pack_int32, pack_text

# Reserved xids (request IDs) of messages that are not numbered requests.
XID_WATCH_EVENT = -1
XID_PING = -2
XID_AUTH = -4
XID_SET_WATCHES = -8

# ZooKeeper's default ``jute.maxbuffer``.
FRAME_SIZE_MAX = 0xFFFFF


class Opcode(IntEnum):
    """The operations of the protocol."""

    ERROR = -1
    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_ACL = 6
    SET_ACL = 7
    GET_CHILDREN = 8
    SYNC = 9
    PING = 11
    GET_CHILDREN2 = 12
    CHECK = 13
    MULTI = 14
    CREATE2 = 15
    RECONFIG = 16
    CHECK_WATCHES = 17
    REMOVE_WATCHES = 18
    CREATE_CONTAINER = 19
    DELETE_CONTAINER = 20
    CREATE_TTL = 21
    MULTI_READ = 22
    AUTH = 100
    SET_WATCHES = 101
    SASL = 102
    GET_EPHEMERALS = 103
    GET_ALL_CHILDREN_NUMBER = 104
    SET_WATCHES2 = 105
    ADD_WATCH = 106
    WHO_AM_I = 107
    CLOSE_SESSION = -11


class Stat(NamedTuple):
    """Metadata of a znode.

    :param version: data version; starts at 0 and is incremented by each data change.
    :param ephemeral_owner: session ID of the owner of an ephemeral znode; otherwise 0.
    """

    czxid: int
    mzxid: int
    ctime_ms: int
    mtime_ms: int
    version: int
    children_version: int
    acl_version: int
    ephemeral_owner: int
    data_length: int
    children_count: int
    pzxid: int


STAT = Struct(">qqqqiiiqiiq")

#: Create a ``Stat`` from the eleven numbers that ``STAT`` unpacks, twice as fast as the named tuple's constructor.
new_stat: Callable[[Iterable[int]], Stat] = partial(tuple.__new__, Stat)


def read_stat(reader: Reader) -> Stat:
    """Decode a stat."""
    return new_stat(reader.unpack(STAT))


class Permission(IntFlag):
    """Permissions of an ACL entry."""

    READ = 1
    WRITE = 2
    CREATE = 4
    DELETE = 8
    ADMIN = 16
    ALL = 31


class Acl(NamedTuple):
    """One entry of a znode's access control list (ACL).

    :param permissions: ``Permission`` flags.
    :param scheme: ``world``, ``auth``, ``digest``, ``ip``, ``sasl``, ``x509`` or a scheme of a server plugin.
    """

    permissions: int
    scheme: str
    id: str


OPEN_ACL = (Acl(Permission.ALL, "world", "anyone"),)
CREATOR_ALL_ACL = (Acl(Permission.ALL, "auth", ""),)
READ_ACL = (Acl(Permission.READ, "world", "anyone"),)


def pack_acl(acl: tuple[Acl, ...]) -> bytes:
    """Encode an ACL as a vector."""
    return pack_int32(len(acl)) + b"".join(
        pack_int32(entry.permissions) + pack_text(entry.scheme) + pack_text(entry.id) for entry in acl
    )


def read_acl(reader: Reader) -> tuple[Acl, ...]:
    """Decode an ACL."""
    return tuple(reader.vector(lambda: Acl(reader.int32(), reader.text(), reader.text()), size_min=12))


class EventType(IntEnum):
    """Type of a watch event."""

    NONE = -1
    NODE_CREATED = 1
    NODE_DELETED = 2
    NODE_DATA_CHANGED = 3
    NODE_CHILDREN_CHANGED = 4
    DATA_WATCH_REMOVED = 5
    CHILD_WATCH_REMOVED = 6
    PERSISTENT_WATCH_REMOVED = 7


class KeeperState(IntEnum):
    """Session state in a watch event."""

    DISCONNECTED = 0
    SYNC_CONNECTED = 3
    AUTH_FAILED = 4
    CONNECTED_READ_ONLY = 5
    SASL_AUTHENTICATED = 6
    CLOSED = 7
    EXPIRED = -112


class AddWatchMode(IntEnum):
    """Kinds of persistent watches."""

    PERSISTENT = 0
    PERSISTENT_RECURSIVE = 1


class WatcherType(IntEnum):
    """Selects the watches of a path to check or remove."""

    CHILDREN = 1
    DATA = 2
    ANY = 3


class WatchEvent(NamedTuple):
    """A change reported by a watch.

    :param path: path of the changed znode; with a recursive watch it may be a descendant of the watched znode.
    """

    type: EventType
    state: KeeperState
    path: str


def encode_watch_event(event: WatchEvent) -> bytes:
    """Encode a watch event without its reply header."""
    return pack_int32(event.type) + pack_int32(event.state) + pack_text(event.path)


def decode_watch_event(reader: Reader) -> WatchEvent:
    """Decode a watch event.

    :raise ProtocolError: if the data is malformed, or the type or state is unknown.
    """
    type_, state, path = reader.int32(), reader.int32(), reader.text()
    try:
        return WatchEvent(EventType(type_), KeeperState(state), path)
    except ValueError as error:
        raise ProtocolError("watch event", str(error)) from None


class ConnectRequest(NamedTuple):
    """The first frame of a connection, without a header.

    :param last_zxid_seen: last transaction that the client has seen; a server that is behind it closes the connection.
    :param session_id: 0 requests a new session.
    :param password: session password, 16 bytes; zeros for a new session.
    """

    last_zxid_seen: int
    timeout_ms: int
    session_id: int
    password: bytes
    read_only: bool = False

    def encode(self) -> bytes:
        fixed = _CONNECT_REQUEST.pack(0, self.last_zxid_seen, self.timeout_ms, self.session_id)
        return fixed + pack_buffer(self.password) + (TRUE if self.read_only else FALSE)

    @classmethod
    def decode(cls, reader: Reader) -> ConnectRequest:
        _version, zxid, timeout_ms, session_id = reader.unpack(_CONNECT_REQUEST)
        password = reader.buffer() or b""
        # Clients before 3.4 do not send the last byte.
        return cls(zxid, timeout_ms, session_id, password, reader.remaining > 0 and reader.boolean())


_CONNECT_REQUEST = Struct(">iqiq")


class ConnectResponse(NamedTuple):
    """Response to a ``ConnectRequest``, without a header.

    :param timeout_ms: negotiated session timeout; 0 means that the requested session has expired.
    """

    timeout_ms: int
    session_id: int
    password: bytes
    read_only: bool = False

    def encode(self) -> bytes:
        fixed = _CONNECT_RESPONSE.pack(0, self.timeout_ms, self.session_id)
        return fixed + pack_buffer(self.password) + (TRUE if self.read_only else FALSE)

    @classmethod
    def decode(cls, reader: Reader) -> ConnectResponse:
        _version, timeout_ms, session_id = reader.unpack(_CONNECT_RESPONSE)
        password = reader.buffer() or b""
        return cls(timeout_ms, session_id, password, reader.remaining > 0 and reader.boolean())


_CONNECT_RESPONSE = Struct(">iiq")

# Header of every request after the handshake: frame length, xid, operation code.
REQUEST_FRAME_HEADER = Struct(">iii")
# The same without the frame length.
REQUEST_HEADER = Struct(">ii")
# Header of responses and events after the handshake: frame length, xid, zxid, error code.
REPLY_FRAME_HEADER = Struct(">iiqi")
REPLY_HEADER = Struct(">iqi")


def frame(body: bytes) -> bytes:
    """Prefix a body with its length."""
    return INT32.pack(len(body)) + body


def request_frame(xid: int, opcode: int, body: bytes) -> bytes:
    """Encode a request frame."""
    return REQUEST_FRAME_HEADER.pack(len(body) + 8, xid, opcode) + body


def reply_frame(xid: int, zxid: int, error: int, body: bytes = b"") -> bytes:
    """Encode a response frame; an error response has no body, except in a SASL exchange."""
    return REPLY_FRAME_HEADER.pack(len(body) + 16, xid, zxid, error) + body
