"""Compares the files of a real cluster's replicas byte by byte."""

from __future__ import annotations

from collections.abc import Iterator

from kreplica.wire.batches import iter_headers, parse_header
from tests.support.process_cluster import ProcessCluster, wait_until
from tests.support.server_process import ServerFailed

CATCH_UP_S_MAX = 20.0
"""Time limit for followers to catch up: an intact follower is in the ISR even before its first fetch."""


def check_replicas_equal(cluster: ProcessCluster, topic: str, ends: list[int]) -> None:
    """Wait until, for every partition, the logs of all replicas are equal and complete.

    :param ends: for each partition, the offset at which its log must end.
    :raise ServerFailed: two replicas differ, or a log has a different end.
    """
    wait_until(
        lambda: not any(_differences(cluster, topic, ends)),
        f"the replicas of {topic} to be the same",
        CATCH_UP_S_MAX,
        lambda: list(_differences(cluster, topic, ends)),
    )


def _differences(cluster: ProcessCluster, topic: str, ends: list[int]) -> Iterator[str]:
    for partition, view in cluster.partitions(topic).items():
        logs = {replica: read_log(cluster, replica, topic, partition) for replica in view.replicas}
        first = next(iter(logs))
        for replica, log in logs.items():
            end = parse_header(log[-1]).next_offset if log else 0
            if end != ends[partition]:
                yield f"{topic}-{partition} ends at {end} on broker {replica}, expected {ends[partition]}"
            elif log != logs[first]:
                difference = _first_difference(logs[first], log)
                yield f"{topic}-{partition} differs between the brokers {first} and {replica}: {difference}"


def read_log(cluster: ProcessCluster, broker_id: int, topic: str, partition: int) -> list[bytes]:
    """Return the batches of one replica, in the order of its files.

    :raise ServerFailed: the broker has no such log.
    """
    broker = cluster.brokers[broker_id]
    directories = [path for root in broker.log_directories if (path := root / f"{topic}-{partition}").is_dir()]
    if not directories:
        raise ServerFailed(f"broker {broker_id} has no {topic}-{partition}")
    segments = [path for directory in directories for path in sorted(directory.glob("*.log"))]
    return [batch for path in segments for batch in _batches(path.read_bytes())]


def _batches(data: bytes) -> Iterator[bytes]:
    for position, header in iter_headers(data, incomplete_last=True):
        yield data[position : position + header.size]


def _first_difference(batches: list[bytes], other_batches: list[bytes]) -> str:
    for batch, other in zip(batches, other_batches, strict=False):
        if batch != other:
            return f"{parse_header(batch)} and {parse_header(other)}"
    return f"{len(batches)} batches and {len(other_batches)}"
