"""Small files of a log directory, in Kafka's formats: offset checkpoints, identities and the clean-shutdown marker."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from uuid import UUID

from kreplica.errors import StorageError
from kreplica.model import TopicPartition
from kreplica.runtime.disk import Disk

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
META_PROPERTIES = "meta.properties"
PARTITION_METADATA = "partition.metadata"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"

NO_BROKER_EPOCH = -1


def parse_checkpoint(path: str, data: bytes, *, fields: int) -> Iterator[list[str]]:
    """Yield the rows of a version 0 checkpoint: a line with the version, one with the number of rows, then the rows.

    :param fields: number of fields in a row; topic names contain no spaces.
    :raise StorageError: wrong version, wrong number of rows, or a malformed row.
    """
    text = data.decode("utf-8", "replace")
    lines = text.splitlines()
    if not lines or lines[0].strip() != "0":
        raise StorageError(f"{path}: not a version 0 checkpoint; remove the file to rebuild it")
    if len(lines) < 2 or not text.endswith("\n") or not lines[1].strip().isdigit() or int(lines[1]) != len(lines) - 2:
        raise StorageError(f"{path}: the number of rows does not match line 2; the file is incomplete")
    for number, line in enumerate(lines[2:], start=3):
        row = line.split()
        if len(row) != fields or not all(_is_integer(text) for text in row[1:]):
            raise StorageError(f"{path}: line {number} is malformed: {line[:80]!r}")
        yield row


def _is_integer(text: str) -> bool:
    return text.removeprefix("-").isdecimal()


def render_checkpoint(rows: Iterable[str]) -> bytes:
    lines = list(rows)
    return "\n".join(["0", str(len(lines)), *lines, ""]).encode()


def read_offsets(
    disk: Disk, path: str, known: Mapping[TopicPartition, TopicPartition] = MappingProxyType({})
) -> dict[TopicPartition, int]:
    """Read an offset checkpoint; returns an empty dict if the file is missing.

    :param known: keys to use instead of new, equal ones.
    :raise StorageError: the file is damaged.
    """
    try:
        data = disk.read_file(path)
    except FileNotFoundError:
        return {}
    rows = parse_checkpoint(path, data, fields=3)
    offsets = {}
    for topic, partition, offset in rows:
        key = TopicPartition(topic, int(partition))
        offsets[known.get(key, key)] = int(offset)
    return offsets


def write_offsets(disk: Disk, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace an offset checkpoint; blocks on the device."""
    rows = (f"{partition.topic} {partition.partition} {offset}" for partition, offset in sorted(offsets.items()))
    disk.write_file(path, render_checkpoint(rows))


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """Identity of a log directory.

    :param other_properties: unknown keys, kept unchanged (Kafka 3.7 adds ``directory.id``).
    """

    cluster_id: str
    broker_id: int
    other_properties: Mapping[str, str] = field(default_factory=dict)


def read_meta_properties(disk: Disk, path: str) -> MetaProperties | None:
    """Read ``meta.properties``; returns None if it is missing.

    :raise StorageError: wrong version, or a key is missing or malformed.
    """
    try:
        text = disk.read_file(path).decode("latin-1")
    except FileNotFoundError:
        return None
    properties = dict(_parse_properties(text))
    if properties.pop("version", None) != "0":
        raise StorageError(f"{path}: only version 0 (a cluster in ZooKeeper mode) is supported")
    cluster_id, broker_id = properties.pop("cluster.id", ""), properties.pop("broker.id", "")
    if not cluster_id or not broker_id.isdecimal():
        raise StorageError(f"{path}: cluster.id or broker.id is missing or malformed")
    return MetaProperties(cluster_id, int(broker_id), properties)


def _parse_properties(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        line = line.strip()
        if line and line[0] not in "#!":
            key, _, value = line.replace("\\:", ":").replace("\\=", "=").partition("=")
            yield key.strip(), value.strip()


def write_meta_properties(disk: Disk, path: str, meta: MetaProperties) -> None:
    """Replace ``meta.properties`` durably."""
    rows = {**meta.other_properties, "cluster.id": meta.cluster_id, "version": "0", "broker.id": str(meta.broker_id)}
    disk.write_file(path, "".join(f"{key}={value}\n" for key, value in rows.items()).encode("latin-1"))


def read_topic_id(disk: Disk, path: str) -> UUID | None:
    """Read the topic ID from ``partition.metadata`` (KIP-516); returns None if the file is missing.

    :raise StorageError: the file is damaged.
    """
    try:
        text = disk.read_file(path).decode("utf-8", "replace")
    except FileNotFoundError:
        return None
    rows = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    try:
        if rows["version"] != "0":
            raise ValueError(rows["version"])
        return decode_uuid(rows["topic_id"])
    except (KeyError, ValueError) as error:
        raise StorageError(f"{path}: version or topic_id is missing or malformed") from error


def write_topic_id(disk: Disk, path: str, topic_id: UUID, *, sync: bool = True) -> None:
    """Write ``partition.metadata``."""
    disk.write_file(path, f"version: 0\ntopic_id: {encode_uuid(topic_id)}\n".encode(), sync=sync)


def encode_uuid(value: UUID) -> str:
    """Return Kafka's text form of an ID: 22 characters of URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


@lru_cache(maxsize=1000)
def decode_uuid(text: str) -> UUID:
    """Parse Kafka's text form of an ID; the logs of a topic share the object.

    :raise ValueError: the text is not 22 characters of URL-safe base64.
    """
    if len(text) != 22:
        raise ValueError(f"{text!r} is not an ID of 22 characters")
    return UUID(bytes=base64.b64decode(text + "==", altchars=b"-_", validate=True))


def write_clean_shutdown(disk: Disk, path: str, broker_epoch: int) -> None:
    """Write the clean-shutdown marker with the current broker epoch (KIP-966)."""
    disk.write_file(path, json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode())


def read_clean_shutdown(disk: Disk, path: str) -> int | None:
    """Return the broker epoch of the last clean shutdown, ``NO_BROKER_EPOCH`` if unknown, or None without a marker."""
    try:
        data = disk.read_file(path)
    except FileNotFoundError:
        return None
    try:
        epoch = json.loads(data)["brokerEpoch"]
    except (ValueError, KeyError, TypeError):
        return NO_BROKER_EPOCH  # Kafka before 3.7 writes an empty file
    return epoch if isinstance(epoch, int) else NO_BROKER_EPOCH
