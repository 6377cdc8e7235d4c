"""Requests of ZooKeeper's protocol as immutable values, with encoding and decoding.

Requests that kreplica does not use are missing: reconfig, createContainer, createTTL and whoAmI.

A client sends ``value.encode()`` after a header with ``opcode_of(value)``; a server calls ``decode_request``.
The values are independent of xids and connections.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from kreplica.zookeeper.errors import BadArguments, Unimplemented
from kreplica.zookeeper.jute import (
    Reader,
    pack_buffer,
    pack_int32,
    pack_int64,
    pack_text,
    pack_text_and_flag,
    pack_texts,
)
from kreplica.zookeeper.operations import (
    ANY_VERSION,
    MULTI_HEADER,
    Check,
    Create,
    Delete,
    GetChildren,
    GetData,
    Multi,
    MultiRead,
    Operation,
    Read,
    SetData,
    encode_operation,
    encode_operations,
    encode_set_data,
)
from kreplica.zookeeper.records import Acl, AddWatchMode, Opcode, WatcherType, pack_acl, read_acl

# The operations of a multi are also requests, so they are exported here too.
__all__ = [
    "ANY_VERSION",
    "MULTI_HEADER",
    "AddWatch",
    "Auth",
    "Check",
    "CheckWatches",
    "CloseSession",
    "Create",
    "Delete",
    "Exists",
    "GetAcl",
    "GetAllChildrenNumber",
    "GetChildren",
    "GetData",
    "GetEphemerals",
    "Multi",
    "MultiRead",
    "Operation",
    "Ping",
    "Read",
    "RemoveWatches",
    "Request",
    "Sasl",
    "SetAcl",
    "SetData",
    "SetWatches",
    "Sync",
    "decode_request",
    "encode_operation",
    "encode_operations",
    "encode_set_data",
    "opcode_of",
]


class Exists(NamedTuple):
    """Read a znode's stat; a watch may be registered on a znode that does not exist."""

    path: str
    watch: bool = False

    def encode(self) -> bytes:
        return pack_text_and_flag(self.path, self.watch)

    @classmethod
    def decode(cls, reader: Reader) -> Exists:
        return cls(reader.text(), reader.boolean())


class GetAcl(NamedTuple):
    """Read a znode's ACL and stat."""

    path: str

    def encode(self) -> bytes:
        return pack_text(self.path)

    @classmethod
    def decode(cls, reader: Reader) -> GetAcl:
        return cls(reader.text())


class SetAcl(NamedTuple):
    """Replace a znode's ACL.

    :param version: expected ACL version.
    """

    path: str
    acl: tuple[Acl, ...]
    version: int = ANY_VERSION

    def encode(self) -> bytes:
        return pack_text(self.path) + pack_acl(self.acl) + pack_int32(self.version)

    @classmethod
    def decode(cls, reader: Reader) -> SetAcl:
        return cls(reader.text(), read_acl(reader), reader.int32())


class Sync(NamedTuple):
    """Make the server catch up with the leader before it responds."""

    path: str

    def encode(self) -> bytes:
        return pack_text(self.path)

    @classmethod
    def decode(cls, reader: Reader) -> Sync:
        return cls(reader.text())


class GetEphemerals(NamedTuple):
    """List this session's ephemeral znodes whose paths begin with a prefix."""

    prefix: str

    def encode(self) -> bytes:
        return pack_text(self.prefix)

    @classmethod
    def decode(cls, reader: Reader) -> GetEphemerals:
        return cls(reader.text())


class GetAllChildrenNumber(NamedTuple):
    """Count all descendants of a znode."""

    path: str

    def encode(self) -> bytes:
        return pack_text(self.path)

    @classmethod
    def decode(cls, reader: Reader) -> GetAllChildrenNumber:
        return cls(reader.text())


class AddWatch(NamedTuple):
    """Register a persistent watch."""

    path: str
    mode: AddWatchMode

    def encode(self) -> bytes:
        return pack_text(self.path) + pack_int32(self.mode)

    @classmethod
    def decode(cls, reader: Reader) -> AddWatch:
        path, mode = reader.text(), reader.int32()
        if mode not in (0, 1):
            raise BadArguments(path, f"watch mode {mode} is neither 0 nor 1")
        return cls(path, AddWatchMode(mode))


class RemoveWatches(NamedTuple):
    """Remove all of this session's watches of one kind from a path."""

    path: str
    type: WatcherType = WatcherType.ANY

    def encode(self) -> bytes:
        return pack_text(self.path) + pack_int32(self.type)

    @classmethod
    def decode(cls, reader: Reader) -> RemoveWatches:
        return cls(reader.text(), _watcher_type(reader))


class CheckWatches(NamedTuple):
    """Check that this session has a watch of one kind on a path."""

    path: str
    type: WatcherType = WatcherType.ANY

    def encode(self) -> bytes:
        return pack_text(self.path) + pack_int32(self.type)

    @classmethod
    def decode(cls, reader: Reader) -> CheckWatches:
        return cls(reader.text(), _watcher_type(reader))


def _watcher_type(reader: Reader) -> WatcherType:
    number = reader.int32()
    if number not in (1, 2, 3):
        raise BadArguments(None, f"watcher type {number} is not 1, 2 or 3")
    return WatcherType(number)


class SetWatches(NamedTuple):
    """Register a session's watches again after a reconnect.

    The server immediately fires the watches whose znodes have changed since ``relative_zxid``.

    :param persistent: like ``recursive``, sent only in ``setWatches2`` (ZooKeeper 3.6).
    """

    relative_zxid: int
    data: Sequence[str]
    exists: Sequence[str]
    children: Sequence[str]
    persistent: Sequence[str] = ()
    recursive: Sequence[str] = ()

    def encode(self) -> bytes:
        lists = [self.data, self.exists, self.children]
        if self.persistent or self.recursive:
            lists += [self.persistent, self.recursive]
        return pack_int64(self.relative_zxid) + b"".join(map(pack_texts, lists))

    @classmethod
    def decode(cls, reader: Reader) -> SetWatches:
        return cls(reader.int64(), reader.texts(), reader.texts(), reader.texts())

    @classmethod
    def decode_with_persistent(cls, reader: Reader) -> SetWatches:
        return cls(*cls.decode(reader)[:4], reader.texts(), reader.texts())


class Auth(NamedTuple):
    """Add an identity to the session."""

    scheme: str
    credentials: bytes

    def encode(self) -> bytes:
        return pack_int32(0) + pack_text(self.scheme) + pack_buffer(self.credentials)

    @classmethod
    def decode(cls, reader: Reader) -> Auth:
        reader.int32()
        return cls(reader.text(), reader.buffer() or b"")


class Sasl(NamedTuple):
    """One step of a SASL exchange."""

    token: bytes

    def encode(self) -> bytes:
        return pack_buffer(self.token)

    @classmethod
    def decode(cls, reader: Reader) -> Sasl:
        return cls(reader.buffer() or b"")


class Ping(NamedTuple):
    """Keep the session alive."""

    def encode(self) -> bytes:
        return b""

    @classmethod
    def decode(cls, reader: Reader) -> Ping:
        return cls()


class CloseSession(NamedTuple):
    """Close the session; the server deletes its ephemeral znodes immediately."""

    def encode(self) -> bytes:
        return b""

    @classmethod
    def decode(cls, reader: Reader) -> CloseSession:
        return cls()


Request: TypeAlias = (
    Create
    | Delete
    | SetData
    | Check
    | Exists
    | GetData
    | GetChildren
    | GetAcl
    | SetAcl
    | Sync
    | GetEphemerals
    | GetAllChildrenNumber
    | AddWatch
    | RemoveWatches
    | CheckWatches
    | SetWatches
    | Auth
    | Sasl
    | Ping
    | CloseSession
    | Multi
    | MultiRead
)

_DECODERS: dict[int, Callable[[Reader], Request]] = {
    Opcode.CREATE: Create.decode_without_stat,
    Opcode.CREATE2: Create.decode,
    Opcode.DELETE: Delete.decode,
    Opcode.SET_DATA: SetData.decode,
    Opcode.CHECK: Check.decode,
    Opcode.EXISTS: Exists.decode,
    Opcode.GET_DATA: GetData.decode,
    Opcode.GET_CHILDREN: GetChildren.decode,
    Opcode.GET_CHILDREN2: GetChildren.decode_with_stat,
    Opcode.GET_ACL: GetAcl.decode,
    Opcode.SET_ACL: SetAcl.decode,
    Opcode.SYNC: Sync.decode,
    Opcode.GET_EPHEMERALS: GetEphemerals.decode,
    Opcode.GET_ALL_CHILDREN_NUMBER: GetAllChildrenNumber.decode,
    Opcode.ADD_WATCH: AddWatch.decode,
    Opcode.REMOVE_WATCHES: RemoveWatches.decode,
    Opcode.CHECK_WATCHES: CheckWatches.decode,
    Opcode.SET_WATCHES: SetWatches.decode,
    Opcode.SET_WATCHES2: SetWatches.decode_with_persistent,
    Opcode.AUTH: Auth.decode,
    Opcode.SASL: Sasl.decode,
    Opcode.PING: Ping.decode,
    Opcode.CLOSE_SESSION: CloseSession.decode,
    Opcode.MULTI: Multi.decode,
    Opcode.MULTI_READ: MultiRead.decode,
}

_OPCODES: dict[type[Request], Opcode] = {
    Create: Opcode.CREATE2,
    Delete: Opcode.DELETE,
    SetData: Opcode.SET_DATA,
    Check: Opcode.CHECK,
    Exists: Opcode.EXISTS,
    GetData: Opcode.GET_DATA,
    GetChildren: Opcode.GET_CHILDREN,
    GetAcl: Opcode.GET_ACL,
    SetAcl: Opcode.SET_ACL,
    Sync: Opcode.SYNC,
    GetEphemerals: Opcode.GET_EPHEMERALS,
    GetAllChildrenNumber: Opcode.GET_ALL_CHILDREN_NUMBER,
    AddWatch: Opcode.ADD_WATCH,
    RemoveWatches: Opcode.REMOVE_WATCHES,
    CheckWatches: Opcode.CHECK_WATCHES,
    SetWatches: Opcode.SET_WATCHES,
    Auth: Opcode.AUTH,
    Sasl: Opcode.SASL,
    Ping: Opcode.PING,
    CloseSession: Opcode.CLOSE_SESSION,
    Multi: Opcode.MULTI,
    MultiRead: Opcode.MULTI_READ,
}


def opcode_of(request: Request) -> Opcode:
    """Return the operation code of a request."""
    if isinstance(request, Create) and not request.with_stat:
        return Opcode.CREATE
    if isinstance(request, GetChildren) and request.with_stat:
        return Opcode.GET_CHILDREN2
    if isinstance(request, SetWatches) and (request.persistent or request.recursive):
        return Opcode.SET_WATCHES2
    return _OPCODES[type(request)]


def decode_request(opcode: int, reader: Reader) -> Request:
    """Decode the body of a request.

    :param reader: positioned at the first byte after the header.
    :raise ProtocolError: if the body is malformed; the connection must be closed.
    :raise Unimplemented: if the operation is unknown; sent to the client as an error.
    :raise BadArguments: if an enumerated field has an undefined value; sent to the client as an error.
    """
    decoder = _DECODERS.get(opcode)
    if decoder is None:
        raise Unimplemented(None, f"operation {opcode} is not supported")
    request = decoder(reader)
    reader.finish()
    return request
