"""Comparison of replicas, with equal ones and with each kind of difference."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kreplica.model import TopicPartition
from kreplica.spark.pipelines.audit.file_replicas import FileReplica
from kreplica.spark.pipelines.audit.replica_comparison import LogStartMoved, Span, compare
from kreplica.spark.pipelines.audit.replica_findings import Comparison, Kind
from kreplica.spark.source.segment_files import ReplicaFiles
from kreplica.storage.formats.leader_epochs import EpochEntry
from kreplica.wire.batch_building import build_batch, filter_batch
from kreplica.wire.batches import parse_header
from kreplica.wire.records import Record

Change = Callable[[list[bytes]], list[bytes]]

PARTITION = TopicPartition("t", 0)
SEGMENTS = (0, 30)


def batch(number: int, *, leader_epoch: int = 0, value: bytes = b"value") -> bytes:
    """Return a batch of five records that starts at offset ``5 * number``."""
    records = [Record(5 * number + each, 1000, b"key %d" % each, value) for each in range(5)]
    return build_batch(records, base_offset=5 * number, leader_epoch=leader_epoch)


def replica(directory: Path, broker: int, batches: list[bytes], *, required_end: int = 50) -> FileReplica:
    """Write a replica with the given batches in two segments."""
    path = directory / str(broker) / "t-0"
    path.mkdir(parents=True)
    segments: dict[int, bytes] = dict.fromkeys(SEGMENTS, b"")
    place = -5
    for each in batches:
        base = int.from_bytes(each[:8], "big")
        place = base if base % 5 == 0 and place < base < 50 else place + 5  # the position before the change
        segments[max(start for start in SEGMENTS if start <= place)] += each
    for base, data in segments.items():
        (path / f"{base:020}.log").write_bytes(data)
    files = ReplicaFiles(PARTITION, str(path), 0, required_end)
    return FileReplica(broker, files, 0, None, required_end)


def replicas(directory: Path, changes: dict[int, Change], *, required_end: int = 50) -> list[FileReplica]:
    """Write three replicas of ten batches, with changes by broker."""
    batches = [batch(number) for number in range(10)]
    return [replica(directory, each, changes.get(each, list)(batches), required_end=required_end) for each in (1, 2, 3)]


def change_byte(number: int, position: int, byte: int | None = None) -> Change:
    """Return a function that changes one byte of a batch."""

    def change(batches: list[bytes]) -> list[bytes]:
        damaged = bytearray(batches[number])
        damaged[position] = damaged[position] ^ 4 if byte is None else byte
        return [*batches[:number], bytes(damaged), *batches[number + 1 :]]

    return change


def compare_replicas(copies: list[FileReplica], end: int = 50, *, start: int = 0, compacted_end: int = 0) -> Comparison:
    return compare(PARTITION, copies, Span(start, end, compacted_end))


def differences_of(found: Comparison) -> list[tuple[int, int, Kind]]:
    assert found.difference_count == len(found.differences)
    return [(each.broker, each.base_offset, each.kind) for each in found.differences]


def test_equal_replicas(tmp_path: Path) -> None:
    """All batches of all replicas are compared, without a difference."""
    found = compare_replicas(replicas(tmp_path, {}))
    assert differences_of(found) == []
    assert [(each.batches, each.end, each.is_short) for each in found.coverages] == [(10, 50, False)] * 3


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (change_byte(3, -3), Kind.DAMAGED),
        (change_byte(3, 15), Kind.DIFFERENT),  # the leader epoch, which the checksum does not cover
        (change_byte(3, 11), Kind.DAMAGED),  # the length, which hides the following batches
        (change_byte(3, 16), Kind.DAMAGED),  # the magic
        (change_byte(3, 7, 0), Kind.DAMAGED),  # the base offset, lower than allowed
        (change_byte(3, 7, 200), Kind.DAMAGED),  # higher than the end of the segment
        (change_byte(3, 7, 17), Kind.DAMAGED),  # at another batch's records
        (change_byte(3, 26), Kind.DAMAGED),  # the last offset
        (change_byte(3, 23), Kind.DAMAGED),
        (lambda batches: [*batches[:3], batch(3, leader_epoch=1), *batches[4:]], Kind.DIFFERENT),
        (lambda batches: [*batches[:3], batch(3, value=b"other"), *batches[4:]], Kind.DIFFERENT),
        (lambda batches: [*batches[:3], *batches[4:]], Kind.MISSING),
    ],
)
def test_different_replica_is_reported(tmp_path: Path, change: Change, kind: Kind) -> None:
    """A difference is reported once with its offset; later batches and the other replicas are still compared."""
    found = compare_replicas(replicas(tmp_path, {2: change, 3: change_byte(8, -1)}))
    assert differences_of(found) == [(2, 15, kind), (3, 40, Kind.DAMAGED)]
    assert [each.end for each in found.coverages] == [50] * 3


def test_any_flipped_bit(tmp_path: Path) -> None:
    """For any flipped bit, only the batch that contains it is reported."""
    copies = replicas(tmp_path, {})
    size = len(batch(0))
    for base, first in ((0, 0), (30, 6)):
        path = Path(copies[1].files.path) / f"{base:020}.log"
        data = path.read_bytes()
        for position in range(len(data)):
            damaged = bytearray(data)
            damaged[position] ^= 1 << (position * 5 % 8)
            path.write_bytes(damaged)
            place = 5 * (first + position // size)
            found = differences_of(compare_replicas(copies))
            assert [each[:2] for each in found] == [(2, place)], (position, found)
        path.write_bytes(data)


def test_truncation_at_any_byte(tmp_path: Path) -> None:
    """For a log truncated at any byte, only the first incomplete batch is reported, as missing."""
    copies = replicas(tmp_path, {})
    size = len(batch(0))
    path = Path(copies[1].files.path) / f"{30:020}.log"
    data = path.read_bytes()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        end = 30 + 5 * (length // size)
        assert differences_of(compare_replicas(copies)) == [(2, end, Kind.MISSING)]
        catching_up = [copies[0], copies[1]._replace(required_end=end), copies[2]]
        found = compare_replicas(catching_up)
        assert (differences_of(found), found.coverages[1].end, found.coverages[1].is_short) == ([], end, True)


def test_missing_batches_in_a_row(tmp_path: Path) -> None:
    """Several consecutive missing batches are reported as one difference."""
    copies = replicas(tmp_path, {1: lambda batches: [*batches[:2], *batches[5:]]})
    assert differences_of(compare_replicas(copies)) == [(1, 10, Kind.MISSING)]


def test_index_finds_batches_after_damage(tmp_path: Path) -> None:
    """With the index, batches after an invalid header are still compared."""
    copies = replicas(tmp_path, {2: change_byte(2, 16), 3: change_byte(4, -1)})
    path = Path(copies[1].files.path)
    size = len(batch(0))
    entries = [(number * 5, number * size) for number in (1, 3)]
    data = b"".join(offset.to_bytes(4, "big") + position.to_bytes(4, "big") for offset, position in entries)
    (path / f"{0:020}.index").write_bytes(data)
    found = compare_replicas(copies)
    assert differences_of(found) == [(2, 10, Kind.DAMAGED), (3, 20, Kind.DAMAGED)]
    assert [each.batches for each in found.coverages] == [10, 9, 10]


def test_replica_that_is_catching_up(tmp_path: Path) -> None:
    """A replica that ends before the high watermark because it is catching up is noted, but is not a difference."""
    copies = replicas(tmp_path, {1: lambda batches: batches[:8]}, required_end=40)
    found = compare_replicas(copies)
    assert differences_of(found) == []
    assert [(each.broker, each.end, each.is_short) for each in found.coverages] == [
        (1, 40, True), (2, 50, False), (3, 50, False),
    ]  # fmt: skip


def test_lost_tail(tmp_path: Path) -> None:
    """A replica that should be complete but lacks its last batches is reported once."""
    found = compare_replicas(replicas(tmp_path, {1: lambda batches: batches[:7]}))
    assert differences_of(found) == [(1, 35, Kind.MISSING)]


def test_differences_above_the_high_watermark(tmp_path: Path) -> None:
    """Batches that end above the high watermark are not compared, and may differ or be incomplete."""
    change = {
        1: lambda batches: [*batches[:9], batches[9][:40]],
        2: lambda batches: [*batches[:9], batch(9, leader_epoch=3, value=b"x")],
        3: lambda batches: batches[:9],
    }
    copies = replicas(tmp_path, change, required_end=47)
    for end in (45, 47):
        found = compare_replicas(copies, end)
        assert differences_of(found) == []
        assert [(each.end, each.is_short) for each in found.coverages] == [(45, False)] * 3


def test_zeros_are_not_a_batch(tmp_path: Path) -> None:
    """Zeros that a device leaves after a crash are ignored above the high watermark, and are damage below it."""
    copies = replicas(tmp_path, {3: lambda batches: batches[:9]}, required_end=45)
    with (Path(copies[2].files.path) / f"{30:020}.log").open("ab") as file:
        file.write(bytes(500))
    assert differences_of(compare_replicas(copies, 45)) == []
    assert differences_of(compare_replicas(copies, 50)) == [(3, 45, Kind.DAMAGED)]


def test_two_different_replicas(tmp_path: Path) -> None:
    """If only two replicas exist and differ, both are reported, because neither can be proved correct."""
    copies = replicas(tmp_path, {2: lambda batches: [batch(0, value=b"other"), *batches[1:]]})
    assert differences_of(compare_replicas(copies[:2])) == [(1, 0, Kind.DIFFERENT), (2, 0, Kind.DIFFERENT)]


def test_single_replica(tmp_path: Path) -> None:
    """Only the checksums of a single replica can be verified."""
    copies = replicas(tmp_path, {1: change_byte(9, -1)})
    assert differences_of(compare_replicas(copies[:1])) == [(1, 45, Kind.DAMAGED)]


def test_same_records_in_different_batches(tmp_path: Path) -> None:
    """If a replica has one batch where the others have two, the first is reported as different."""

    def join_batches(batches: list[bytes]) -> list[bytes]:
        records = [Record(10 + each, 1000, b"key %d" % (each % 5), b"value") for each in range(10)]
        return [*batches[:2], build_batch(records, base_offset=10, leader_epoch=0), *batches[4:]]

    assert differences_of(compare_replicas(replicas(tmp_path, {2: join_batches}))) == [(2, 10, Kind.DIFFERENT)]


def test_comparison_starts_at_the_highest_log_start(tmp_path: Path) -> None:
    """Retention deletes records of each replica independently, so only common offsets are compared."""
    copies = replicas(tmp_path, {1: lambda batches: [batch(0, value=b"old"), *batches[1:]]})
    (Path(copies[1].files.path) / f"{0:020}.log").unlink()
    found = compare_replicas(copies)
    assert differences_of(found) == []
    assert [(each.start, each.batches) for each in found.coverages] == [(30, 4)] * 3


def test_log_start_that_advances(tmp_path: Path) -> None:
    """Reading a segment that was deleted in the meantime raises LogStartMoved."""
    copies = replicas(tmp_path, {})
    batches = copies[1].batches(0, 50)
    (Path(copies[1].files.path) / f"{0:020}.log").unlink()
    with pytest.raises(LogStartMoved):
        next(batches)


def test_split_ranges(tmp_path: Path) -> None:
    """Wherever a range is split, even within a batch, each batch and each difference is in one part."""
    copies = replicas(tmp_path, {2: change_byte(3, -3), 3: change_byte(6, 15)})
    for cut in range(1, 50):
        parts = [compare_replicas(copies, cut), compare_replicas(copies, start=cut)]
        assert sorted(differences_of(parts[0]) + differences_of(parts[1])) == [
            (2, 15, Kind.DAMAGED),
            (3, 30, Kind.DIFFERENT),
        ]
        assert [sum(part.coverages[index].batches for part in parts) for index in range(3)] == [10] * 3


def compact(number: int, keep: set[int], *, value: bytes = b"value", horizon_ms: int | None = None) -> bytes:
    """Return a batch after compaction."""
    kept = filter_batch(
        batch(number, value=value), lambda record: record.offset % 5 in keep, delete_horizon_ms=horizon_ms
    )
    assert kept is not None
    return bytes(kept)


def test_compacted_replicas(tmp_path: Path) -> None:
    """Replicas are compacted independently, so only common records must be equal."""
    change = {
        2: lambda batches: [batches[0], *batches[2:]],
        3: lambda batches: [compact(0, {1, 4}), batches[1], compact(2, {0}, horizon_ms=77), *batches[3:]],
    }
    copies = replicas(tmp_path, change)
    found = compare_replicas(copies, compacted_end=30)
    assert (differences_of(found), found.compacted_count) == ([], 3)
    assert {kind for _, _, kind in differences_of(compare_replicas(copies))} == {Kind.MISSING, Kind.DIFFERENT}


def test_compaction_hides_no_difference(tmp_path: Path) -> None:
    """A different record or epoch is reported, and so are all differences after the compacted range."""
    change = {
        1: lambda batches: [compact(0, {1, 4}, value=b"other"), *batches[1:]],
        2: lambda batches: [*batches[:3], batch(3, leader_epoch=2), *batches[4:6], *batches[7:]],
        3: lambda batches: [*batches[:4], *change_byte(4, -1)(batches)[4:]],
    }
    found = compare_replicas(replicas(tmp_path, change), compacted_end=30)
    assert differences_of(found) == [
        (1, 0, Kind.DIFFERENT), (2, 15, Kind.DIFFERENT), (3, 20, Kind.DAMAGED), (2, 30, Kind.MISSING),
    ]  # fmt: skip
    assert "offset 1 " in found.differences[0].detail


def epochs(batches: list[bytes]) -> list[bytes]:
    """Set leader epoch 0 below offset 20, 3 from offset 20, and 4 from offset 40."""
    return [batch(number, leader_epoch=0 if number < 4 else 3 if number < 8 else 4) for number in range(len(batches))]


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([(0, 0), (3, 20), (4, 40)], []),
        ([(0, 0), (3, 20)], []),  # the last entry is not written yet
        ([(0, 0), (2, 20), (3, 20), (4, 40), (5, 50)], []),  # epoch 2 wrote nothing
        ([(3, 30), (4, 40)], []),  # earlier entries deleted by retention
        ([], []),
        ([(0, 0), (3, 25), (4, 40)], [20]),
        ([(0, 0), (3, 15), (4, 40)], [15]),
        ([(0, 0), (3, 20), (5, 40)], [40]),
        ([(0, 0), (4, 20)], [20]),
        ([(0, 0), (4, 40)], [20]),
    ],
)
def test_epoch_checkpoints(tmp_path: Path, entries: list[tuple[int, int]], expected: list[int]) -> None:
    """An epoch checkpoint that contradicts the batches is reported, because it would cause wrong truncation."""
    copies = replicas(tmp_path, dict.fromkeys((1, 2, 3), epochs))
    copies[1] = copies[1]._replace(epochs=tuple(EpochEntry(*each) for each in entries))
    assert differences_of(compare_replicas(copies)) == [(2, offset, Kind.EPOCHS) for offset in expected]


def test_batches_have_the_same_size() -> None:
    """The tests above require that all batches are valid and have the same size."""
    assert {parse_header(batch(number)).size for number in range(10)} == {len(batch(0))}
