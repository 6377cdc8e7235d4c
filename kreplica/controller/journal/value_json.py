"""JSON encoding of the values in journal entries, and decoding of those that a replay needs.

Encoding is deferred (``DeferredJson``) until the entry is written on another thread.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any
from uuid import UUID

from twisted.internet.defer import CancelledError

from kreplica.controller import event_types
from kreplica.controller.effects.command_responses import CommandResponse, PartitionError
from kreplica.controller.event_types import (
    CURRENT_NAMES,
    AlterReassignmentsRequested,
    CommandRefused,
    ElectionRequested,
    ElectionType,
    Event,
    ListReassignmentsRequested,
    ReplicasRecovered,
    ReplicasStopped,
    recorded_name,
)
from kreplica.errors import ErrorCode
from kreplica.model import TopicPartition
from kreplica.zookeeper import (
    Check,
    Create,
    Created,
    Delete,
    EventType,
    GetChildren,
    MultiFailed,
    Operation,
    Read,
    ReadResult,
    SetData,
    Stat,
    WatchEvent,
    ZooKeeperError,
)
from kreplica.zookeeper.records import KeeperState

Json = Any

COUNT_MAX = 1_000_000
"""Limit for counts in a journal that are expanded when read: partitions of a run, results of a multi."""


class DeferredJson:
    """A value that is encoded when its entry is written; it must not be modified until then."""

    __slots__ = ("_encode", "_value")

    def __init__(self, encode: Callable[[Any], Json], value: object) -> None:
        self._encode = encode
        self._value = value

    def json(self) -> Json:
        return self._encode(self._value)


class OtherError(Exception):
    """A recorded error of a type that the controller does not distinguish."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def plain(value: object) -> Json:
    """Encode any value without its type; no function decodes it."""
    match value:
        case DeferredJson():
            return value.json()
        case Enum():
            return value.name
        case None | bool() | int() | float() | str():
            return value
        case TopicPartition() | UUID():
            return str(value)
        case bytes():
            return encode_bytes(value)
        case BaseException():
            return encode_error(value)
        case Mapping():
            return [[plain(key), plain(each)] for key, each in value.items()]
        case set() | frozenset():
            return [plain(each) for each in sorted(value)]
    if is_dataclass(value):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Iterable):
        return [plain(each) for each in value]
    return repr(value)


# --- bytes, partitions, errors ----------------------------------------------------------------------------------------


def encode_bytes(data: bytes | None) -> Json:
    """Encode znode data, as text if possible."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def decode_bytes(value: Json) -> bytes:
    if isinstance(value, dict):
        return base64.b64decode(value["base64"])
    return b"" if value is None else str(value).encode()


def decode_partition(text: str) -> TopicPartition:
    topic, _, number = text.rpartition("-")
    return TopicPartition(topic, int(number))


def encode_runs(partitions: Iterable[TopicPartition]) -> list[str]:
    """Encode partitions in order, with consecutive ones as a range: ``orders:0-99``."""
    runs: list[tuple[str, int, int]] = []
    for topic, number in partitions:
        if runs and runs[-1][0] == topic and runs[-1][2] == number - 1:
            runs[-1] = (topic, runs[-1][1], number)
        else:
            runs.append((topic, number, number))
    return [f"{topic}:{first}" if first == last else f"{topic}:{first}-{last}" for topic, first, last in runs]


def decode_runs(runs: Iterable[str]) -> Iterator[TopicPartition]:
    for run in runs:
        topic, _, numbers = run.rpartition(":")
        first, _, last = numbers.partition("-")
        for number in range(int(first), int(first) + _checked_count(int(last or first) - int(first) + 1)):
            yield TopicPartition(topic, number)


def _checked_count(count: Json) -> int:
    if type(count) is not int or not 0 <= count <= COUNT_MAX:
        raise ValueError(f"{str(count)[:40]} is not a count from 0 to {COUNT_MAX:,}")
    return count


_RECORDED_NAMES = {"TooManyConflicts": "StatesContested"}
"""Class names in journals that differ from the current ones; journals of earlier versions must still be replayable."""


def encode_error(error: BaseException) -> Json:
    """Encode an error as [class name, ...]."""
    match error:
        case MultiFailed():
            return ["MultiFailed", error.index, encode_error(error.error), len(error.results)]
        case ZooKeeperError():
            return [type(error).__name__, error.path, error.message]
        case OtherError():
            return [error.kind, None, str(error)]
        case CancelledError():
            return ["CancelledError", None, ""]
    name = type(error).__name__
    return [_RECORDED_NAMES.get(name, name), None, str(error)]


def decode_error(value: Json) -> Exception:
    if value[0] == "MultiFailed":
        _, index, cause, count = value
        error = decode_error(cause)
        assert isinstance(error, ZooKeeperError)
        return MultiFailed(index, error, [None] * _checked_count(count))
    name, path, text = value
    if name == "CancelledError":
        return CancelledError()
    kind = next((each for each in _with_subclasses(ZooKeeperError) if each.__name__ == name), None)
    if kind is None:
        return OtherError(name, text)
    zookeeper_error = kind.__new__(kind)  # some constructors need values that a journal does not contain
    ZooKeeperError.__init__(zookeeper_error, path, text)
    return zookeeper_error


def _with_subclasses(root: type[ZooKeeperError]) -> Iterator[type[ZooKeeperError]]:
    yield root
    for each in root.__subclasses__():
        yield from _with_subclasses(each)


# --- events -----------------------------------------------------------------------------------------------------------


def encode_event(event: Event) -> Json:
    """Encode an event as [class name, fields].  Events from broker responses are summarised and cannot be decoded."""
    match event:
        case ReplicasStopped() | CommandRefused():
            results = event.results if isinstance(event, ReplicasStopped) else event.errors
            by_error: dict[ErrorCode, list[TopicPartition]] = {}
            for partition, error in results:
                by_error.setdefault(error, []).append(partition)
            by_name: Json = {error.name: encode_runs(partitions) for error, partitions in by_error.items()}
            return [recorded_name(event), {"broker_id": event.broker_id, **by_name}]
        case ReplicasRecovered():
            return ["ReplicasRecovered", {"broker_id": event.broker_id, "partitions": encode_runs(event.partitions)}]
    names = [each.name for each in fields(event) if each.name != "response"]
    return [recorded_name(event), {name: plain(getattr(event, name)) for name in names}]


def decode_event(value: Json) -> Event:
    """Decode an event.

    :raise LookupError: this version has no such event.
    """
    name, field_values = value
    name = CURRENT_NAMES.get(name, name)
    if name == "ElectionRequested":
        return ElectionRequested(ElectionType[field_values["election_type"]], _partitions(field_values["partitions"]))
    if name == "ListReassignmentsRequested":
        return ListReassignmentsRequested(_partitions(field_values["partitions"]))
    if name == "AlterReassignmentsRequested":
        targets = {decode_partition(key): None if ids is None else tuple(ids) for key, ids in field_values["targets"]}
        return AlterReassignmentsRequested(targets)
    kind = vars(event_types).get(name)
    if not (isinstance(kind, type) and issubclass(kind, Event)):
        raise LookupError(f"unknown event {name}")
    return kind(**field_values)


def _partitions(value: Json) -> list[TopicPartition] | None:
    return None if value is None else [decode_partition(each) for each in value]


def encode_watch_event(event: WatchEvent) -> Json:
    return [event.type.name, event.state.name, event.path]


def decode_watch_event(value: Json) -> WatchEvent:
    kind, state, path = value
    return WatchEvent(EventType[kind], KeeperState[state], path)


# --- ZooKeeper --------------------------------------------------------------------------------------------------------


def encode_operations(operations: Sequence[Operation]) -> Json:
    return [_encode_operation(each) for each in operations]


def _encode_operation(operation: Operation) -> Json:
    match operation:
        case SetData(path, data, version):
            return ["set", path, encode_bytes(data), version]
        case Create(path, data):
            return ["create", path, encode_bytes(data), *(["ephemeral"] if operation.ephemeral else [])]
        case Delete(path, version):
            return ["delete", path, version]
        case Check(path, version):
            return ["check", path, version]


def encode_reads(reads: Sequence[Read]) -> Json:
    return [["children" if isinstance(each, GetChildren) else "data", each.path] for each in reads]


def encode_response(operation: str, value: Any) -> Json:
    """Encode a ZooKeeper response; for a multi only the number of results, because no caller uses more."""
    if operation == "multi":
        return len(value)
    if operation == "multi_read":
        return [_encode_read(each) for each in value]
    if operation == "get_data":
        return [encode_bytes(value[0]), value[1]]
    return value


def _encode_read(result: ReadResult) -> Json:
    if isinstance(result, tuple):
        return [encode_bytes(result[0]), result[1]]
    if isinstance(result, ZooKeeperError):
        return {"error": encode_error(result)}
    return {"children": result}


def decode_response(operation: str, value: Json) -> Any:
    match operation:
        case "multi":
            return [None] * _checked_count(value)
        case "multi_read":
            return [_decode_read(each) for each in value]
        case "get_data":
            return decode_bytes(value[0]), Stat(*value[1])
        case "exists":
            return None if value is None else Stat(*value)
        case "create":
            return Created(value[0], None if value[1] is None else Stat(*value[1]))
    return value


def _decode_read(value: Json) -> ReadResult:
    if isinstance(value, list):
        return decode_bytes(value[0]), Stat(*value[1])
    if "error" in value:
        error = decode_error(value["error"])
        assert isinstance(error, ZooKeeperError)
        return error
    names: list[str] = value["children"]
    return names


# --- brokers ----------------------------------------------------------------------------------------------------------


def encode_rejections(rejections: Iterable[PartitionError]) -> Json:
    return [
        [{"id": str(each.topic)} if isinstance(each.topic, UUID) else each.topic, each.partition, each.error.name]
        for each in rejections
    ]


def decode_command_response(error: str, rejections: Json) -> CommandResponse:
    return CommandResponse(
        ErrorCode[error],
        tuple(
            PartitionError(UUID(topic["id"]) if isinstance(topic, dict) else topic, partition, ErrorCode[code])
            for topic, partition, code in rejections
        ),
    )


def digest(body: Mapping[str, Any]) -> int:
    """Return the CRC-32 of a command's body."""
    other_fields = repr([(name, plain(value)) for name, value in body.items() if name != "topic_states"])
    checksum = 0
    for piece in body["topic_states"].pieces:
        checksum = zlib.crc32(piece, checksum)
    return zlib.crc32(other_fields.encode(), checksum)
