"""Who leads, as one broker tells any client: Metadata version 1, read fast enough to be asked again and again."""

from __future__ import annotations

import struct
from collections.abc import Collection
from typing import NamedTuple

from benchmarks.raw_client import METADATA, RawClient

PATIENCE_S = 60.0

_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_PARTITION = struct.Struct(">hiii")


class Led(NamedTuple):
    """One partition, as a broker tells it.

    :param leader: -1 where nobody leads that the broker knows to live.
    :param preferred: the first of its replicas.
    :param in_sync: how many replicas are in sync.
    """

    topic: str
    partition: int
    leader: int
    preferred: int
    in_sync: int


class Told(NamedTuple):
    """What a broker tells.

    :param controller: -1 where it knows of none.
    """

    controller: int
    partitions: list[Led]


class Teller:
    """A connection to a broker that is asked.

    :raise OSError: from everything, where it does not answer.
    """

    def __init__(self, port: int) -> None:
        self._client = RawClient(port, PATIENCE_S)

    def ask(self, topics: Collection[str]) -> Told:
        """What it knows of some topics."""
        names = [topic.encode() for topic in topics]
        wanted = b"".join(_I16.pack(len(name)) + name for name in names)
        return read(self._client.request(METADATA, 1, _I32.pack(len(names)) + wanted))

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


def read(answer: bytes) -> Told:
    """Read an answer to Metadata version 1."""
    (brokers_count,) = _I32.unpack_from(answer)
    position = 4
    for _ in range(brokers_count):
        position = _after_string(answer, position + 4) + 4  # id, host, port
        position = _after_string(answer, position)  # rack
    controller, topics_count = struct.unpack_from(">ii", answer, position)
    position += 8
    partitions: list[Led] = []
    for _ in range(topics_count):
        begin, position = position + 4, _after_string(answer, position + 2)
        topic = answer[begin:position].decode()
        (count,) = _I32.unpack_from(answer, position + 1)  # after whether it is internal
        position = _read_partitions(answer, position + 5, count, topic, partitions)
    return Told(controller, partitions)


def _read_partitions(answer: bytes, position: int, count: int, topic: str, out: list[Led]) -> int:
    """Add a topic's partitions; gives where they end."""
    for _ in range(count):
        _, index, leader, replicas = _PARTITION.unpack_from(answer, position)
        position += _PARTITION.size
        preferred = _I32.unpack_from(answer, position)[0] if replicas else -1
        position += 4 * replicas
        (in_sync,) = _I32.unpack_from(answer, position)
        position += 4 + 4 * in_sync
        out.append(Led(topic, index, leader, preferred, in_sync))
    return position


def _after_string(answer: bytes, position: int) -> int:
    (size,) = _I16.unpack_from(answer, position)
    return position + 2 + max(size, 0)
