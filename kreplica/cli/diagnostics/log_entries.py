"""Entries of log files as JSON-compatible values, read with the broker's own code."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import PurePath
from typing import Any, TypeAlias

from kreplica.errors import KafkaError, ProtocolError, StorageError
from kreplica.runtime.disk import Disk
from kreplica.storage.formats.checkpoints import PARTITION_METADATA, encode_uuid, parse_checkpoint, read_topic_id
from kreplica.storage.formats.leader_epochs import FILE_NAME as LEADER_EPOCHS
from kreplica.storage.formats.leader_epochs import read_epochs
from kreplica.storage.inspection.files import (
    EntryFile,
    aborted_entries,
    base_offset_of,
    batches,
    offset_entries,
    offset_index,
    time_entries,
    time_index,
    transaction_index,
)
from kreplica.storage.inspection.verification import CHECKPOINTS
from kreplica.storage.producers.snapshots import decode_snapshot
from kreplica.wire.batches import BatchHeader, TimestampType, verify_crc
from kreplica.wire.compression import Codec
from kreplica.wire.control_records import parse_end_marker
from kreplica.wire.records import Record, iter_records

Entry: TypeAlias = dict[str, Any]
"""JSON object: ``entry`` is the kind of entry; ``position``, if present, is its position in the file."""

LEFTOVER_SUFFIXES = (".deleted", ".cleaned", ".swap")
SMALL_FILE_SIZE_MAX = 64 * 1024 * 1024


class UnreadableFile(Exception):
    """The file, or its end, does not have the format that the file name indicates."""


def read_entries(disk: Disk, path: str, records: bool, from_offset: int) -> Iterator[Entry]:
    """Yield the entries of a file in order.

    :param records: also yield the records of each batch, after the batch.
    :param from_offset: skip batches that end before it.
    :raise UnreadableFile: the rest of the file cannot be parsed.
    """
    name = PurePath(path).name
    for suffix in LEFTOVER_SUFFIXES:
        name = name.removesuffix(suffix)
    if name.endswith(".log"):
        return _batches(disk, path, records, from_offset)
    index_readers: dict[str, Callable[[Disk, str, int], Iterator[Entry]]] = {
        ".index": _offset_index, ".timeindex": _time_index, ".txnindex": _transaction_index,
    }  # fmt: skip
    for suffix, index in index_readers.items():
        if name.endswith(suffix):
            return index(disk, path, base_offset_of(name))
    return _small_file(disk, path, name)


def _batches(disk: Disk, path: str, records: bool, from_offset: int) -> Iterator[Entry]:
    with closing(disk.open(path)) as file:
        size, end = file.size(), 0
        for position, header, data in batches(file, size):
            end = position + header.size
            if header.last_offset < from_offset:
                continue
            crc_valid = verify_crc(data, header)
            yield _batch(position, header, crc_valid=crc_valid)
            if records and crc_valid:
                yield from _records(position, header, data)
    if end < size:
        raise UnreadableFile(f"position {end}: not a complete batch; {size - end} bytes remain")


def _batch(position: int, header: BatchHeader, *, crc_valid: bool) -> Entry:
    codec = header.codec
    return {
        "entry": "batch",
        "position": position,
        "size_bytes": header.size,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.record_count,
        "leader_epoch": header.partition_leader_epoch,
        "crc": header.crc,
        "crc_valid": crc_valid,
        "compression": Codec(codec).name.lower() if codec in tuple(Codec) else str(codec),
        "timestamp_type": "create" if header.timestamp_type is TimestampType.CREATE_TIME else "append",
        "base_timestamp_ms": header.base_timestamp,
        "max_timestamp_ms": header.max_timestamp,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "is_transactional": header.is_transactional,
        "is_control": header.is_control,
        "has_delete_horizon": header.has_delete_horizon,
    }


def _records(position: int, header: BatchHeader, data: memoryview) -> Iterator[Entry]:
    try:
        for record in iter_records(data):
            yield _record(record, is_control=header.is_control)
    except (ProtocolError, KafkaError) as error:
        raise UnreadableFile(f"position {position}: batch with base offset {header.base_offset}: {error}") from None


def _record(record: Record, *, is_control: bool) -> Entry:
    marker = parse_end_marker(record) if is_control else None
    entry: Entry = {"entry": "record", "offset": record.offset, "timestamp_ms": record.timestamp_ms}
    if marker is not None:
        decision = "commit" if marker.committed else "abort"
        return {**entry, "marker": decision, "coordinator_epoch": marker.coordinator_epoch}
    for name, data in (("key", record.key), ("value", record.value)):
        entry[name], entry[f"{name}_encoding"] = text_and_encoding(data)
    entry["headers"] = [_header(name, value) for name, value in record.headers]
    return entry


def _header(name: str, data: bytes | None) -> Entry:
    text, encoding = text_and_encoding(data)
    return {"key": name.encode(errors="surrogateescape").decode(errors="replace"), "value": text, "encoding": encoding}


def text_and_encoding(data: bytes | None) -> tuple[str | None, str | None]:
    """Return bytes as text with its encoding, ``utf8`` if valid, otherwise ``base64``, as in the admin API."""
    if data is None:
        return None, None
    try:
        return data.decode(), "utf8"
    except UnicodeDecodeError:
        return base64.b64encode(data).decode(), "base64"


def _offset_index(disk: Disk, path: str, base_offset: int) -> Iterator[Entry]:
    with closing(offset_index(disk, path)) as file:
        for entry in offset_entries(file, base_offset):
            yield {"entry": "offset", "position": entry.start, "offset": entry.offset, "log_position": entry.position}
        _check_no_remainder(file)


def _time_index(disk: Disk, path: str, base_offset: int) -> Iterator[Entry]:
    with closing(time_index(disk, path)) as file:
        for entry in time_entries(file, base_offset):
            yield {"entry": "time", "position": entry.start, "timestamp_ms": entry.timestamp_ms, "offset": entry.offset}
        _check_no_remainder(file)


def _transaction_index(disk: Disk, path: str, _: int) -> Iterator[Entry]:
    with closing(transaction_index(disk, path)) as file:
        for entry in aborted_entries(file):
            yield {"entry": "aborted", "position": entry.start, "version": entry.version, **entry.aborted._asdict()}
        _check_no_remainder(file)


def _check_no_remainder(file: EntryFile) -> None:
    remainder = file.size % file.entry_size
    if remainder:
        raise UnreadableFile(f"position {file.size - remainder}: {remainder} bytes after the last complete entry")


def _small_file(disk: Disk, path: str, name: str) -> Iterator[Entry]:
    """Yield the entries of a file that is read into memory."""
    with closing(disk.open(path)) as file:
        if file.size() > SMALL_FILE_SIZE_MAX:
            raise UnreadableFile(f"the file has {file.size():,} bytes; the maximum is {SMALL_FILE_SIZE_MAX:,}")
    try:
        if name.endswith(".snapshot"):
            for producer in decode_snapshot(path, disk.read_file(path)):
                recent = [batch._asdict() for batch in producer.batches]
                yield {"entry": "producer", **asdict(producer), "batches": recent}
        elif name == LEADER_EPOCHS:
            for epoch in read_epochs(path, disk):
                yield {"entry": "epoch", **epoch._asdict()}
        elif name in CHECKPOINTS:
            for topic, partition, offset in parse_checkpoint(path, disk.read_file(path), fields=3):
                yield {"entry": "checkpoint", "topic": topic, "partition": int(partition), "offset": int(offset)}
        elif name == PARTITION_METADATA:
            topic_id = read_topic_id(disk, path)
            yield {"entry": "metadata", "topic_id": None if topic_id is None else encode_uuid(topic_id)}
        else:
            raise UnreadableFile("unknown type of log file")
    except StorageError as error:
        raise UnreadableFile(str(error).removeprefix(f"{path}: ")) from None
