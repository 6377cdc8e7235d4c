"""Replicas that agree, and each way in which one does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kreplica.model import TopicPartition
from kreplica.spark.pipelines.replica_comparison import Comparison, Kind, compare
from kreplica.spark.segment_files import ReplicaFiles
from kreplica.wire.batch_building import build_batch
from kreplica.wire.batches import parse_header
from kreplica.wire.records import Record

Change = Callable[[list[bytes]], list[bytes]]


def batch(number: int, *, leader_epoch: int = 0, value: bytes = b"value") -> bytes:
    """The batch of offsets from five times its number on."""
    records = [Record(5 * number + each, 1000, None, value) for each in range(5)]
    return build_batch(records, base_offset=5 * number, leader_epoch=leader_epoch)


def replicas(directory: Path, changes: dict[int, Change], *, high_watermark: int = 50) -> dict[int, ReplicaFiles]:
    """Three copies of ten batches in two segments, some of them changed."""
    found = {}
    for broker in (1, 2, 3):
        path = directory / str(broker)
        path.mkdir()
        batches = changes.get(broker, list)([batch(number) for number in range(10)])
        for base, end in ((0, 30), (30, 1000)):
            own = [each for each in batches if base <= parse_header(each).base_offset < end]
            (path / f"{base:020}.log").write_bytes(b"".join(own))
        found[broker] = ReplicaFiles(TopicPartition("t", 0), str(path), 0, high_watermark)
    return found


def flipped(batches: list[bytes]) -> list[bytes]:
    damaged = bytearray(batches[3])
    damaged[-3] ^= 4
    return [*batches[:3], bytes(damaged), *batches[4:]]


def told(found: Comparison) -> list[tuple[int, int, Kind]]:
    return [(each.broker, each.base_offset, each.kind) for each in found.differences]


def test_they_agree(tmp_path: Path) -> None:
    """Every batch of every replica is looked at."""
    found = compare(replicas(tmp_path, {}))
    assert found.differences == []
    assert [(each.batches, each.end, each.is_short) for each in found.coverages] == [(10, 50, False)] * 3


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (flipped, (2, 15, Kind.DAMAGED)),
        (lambda batches: [*batches[:3], batch(3, leader_epoch=1), *batches[4:]], (2, 15, Kind.DIFFERENT)),
        (lambda batches: [*batches[:3], batch(3, value=b"other"), *batches[4:]], (2, 15, Kind.DIFFERENT)),
    ],
)
def test_who_is_alone_is_named(tmp_path: Path, change: Change, wanted: tuple[int, int, Kind]) -> None:
    """With the offset; the others go on being compared."""
    found = compare(replicas(tmp_path, {2: change}))
    assert told(found) == [wanted]
    assert [each.batches for each in found.coverages] == [10] * 3


def test_a_hole(tmp_path: Path) -> None:
    """A batch that one replica does not have is named; a compacted topic may have such."""
    made = replicas(tmp_path, {3: lambda batches: [*batches[:2], *batches[3:]]})
    found = compare({broker: made[broker] for broker in (1, 2)})
    assert found.differences == []
    hole = compare(made)
    assert told(hole) == [(3, 10, Kind.MISSING)]
    assert compare(made, is_compacted=True).compacted_count == 1


def test_a_tail_that_is_not_there_yet(tmp_path: Path) -> None:
    """Whoever ends before the high watermark is short; beyond it nothing is compared."""
    made = replicas(tmp_path, {1: lambda batches: batches[:8], 3: lambda batches: [*batches[:9], batch(9, value=b"x")]})
    found = compare({broker: files._replace(high_watermark=45) for broker, files in made.items()})
    assert found.differences == []
    assert [(each.broker, each.end, each.is_short) for each in found.coverages] == [
        (1, 40, True), (2, 45, False), (3, 45, False),
    ]  # fmt: skip


def test_two_that_contradict_each_other(tmp_path: Path) -> None:
    """Nobody can say who is right: both are named."""
    made = replicas(tmp_path, {2: lambda batches: [batch(0, value=b"other"), *batches[1:]]})
    found = compare({broker: made[broker] for broker in (1, 2)})
    assert told(found) == [(1, 0, Kind.DIFFERENT), (2, 0, Kind.DIFFERENT)]


def test_logs_begin_where_the_last_one_does(tmp_path: Path) -> None:
    """Retention deletes each replica by itself."""
    made = replicas(tmp_path, {1: lambda batches: [batch(0, value=b"old"), *batches[1:]]})
    made[2] = made[2]._replace(start=30)
    found = compare(made)
    assert found.differences == []
    assert [each.batches for each in found.coverages] == [4] * 3
