"""Partition leaders in a broker's metadata: Metadata version 1, parsed fast enough for polling."""

from __future__ import annotations

import struct
from collections.abc import Collection
from typing import NamedTuple

from benchmarks.raw_client import METADATA, RawClient

PATIENCE_S = 60.0

_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_PARTITION = struct.Struct(">hiii")


class PartitionLeader(NamedTuple):
    """One partition in a broker's metadata.

    :param leader: -1 if the broker knows no live leader.
    :param preferred: the first replica.
    :param in_sync: number of in-sync replicas.
    """

    topic: str
    partition: int
    leader: int
    preferred: int
    in_sync: int


class LeaderMetadata(NamedTuple):
    """A broker's metadata of some topics.

    :param controller: ID of the controller; -1 if the broker knows none.
    """

    controller: int
    partitions: list[PartitionLeader]


class MetadataConnection:
    """A connection to a polled broker.

    :raise OSError: from any method, if the broker does not respond.
    """

    def __init__(self, port: int) -> None:
        self._client = RawClient(port, PATIENCE_S)

    def read_metadata(self, topics: Collection[str]) -> LeaderMetadata:
        """Return the broker's metadata of some topics."""
        names = [topic.encode() for topic in topics]
        wanted = b"".join(_I16.pack(len(name)) + name for name in names)
        return read(self._client.request(METADATA, 1, _I32.pack(len(names)) + wanted))

    def close(self) -> None:
        self._client.close()


def read(response: bytes) -> LeaderMetadata:
    """Parse a response to Metadata version 1."""
    (broker_count,) = _I32.unpack_from(response)
    position = 4
    for _ in range(broker_count):
        position = _after_string(response, position + 4) + 4  # id, host, port
        position = _after_string(response, position)  # rack
    controller, topic_count = struct.unpack_from(">ii", response, position)
    position += 8
    partitions: list[PartitionLeader] = []
    for _ in range(topic_count):
        begin, position = position + 4, _after_string(response, position + 2)
        topic = response[begin:position].decode()
        (count,) = _I32.unpack_from(response, position + 1)  # after the flag for internal topics
        position = _read_partitions(response, position + 5, count, topic, partitions)
    return LeaderMetadata(controller, partitions)


def _read_partitions(response: bytes, position: int, count: int, topic: str, out: list[PartitionLeader]) -> int:
    """Add a topic's partitions to ``out``, and return the position after them."""
    for _ in range(count):
        _, index, leader, replicas = _PARTITION.unpack_from(response, position)
        position += _PARTITION.size
        preferred = _I32.unpack_from(response, position)[0] if replicas else -1
        position += 4 * replicas
        (in_sync,) = _I32.unpack_from(response, position)
        position += 4 + 4 * in_sync
        out.append(PartitionLeader(topic, index, leader, preferred, in_sync))
    return position


def _after_string(response: bytes, position: int) -> int:
    (size,) = _I16.unpack_from(response, position)
    return position + 2 + max(size, 0)
