"""Simulates a power cut on a broker's logs: truncates the unsynced end of each log at a random byte."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

from kreplica.model import TopicPartition
from kreplica.runtime.os_disk import OsDisk
from kreplica.storage.formats.checkpoints import RECOVERY_POINTS, read_offsets
from kreplica.wire.batches import iter_headers


def cut_tails(log_directory: Path, random: Random) -> int:
    """Truncate every log of a stopped broker at a random byte above its recovery point.

    Data below the recovery point was synced, so it is kept.

    :return: number of lost bytes.
    """
    recovery_points = read_offsets(OsDisk(), str(log_directory / RECOVERY_POINTS))
    lost = 0
    for directory in sorted(path for path in log_directory.iterdir() if path.is_dir()):
        topic, _, partition = directory.name.rpartition("-")
        if not partition.isdigit():
            continue  # a log that is being deleted
        recovery_point = recovery_points.get(TopicPartition(topic, int(partition)), 0)
        segments = sorted(directory.glob("*.log"))
        if segments:
            lost += _cut(segments[-1], recovery_point, random)
    return lost


def _cut(segment: Path, recovery_point: int, random: Random) -> int:
    data = segment.read_bytes()
    synced = 0
    for position, header in iter_headers(data, incomplete_last=True):
        if header.next_offset > recovery_point:
            break
        synced = position + header.size
    end = random.randint(synced, len(data))
    os.truncate(segment, end)
    return len(data) - end
