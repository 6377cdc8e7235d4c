"""Operations allowed in a multi or a multi-read, with their encoding and decoding."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from typing import NamedTuple, TypeAlias, TypeVar

from kreplica.errors import ProtocolError
from kreplica.zookeeper.errors import Unimplemented
from kreplica.zookeeper.jute import Reader, pack_buffer, pack_int32, pack_text, pack_text_and_flag
from kreplica.zookeeper.records import OPEN_ACL, Acl, Opcode, pack_acl, read_acl

T = TypeVar("T")

ANY_VERSION = -1


class Create(NamedTuple):
    """Create a znode.

    :param sequence: the server appends the parent's counter to the path, as ten digits.
    :param with_stat: the response includes the stat (``create2``, ZooKeeper 3.5 and newer).
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
        """Decode a create request.

        :raise Unimplemented: for containers and znodes with a time to live.
        """
        path, data, acl, flags = reader.text(), reader.buffer(), read_acl(reader), reader.int32()
        if flags & ~3:
            raise Unimplemented(path, f"znodes with creation flags {flags} are not supported")
        return cls(path, data, acl, bool(flags & 1), bool(flags & 2))

    @classmethod
    def decode_without_stat(cls, reader: Reader) -> Create:
        return cls.decode(reader)._replace(with_stat=False)


class Delete(NamedTuple):
    """Delete a znode that has no children."""

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
        return encode_set_data(*self)

    @classmethod
    def decode(cls, reader: Reader) -> SetData:
        return cls(reader.text(), reader.buffer(), reader.int32())


def encode_set_data(path: str, data: bytes | None, version: int) -> bytes:
    """Encode a setData request without creating a ``SetData``."""
    name = path.encode()
    if data is None:
        return pack_int32(len(name)) + name + _TWO_INTS.pack(-1, version)
    return b"%b%b%b%b%b" % (pack_int32(len(name)), name, pack_int32(len(data)), data, pack_int32(version))


_TWO_INTS = Struct(">ii")


class Check(NamedTuple):
    """Fail the multi unless the znode has this version."""

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
        return pack_text_and_flag(self.path, self.watch)

    @classmethod
    def decode(cls, reader: Reader) -> GetData:
        return cls(reader.text(), reader.boolean())


class GetChildren(NamedTuple):
    """Read the names of a znode's children.

    :param with_stat: the response includes the znode's stat (``getChildren2``).
    """

    path: str
    watch: bool = False
    with_stat: bool = False

    def encode(self) -> bytes:
        return pack_text_and_flag(self.path, self.watch)

    @classmethod
    def decode(cls, reader: Reader) -> GetChildren:
        return cls(reader.text(), reader.boolean())

    @classmethod
    def decode_with_stat(cls, reader: Reader) -> GetChildren:
        return cls(reader.text(), reader.boolean(), True)


Operation: TypeAlias = Create | Delete | SetData | Check
Read: TypeAlias = GetData | GetChildren

# Each operation of a multi follows a header: operation code, done = false, error = -1.  A header with done = true ends
# the multi.
MULTI_HEADER = Struct(">i?i")
_MULTI_END = MULTI_HEADER.pack(-1, True, -1)


class Multi(NamedTuple):
    """Apply all of these operations or none of them."""

    operations: Sequence[Operation]

    def encode(self) -> bytes:
        return encode_operations(self.operations)

    @classmethod
    def decode(cls, reader: Reader) -> Multi:
        return cls(_decode_members(reader, _OPERATION_DECODERS))


class MultiRead(NamedTuple):
    """Perform all of these reads on one state of the tree; each can fail separately (ZooKeeper 3.6)."""

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
    """Encode one operation of a multi or multi-read with its header."""
    if isinstance(operation, Create) and not operation.with_stat:
        return _CREATE_WITHOUT_STAT_HEADER + operation.encode()
    return _HEADERS[type(operation)] + operation.encode()


def size_at_most(operation: Operation) -> int:
    """Return a close upper bound on the encoded length, without encoding the operation."""
    if type(operation) is Create and operation.acl is not OPEN_ACL:
        return len(encode_operation(operation))
    path = operation.path
    data = operation.data if isinstance(operation, (Create, SetData)) else None
    return (len(path) if path.isascii() else 4 * len(path)) + (len(data) if data else 0) + _OVERHEAD_MAX


_OVERHEAD_MAX = 64
"""Upper bound on the bytes in addition to path and data: header (9), open ACL (31), lengths and flags."""


def encode_operations(operations: Sequence[Operation | Read]) -> bytes:
    """Encode the body of a multi or multi-read."""
    pieces: list[bytes] = []
    append, extend = pieces.append, pieces.extend
    for operation in operations:
        if type(operation) is SetData:  # fast path: only setData operations occur by the thousand
            path, data, version = operation
            if data is not None:
                name = path.encode()
                extend((_pack_named(5, False, -1, len(name)), name, pack_int32(len(data)), data, pack_int32(version)))
                continue
        append(encode_operation(operation))
    append(_MULTI_END)
    return b"".join(pieces)


# Header of an operation in a multi, and path length.
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
            raise ProtocolError(reader.name, f"operation {opcode} is not allowed in a {reader.name}")
