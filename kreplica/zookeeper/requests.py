"""Every request of ZooKeeper's protocol as a frozen value, with its encoding in both directions.

A client calls ``value.encode()`` behind a header with ``opcode_of(value)``; a server calls ``decode_request``.
Values say what the caller wants; nothing here knows of transaction ids or of a connection.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import NamedTuple, TypeAlias, cast

from kreplica.errors import ProtocolError
from kreplica.zookeeper.errors import BadArguments, Unimplemented
from kreplica.zookeeper.jute import (
    FALSE,
    TRUE,
    Reader,
    pack_buffer,
    pack_int32,
    pack_int64,
    pack_text,
    pack_texts,
)
from kreplica.zookeeper.records import OPEN_ACL, Acl, AddWatchMode, Opcode, WatcherType, pack_acl, read_acl

ANY_VERSION = -1


class Create(NamedTuple):
    """Make a znode.

    :param sequence: the server appends a ten-digit counter of the parent to the path.
    :param with_stat: ask for the stat too (``create2``); only programs before ZooKeeper 3.5 do not.
    """

    path: str
    data: bytes | None = b""
    acl: tuple[Acl, ...] = OPEN_ACL
    ephemeral: bool = False
    sequence: bool = False
    with_stat: bool = True

    def encode(self) -> bytes:
        flags = self.ephemeral | self.sequence << 1
        return pack_text(self.path) + pack_buffer(self.data) + pack_acl(self.acl) + pack_int32(flags)

    @classmethod
    def decode(cls, reader: Reader) -> Create:
        """:raise Unimplemented: for containers and znodes with a time to live."""
        path, data, acl, flags = reader.text(), reader.buffer(), read_acl(reader), reader.int32()
        if flags & ~3:
            raise Unimplemented(path, f"znodes with creation flags {flags} are not supported")
        return cls(path, data, acl, bool(flags & 1), bool(flags & 2))

    @classmethod
    def decode_without_stat(cls, reader: Reader) -> Create:
        return cls.decode(reader)._replace(with_stat=False)


class Delete(NamedTuple):
    """Remove a znode that has no children."""

    path: str
    version: int = ANY_VERSION

    def encode(self) -> bytes:
        return pack_text(self.path) + pack_int32(self.version)

    @classmethod
    def decode(cls, reader: Reader) -> Delete:
        return cls(reader.text(), reader.int32())


class SetData(NamedTuple):
    """Replace a znode's data."""

    path: str
    data: bytes | None
    version: int = ANY_VERSION

    def encode(self) -> bytes:
        path, data, version = self
        name = path.encode()
        if data is None:
            return pack_int32(len(name)) + name + _TWO_INTS.pack(-1, version)
        return b"%b%b%b%b%b" % (pack_int32(len(name)), name, pack_int32(len(data)), data, pack_int32(version))

    @classmethod
    def decode(cls, reader: Reader) -> SetData:
        return cls(reader.text(), reader.buffer(), reader.int32())


_TWO_INTS = Struct(">ii")


class Check(NamedTuple):
    """Within a multi: let it fail unless the znode is at this version."""

    path: str
    version: int

    def encode(self) -> bytes:
        return pack_text(self.path) + pack_int32(self.version)

    @classmethod
    def decode(cls, reader: Reader) -> Check:
        return cls(reader.text(), reader.int32())


class Exists(NamedTuple):
    """Read a znode's stat; a watch may be left where there is no znode."""

    path: str
    watch: bool = False

    def encode(self) -> bytes:
        return pack_text(self.path) + (TRUE if self.watch else FALSE)

    @classmethod
    def decode(cls, reader: Reader) -> Exists:
        return cls(reader.text(), reader.boolean())


class GetData(NamedTuple):
    """Read a znode's data and stat."""

    path: str
    watch: bool = False

    def encode(self) -> bytes:
        return pack_text(self.path) + (TRUE if self.watch else FALSE)

    @classmethod
    def decode(cls, reader: Reader) -> GetData:
        return cls(reader.text(), reader.boolean())


class GetChildren(NamedTuple):
    """Read the names of a znode's children.

    :param with_stat: ask for the znode's stat too (``getChildren2``).
    """

    path: str
    watch: bool = False
    with_stat: bool = False

    def encode(self) -> bytes:
        return pack_text(self.path) + (TRUE if self.watch else FALSE)

    @classmethod
    def decode(cls, reader: Reader) -> GetChildren:
        return cls(reader.text(), reader.boolean())

    @classmethod
    def decode_with_stat(cls, reader: Reader) -> GetChildren:
        return cls(reader.text(), reader.boolean(), True)


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

    :param version: the ACL's version that is expected.
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
    """Let the server catch up with its leader before it answers."""

    path: str

    def encode(self) -> bytes:
        return pack_text(self.path)

    @classmethod
    def decode(cls, reader: Reader) -> Sync:
        return cls(reader.text())


class GetEphemerals(NamedTuple):
    """List this session's ephemeral znodes below a prefix."""

    prefix: str

    def encode(self) -> bytes:
        return pack_text(self.prefix)

    @classmethod
    def decode(cls, reader: Reader) -> GetEphemerals:
        return cls(reader.text())


class GetAllChildrenNumber(NamedTuple):
    """Count all znodes below one."""

    path: str

    def encode(self) -> bytes:
        return pack_text(self.path)

    @classmethod
    def decode(cls, reader: Reader) -> GetAllChildrenNumber:
        return cls(reader.text())


class AddWatch(NamedTuple):
    """Leave a watch that stays after it fires."""

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
    """Take back all of this session's watches of one kind from a path."""

    path: str
    type: WatcherType = WatcherType.ANY

    def encode(self) -> bytes:
        return pack_text(self.path) + pack_int32(self.type)

    @classmethod
    def decode(cls, reader: Reader) -> RemoveWatches:
        return cls(reader.text(), _watcher_type(reader))


class CheckWatches(NamedTuple):
    """Ask whether this session has a watch of one kind on a path."""

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
    """Leave a session's watches again after it has moved to another connection.

    The server fires at once those whose znode has changed after ``relative_zxid``.

    :param persistent: and :param recursive: are only sent by ``setWatches2`` (ZooKeeper 3.6).
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
    """End the session: its ephemeral znodes go at once."""

    def encode(self) -> bytes:
        return b""

    @classmethod
    def decode(cls, reader: Reader) -> CloseSession:
        return cls()


Operation: TypeAlias = Create | Delete | SetData | Check
Read: TypeAlias = GetData | GetChildren

# In a multi every operation stands behind its code, "not done", and -1; the list ends with "done".
MULTI_HEADER = Struct(">i?i")
_MULTI_END = MULTI_HEADER.pack(-1, True, -1)


class Multi(NamedTuple):
    """Do all of these operations, or none."""

    operations: Sequence[Operation]

    def encode(self) -> bytes:
        return encode_operations(self.operations)

    @classmethod
    def decode(cls, reader: Reader) -> Multi:
        return cls(cast(list[Operation], _decode_members(reader, _OPERATION_OPCODES)))


class MultiRead(NamedTuple):
    """Answer all of these reads from one state of the tree; each may fail alone (ZooKeeper 3.6)."""

    reads: Sequence[Read]

    def encode(self) -> bytes:
        return encode_operations(self.reads)

    @classmethod
    def decode(cls, reader: Reader) -> MultiRead:
        return cls(cast(list[Read], _decode_members(reader, _READ_OPCODES)))


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
    """The operation code under which a request is sent."""
    if isinstance(request, Create) and not request.with_stat:
        return Opcode.CREATE
    if isinstance(request, GetChildren) and request.with_stat:
        return Opcode.GET_CHILDREN2
    if isinstance(request, SetWatches) and (request.persistent or request.recursive):
        return Opcode.SET_WATCHES2
    return _OPCODES[type(request)]


def decode_request(opcode: int, reader: Reader) -> Request:
    """Read the body of a request.

    :param reader: at the first byte after the header.
    :raise ProtocolError: where the bytes are not such a request; the connection should end.
    :raise Unimplemented: for operations outside this file; the server answers it as an error.
    :raise BadArguments: for numbers outside the protocol's lists; the server answers it as an error.
    """
    decoder = _DECODERS.get(opcode)
    if decoder is None:
        raise Unimplemented(None, f"operation {opcode} is not supported")
    request = decoder(reader)
    reader.finish()
    return request


_OPERATION_OPCODES = frozenset({Opcode.CREATE, Opcode.CREATE2, Opcode.DELETE, Opcode.SET_DATA, Opcode.CHECK})
_READ_OPCODES = frozenset({Opcode.GET_DATA, Opcode.GET_CHILDREN})
_MULTI_HEADERS = {kind: MULTI_HEADER.pack(opcode, False, -1) for kind, opcode in _OPCODES.items()}
_CREATE_WITHOUT_STAT_HEADER = MULTI_HEADER.pack(Opcode.CREATE, False, -1)


def encode_operation(operation: Operation | Read) -> bytes:
    """One member of a multi or multi-read, behind its header."""
    if isinstance(operation, Create) and not operation.with_stat:
        return _CREATE_WITHOUT_STAT_HEADER + operation.encode()
    return _MULTI_HEADERS[type(operation)] + operation.encode()


def encode_operations(operations: Sequence[Operation | Read]) -> bytes:
    """The body of a multi or multi-read."""
    pieces: list[bytes] = []
    append, extend = pieces.append, pieces.extend
    for operation in operations:
        if type(operation) is SetData:  # only sets come by the thousand
            path, data, version = operation
            if data is not None:
                name = path.encode()
                extend((_pack_named(5, False, -1, len(name)), name, pack_int32(len(data)), data, pack_int32(version)))
                continue
        append(encode_operation(operation))
    append(_MULTI_END)
    return b"".join(pieces)


# A multi's header and the length of a path.
_pack_named = Struct(">i?ii").pack


def _decode_members(reader: Reader, allowed: frozenset[Opcode]) -> list[Request]:
    members: list[Request] = []
    while True:
        opcode, done, _error = reader.unpack(MULTI_HEADER)
        if done:
            return members
        if opcode not in allowed:
            if opcode in (Opcode.CREATE_CONTAINER, Opcode.CREATE_TTL):
                raise Unimplemented(None, f"operation {opcode} is not supported")
            raise ProtocolError(reader.name, f"operation {opcode} cannot stand in it")
        members.append(_DECODERS[opcode](reader))
