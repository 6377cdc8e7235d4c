"""The operations that can stand in a multi or in a multi-read, and how either is written; both ways."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from typing import NamedTuple, TypeAlias, TypeVar

from kreplica.errors import ProtocolError
from kreplica.zookeeper.errors import Unimplemented
from kreplica.zookeeper.jute import FALSE, TRUE, Reader, pack_buffer, pack_int32, pack_text
from kreplica.zookeeper.records import OPEN_ACL, Acl, Opcode, pack_acl, read_acl

T = TypeVar("T")

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
        return cls(_decode_members(reader, _OPERATION_DECODERS))


class MultiRead(NamedTuple):
    """Answer all of these reads from one state of the tree; each may fail alone (ZooKeeper 3.6)."""

    reads: Sequence[Read]

    def encode(self) -> bytes:
        return encode_operations(self.reads)

    @classmethod
    def decode(cls, reader: Reader) -> MultiRead:
        return cls(_decode_members(reader, _READ_DECODERS))


_OPERATION_DECODERS: dict[int, Callable[[Reader], Operation]] = {
    Opcode.CREATE: Create.decode_without_stat,
    Opcode.CREATE2: Create.decode,
    Opcode.DELETE: Delete.decode,
    Opcode.SET_DATA: SetData.decode,
    Opcode.CHECK: Check.decode,
}
_READ_DECODERS: dict[int, Callable[[Reader], Read]] = {
    Opcode.GET_DATA: GetData.decode,
    Opcode.GET_CHILDREN: GetChildren.decode,
}
_HEADERS: dict[type[Operation | Read], bytes] = {
    kind: MULTI_HEADER.pack(opcode, False, -1)
    for kind, opcode in (
        (Create, Opcode.CREATE2),
        (Delete, Opcode.DELETE),
        (SetData, Opcode.SET_DATA),
        (Check, Opcode.CHECK),
        (GetData, Opcode.GET_DATA),
        (GetChildren, Opcode.GET_CHILDREN),
    )
}
_CREATE_WITHOUT_STAT_HEADER = MULTI_HEADER.pack(Opcode.CREATE, False, -1)


def encode_operation(operation: Operation | Read) -> bytes:
    """One member of a multi or multi-read, behind its header."""
    if isinstance(operation, Create) and not operation.with_stat:
        return _CREATE_WITHOUT_STAT_HEADER + operation.encode()
    return _HEADERS[type(operation)] + operation.encode()


def size_at_most(operation: Operation) -> int:
    """No less than the length of ``encode_operation``, and little more; without encoding it."""
    if type(operation) is Create and operation.acl is not OPEN_ACL:
        return len(encode_operation(operation))
    path = operation.path
    data = operation.data if isinstance(operation, (Create, SetData)) else None
    return (len(path) if path.isascii() else 4 * len(path)) + (len(data) if data else 0) + _OVERHEAD_MAX


_OVERHEAD_MAX = 64
"""Of an operation besides its path and data: its header of 9 bytes, lengths, flags, the open ACL of 31."""


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


def _decode_members(reader: Reader, decoders: Mapping[int, Callable[[Reader], T]]) -> list[T]:
    members: list[T] = []
    while True:
        opcode, done, _error = reader.unpack(MULTI_HEADER)
        if done:
            return members
        decoder = decoders.get(opcode)
        if decoder is not None:
            members.append(decoder(reader))
        elif opcode in (Opcode.CREATE_CONTAINER, Opcode.CREATE_TTL):
            raise Unimplemented(None, f"operation {opcode} is not supported")
        else:
            raise ProtocolError(reader.name, f"operation {opcode} cannot stand in it")
