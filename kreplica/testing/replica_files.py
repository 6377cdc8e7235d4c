"""Whether the replicas of a real cluster are the same, byte for byte, by their files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kreplica.wire.batches import iter_headers

if TYPE_CHECKING:
    from kreplica.testing.process_cluster import ProcessCluster


def check_replicas_equal(cluster: ProcessCluster, topic: str, ends: list[int]) -> None:
    """Compare the logs of every partition below an offset; the brokers may run meanwhile.

    :param ends: for each partition the end of what is committed.
    :raise AssertionError: two differ, or one is shorter.
    """
    for partition, view in cluster.partitions(topic).items():
        end = ends[partition]
        logs = {replica: read_log(cluster, replica, topic, partition, end) for replica in view.replicas}
        first, *others = logs
        for other in others:
            assert logs[first] == logs[other], (
                f"{topic}-{partition} below {end} differs between the brokers {first} and {other}: "
                f"{_difference(logs[first], logs[other])}"
            )


def read_log(cluster: ProcessCluster, broker_id: int, topic: str, partition: int, end: int) -> list[tuple[int, bytes]]:
    """The batches of one replica that begin below an offset: (base offset, content).

    :raise AssertionError: the broker has no such log.
    """
    broker = cluster.brokers[broker_id]
    directories = [path for root in broker.log_directories if (path := root / f"{topic}-{partition}").is_dir()]
    assert directories, f"broker {broker_id} has no {topic}-{partition}"
    segments = [path for directory in directories for path in sorted(directory.glob("*.log"))]
    return [batch for path in segments for batch in _batches(path) if batch[0] < end]


def _batches(path: Path) -> list[tuple[int, bytes]]:
    data = path.read_bytes()
    headers = iter_headers(data, incomplete_last=True)
    return [(header.base_offset, data[position : position + header.size]) for position, header in headers]


def _difference(some: list[tuple[int, bytes]], others: list[tuple[int, bytes]]) -> str:
    for one, other in zip(some, others, strict=False):
        if one != other:
            return f"at {one[0]} and {other[0]}: {one[1][:61].hex()} and {other[1][:61].hex()}"
    return f"{len(some)} batches and {len(others)}"
