"""Comparison of replicas: equal ones, and each kind of difference."""

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
    """Return the batch of five offsets from ``5 * number`` on."""
    records = [Record(5 * number + each, 1000, b"key %d" % each, value) for each in range(5)]
    return build_batch(records, base_offset=5 * number, leader_epoch=leader_epoch)


def replica(directory: Path, broker: int, batches: list[bytes], *, required_end: int = 50) -> FileReplica:
    """Write a replica with batches in two segments."""
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
    """Write three copies of ten batches, some of them changed."""
    batches = [batch(number) for number in range(10)]
    return [replica(directory, each, changes.get(each, list)(batches), required_end=required_end) for each in (1, 2, 3)]


def changed(number: int, position: int, byte: int | None = None) -> Change:
    """Return a change of one byte in the batch of that number."""

    def change(batches: list[bytes]) -> list[bytes]:
        damaged = bytearray(batches[number])
        damaged[position] = damaged[position] ^ 4 if byte is None else byte
        return [*batches[:number], bytes(damaged), *batches[number + 1 :]]

    return change


def compared(made: list[FileReplica], end: int = 50, *, start: int = 0, compacted_end: int = 0) -> Comparison:
    return compare(PARTITION, made, Span(start, end, compacted_end))


def kinds_of(found: Comparison) -> list[tuple[int, int, Kind]]:
    assert found.difference_count == len(found.differences)
    return [(each.broker, each.base_offset, each.kind) for each in found.differences]


def test_they_agree(tmp_path: Path) -> None:
    """Every batch of every replica is compared."""
    found = compared(replicas(tmp_path, {}))
    assert kinds_of(found) == []
    assert [(each.batches, each.end, each.is_short) for each in found.coverages] == [(10, 50, False)] * 3


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (changed(3, -3), Kind.DAMAGED),
        (changed(3, 15), Kind.DIFFERENT),  # the leader epoch, which the checksum does not cover
        (changed(3, 11), Kind.DAMAGED),  # the length, which hides the following batches
        (changed(3, 16), Kind.DAMAGED),  # the magic
        (changed(3, 7, 0), Kind.DAMAGED),  # the base offset, lower than allowed
        (changed(3, 7, 200), Kind.DAMAGED),  # higher than the end of the segment
        (changed(3, 7, 17), Kind.DAMAGED),  # at another batch's records
        (changed(3, 26), Kind.DAMAGED),  # the last offset
        (changed(3, 23), Kind.DAMAGED),
        (lambda batches: [*batches[:3], batch(3, leader_epoch=1), *batches[4:]], Kind.DIFFERENT),
        (lambda batches: [*batches[:3], batch(3, value=b"other"), *batches[4:]], Kind.DIFFERENT),
        (lambda batches: [*batches[:3], *batches[4:]], Kind.MISSING),
    ],
)
def test_the_different_replica_is_named(tmp_path: Path, change: Change, kind: Kind) -> None:
    """It is reported once with its offset; its later batches and the other replicas are still compared."""
    found = compared(replicas(tmp_path, {2: change, 3: changed(8, -1)}))
    assert kinds_of(found) == [(2, 15, kind), (3, 40, Kind.DAMAGED)]
    assert [each.end for each in found.coverages] == [50] * 3


def test_any_flipped_bit(tmp_path: Path) -> None:
    """Any flipped bit: only that batch of that broker is reported."""
    made = replicas(tmp_path, {})
    size = len(batch(0))
    for base, first in ((0, 0), (30, 6)):
        path = Path(made[1].files.path) / f"{base:020}.log"
        data = path.read_bytes()
        for position in range(len(data)):
            damaged = bytearray(data)
            damaged[position] ^= 1 << (position * 5 % 8)
            path.write_bytes(damaged)
            place = 5 * (first + position // size)
            found = kinds_of(compared(made))
            assert [each[:2] for each in found] == [(2, place)], (position, found)
        path.write_bytes(data)


def test_truncation_at_any_byte(tmp_path: Path) -> None:
    """For a log truncated at any byte, the first incomplete batch is reported as missing once."""
    made = replicas(tmp_path, {})
    size = len(batch(0))
    path = Path(made[1].files.path) / f"{30:020}.log"
    data = path.read_bytes()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        end = 30 + 5 * (length // size)
        assert kinds_of(compared(made)) == [(2, end, Kind.MISSING)]
        catching_up = [made[0], made[1]._replace(required_end=end), made[2]]
        found = compared(catching_up)
        assert (kinds_of(found), found.coverages[1].end, found.coverages[1].is_short) == ([], end, True)


def test_a_whole_segment_is_gone(tmp_path: Path) -> None:
    """It is one difference, not one for each batch."""
    made = replicas(tmp_path, {1: lambda batches: [*batches[:2], *batches[5:]]})
    assert kinds_of(compared(made)) == [(1, 10, Kind.MISSING)]


def test_the_index_finds_batches_after_damage(tmp_path: Path) -> None:
    """Batches after an invalid header are still compared."""
    made = replicas(tmp_path, {2: changed(2, 16), 3: changed(4, -1)})
    path = Path(made[1].files.path)
    size = len(batch(0))
    entries = [(number * 5, number * size) for number in (1, 3)]
    data = b"".join(offset.to_bytes(4, "big") + position.to_bytes(4, "big") for offset, position in entries)
    (path / f"{0:020}.index").write_bytes(data)
    found = compared(made)
    assert kinds_of(found) == [(2, 10, Kind.DAMAGED), (3, 20, Kind.DAMAGED)]
    assert [each.batches for each in found.coverages] == [10, 9, 10]


def test_a_replica_that_is_catching_up(tmp_path: Path) -> None:
    """A replica that is catching up ends before the high watermark: this is noted, but is not a difference."""
    made = replicas(tmp_path, {1: lambda batches: batches[:8]}, required_end=40)
    found = compared(made)
    assert kinds_of(found) == []
    assert [(each.broker, each.end, each.is_short) for each in found.coverages] == [
        (1, 40, True), (2, 50, False), (3, 50, False),
    ]  # fmt: skip


def test_a_lost_tail(tmp_path: Path) -> None:
    """A replica that recorded that it was complete and is not is reported once."""
    found = compared(replicas(tmp_path, {1: lambda batches: batches[:7]}))
    assert kinds_of(found) == [(1, 35, Kind.MISSING)]


def test_beyond_the_high_watermark(tmp_path: Path) -> None:
    """Records above the high watermark may differ, also an incomplete batch; a batch below it must be equal."""
    change = {
        1: lambda batches: [*batches[:9], batches[9][:40]],
        2: lambda batches: [*batches[:9], batch(9, leader_epoch=3, value=b"x")],
        3: lambda batches: batches[:9],
    }
    made = replicas(tmp_path, change, required_end=47)
    for end in (45, 47):
        found = compared(made, end)
        assert kinds_of(found) == []
        assert [(each.end, each.is_short) for each in found.coverages] == [(45, False)] * 3


def test_zeros_are_not_a_batch(tmp_path: Path) -> None:
    """A device may leave zeros after a crash; below the high watermark they are damage."""
    made = replicas(tmp_path, {3: lambda batches: batches[:9]}, required_end=45)
    with (Path(made[2].files.path) / f"{30:020}.log").open("ab") as file:
        file.write(bytes(500))
    assert kinds_of(compared(made, 45)) == []
    assert kinds_of(compared(made, 50)) == [(3, 45, Kind.DAMAGED)]


def test_two_different_replicas(tmp_path: Path) -> None:
    """It is unknown which one is correct: both are reported."""
    made = replicas(tmp_path, {2: lambda batches: [batch(0, value=b"other"), *batches[1:]]})
    assert kinds_of(compared(made[:2])) == [(1, 0, Kind.DIFFERENT), (2, 0, Kind.DIFFERENT)]


def test_a_single_replica(tmp_path: Path) -> None:
    """Its checksums are checked, but nothing else can be."""
    made = replicas(tmp_path, {1: changed(9, -1)})
    assert kinds_of(compared(made[:1])) == [(1, 45, Kind.DAMAGED)]


def test_different_batches_of_the_same_records(tmp_path: Path) -> None:
    """If one replica has two batches for one batch of another, the first is reported."""

    def joined(batches: list[bytes]) -> list[bytes]:
        records = [Record(10 + each, 1000, b"key %d" % (each % 5), b"value") for each in range(10)]
        return [*batches[:2], build_batch(records, base_offset=10, leader_epoch=0), *batches[4:]]

    assert kinds_of(compared(replicas(tmp_path, {2: joined}))) == [(2, 10, Kind.DIFFERENT)]


def test_the_comparison_starts_at_the_highest_log_start(tmp_path: Path) -> None:
    """Retention deletes records of each replica independently."""
    made = replicas(tmp_path, {1: lambda batches: [batch(0, value=b"old"), *batches[1:]]})
    (Path(made[1].files.path) / f"{0:020}.log").unlink()
    found = compared(made)
    assert kinds_of(found) == []
    assert [(each.start, each.batches) for each in found.coverages] == [(30, 4)] * 3


def test_a_log_start_that_advances(tmp_path: Path) -> None:
    """The comparison must restart, and then compares the remaining records."""
    made = replicas(tmp_path, {})
    walk = made[1].batches(0, 50)
    (Path(made[1].files.path) / f"{0:020}.log").unlink()
    with pytest.raises(LogStartMoved):
        next(walk)


def test_pieces_cover_the_range(tmp_path: Path) -> None:
    """For any split, also within batches, each batch and each difference is in one piece."""
    made = replicas(tmp_path, {2: changed(3, -3), 3: changed(6, 15)})
    for cut in range(1, 50):
        pieces = [compared(made, cut), compared(made, start=cut)]
        assert sorted(kinds_of(pieces[0]) + kinds_of(pieces[1])) == [(2, 15, Kind.DAMAGED), (3, 30, Kind.DIFFERENT)]
        assert [sum(piece.coverages[at].batches for piece in pieces) for at in range(3)] == [10] * 3


def compacted(number: int, keep: set[int], *, value: bytes = b"value", horizon_ms: int | None = None) -> bytes:
    """Return a batch after compaction."""
    kept = filter_batch(
        batch(number, value=value), lambda record: record.offset % 5 in keep, delete_horizon_ms=horizon_ms
    )
    assert kept is not None
    return bytes(kept)


def test_compacted_replicas(tmp_path: Path) -> None:
    """Each replica is compacted independently: common records must be equal."""
    change = {
        2: lambda batches: [batches[0], *batches[2:]],
        3: lambda batches: [compacted(0, {1, 4}), batches[1], compacted(2, {0}, horizon_ms=77), *batches[3:]],
    }
    made = replicas(tmp_path, change)
    found = compared(made, compacted_end=30)
    assert (kinds_of(found), found.compacted_count) == ([], 3)
    assert {kind for _, _, kind in kinds_of(compared(made))} == {Kind.MISSING, Kind.DIFFERENT}


def test_compaction_hides_nothing(tmp_path: Path) -> None:
    """A different record or epoch is reported, and so are all differences after the compacted range."""
    change = {
        1: lambda batches: [compacted(0, {1, 4}, value=b"other"), *batches[1:]],
        2: lambda batches: [*batches[:3], batch(3, leader_epoch=2), *batches[4:6], *batches[7:]],
        3: lambda batches: [*batches[:4], *changed(4, -1)(batches)[4:]],
    }
    found = compared(replicas(tmp_path, change), compacted_end=30)
    assert kinds_of(found) == [
        (1, 0, Kind.DIFFERENT), (2, 15, Kind.DIFFERENT), (3, 20, Kind.DAMAGED), (2, 30, Kind.MISSING),
    ]  # fmt: skip
    assert "offset 1 " in found.differences[0].detail


def epochs(batches: list[bytes]) -> list[bytes]:
    """Set epoch 0 up to offset 20, then 3, and 4 from 40 on."""
    return [batch(number, leader_epoch=0 if number < 4 else 3 if number < 8 else 4) for number in range(len(batches))]


@pytest.mark.parametrize(
    ("entries", "wanted"),
    [
        ([(0, 0), (3, 20), (4, 40)], []),
        ([(0, 0), (3, 20)], []),  # not written yet
        ([(0, 0), (2, 20), (3, 20), (4, 40), (5, 50)], []),  # epoch 2 wrote nothing
        ([(3, 30), (4, 40)], []),  # deleted up to there
        ([], []),
        ([(0, 0), (3, 25), (4, 40)], [20]),
        ([(0, 0), (3, 15), (4, 40)], [15]),
        ([(0, 0), (3, 20), (5, 40)], [40]),
        ([(0, 0), (4, 20)], [20]),
        ([(0, 0), (4, 40)], [20]),
    ],
)
def test_lists_of_epochs(tmp_path: Path, entries: list[tuple[int, int]], wanted: list[int]) -> None:
    """A broker's epoch checkpoint that contradicts its batches would cause wrong truncation."""
    made = replicas(tmp_path, dict.fromkeys((1, 2, 3), epochs))
    made[1] = made[1]._replace(epochs=tuple(EpochEntry(*each) for each in entries))
    assert kinds_of(compared(made)) == [(2, offset, Kind.EPOCHS) for offset in wanted]


def test_the_test_data_is_valid() -> None:
    """The batches of these tests are valid and of one size."""
    assert {parse_header(batch(number)).size for number in range(10)} == {len(batch(0))}
