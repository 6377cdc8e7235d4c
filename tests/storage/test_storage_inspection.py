"""Inspecting a log's files reports exactly the defects, with their positions, and changes nothing."""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from struct import pack

import pytest
from archives import unpack
from crc32c import crc32c
from storage_world import batch, fill, idempotent, marker, open_log

from kreplica.runtime.disk import File
from kreplica.runtime.os_disk import ReadOnlyDisk
from kreplica.storage import Log, LogConfig, Origin
from kreplica.storage.inspection import files, verification
from kreplica.storage.inspection.files import aborted_entries, batches, offset_entries, offset_index, transaction_index
from kreplica.storage.inspection.segment_checks import CheckOptions
from kreplica.storage.inspection.verification import NoLogsFound, Verification
from kreplica.storage.log.appending import append_as_leader
from kreplica.wire.batches import HEADER_SIZE

KAFKA = Path(__file__).parent / "written_by_kafka"
FIRST = "00000000000000000000"


def problems(
    directory: Path, pause: Callable[[], None] = lambda: None, disk: ReadOnlyDisk | None = None, **options: bool
) -> list[tuple[str, int | None, str]]:
    """Return the (file, position, text) of every problem."""
    found = Verification(disk or ReadOnlyDisk(), CheckOptions(**options), pause).run(str(directory))
    return [(os.path.relpath(each.path, directory), each.position, each.text) for each in found]


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """Return the directory of a log with several segments, epochs and transactions, after a clean stop."""
    path = tmp_path / "orders-0"
    log = open_log(path, LogConfig(segment_bytes=2000, index_interval_bytes=150))
    fill(log, 12, epoch=0)
    fill(log, 12, epoch=3, first=12)
    transaction(log, producer_id=7, committed=False)
    transaction(log, producer_id=8, committed=True)
    fill(log, 6, epoch=4, first=24)
    log.close()
    assert len(log.segments) >= 3
    return path


def transaction(log: Log, producer_id: int, *, committed: bool) -> None:
    records = idempotent(0, 2, producer_id=producer_id, transactional=True)
    append_as_leader(log, records, 3, now_ms=1, origin=Origin.COORDINATOR)
    append_as_leader(log, marker(producer_id, committed=committed), 3, now_ms=1, origin=Origin.COORDINATOR)


def segments(path: Path) -> list[str]:
    return sorted(name.removesuffix(".log") for name in os.listdir(path) if name.endswith(".log"))


def change(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def digest(directory: Path) -> dict[str, str]:
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in directory.rglob("*") if path.is_file()}


class TestIntactLogs:
    def test_own_log(self, closed: Path) -> None:
        before = digest(closed)
        assert problems(closed, records=True, gaps=True) == []
        assert digest(closed) == before

    @pytest.mark.parametrize("archive", ["clean", "killed"])
    def test_directory_of_kafka(self, archive: str, tmp_path: Path) -> None:
        """The check passes even if Kafka was killed and left indexes padded with zeros."""
        with tarfile.open(KAFKA / f"kafka-3.9-{archive}.tar.xz") as packed:
            unpack(packed, tmp_path)
        before = digest(tmp_path)
        look = Verification(ReadOnlyDisk(), CheckOptions(records=True), lambda: None)
        assert list(look.run(str(tmp_path))) == []
        assert (look.tally.partitions, look.tally.segments) == (4, 13)
        assert digest(tmp_path) == before

    def test_open_log(self, tmp_path: Path) -> None:
        """A running broker has not written its last index entries and epochs yet."""
        log = open_log(tmp_path / "orders-0")
        fill(log, 30, epoch=0)
        log.leader_epochs.assign(5, log.log_end_offset)
        fill(log, 2, epoch=5)
        assert problems(tmp_path, records=True, gaps=True) == []

    def test_files_are_opened_for_reading_only(self, closed: Path) -> None:
        with pytest.raises(OSError, match="read-only"):
            ReadOnlyDisk().open(str(closed / "new"), create=True)
        file = ReadOnlyDisk().open(str(closed / f"{FIRST}.log"))
        with pytest.raises(OSError, match="Bad file descriptor"):
            file.write_at(0, [b"x"])
        file.close()

    def test_empty_log(self, tmp_path: Path) -> None:
        """A partition without records has no batch file yet."""
        (tmp_path / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA\n")
        assert problems(tmp_path) == []

    def test_empty_directory_is_a_problem(self, tmp_path: Path) -> None:
        with pytest.raises(NoLogsFound, match="contains no logs"):
            problems(tmp_path)


class TestBatches:
    def test_every_changed_byte_of_a_batch_is_found(self, tmp_path: Path) -> None:
        path = tmp_path / "orders-0"
        log = open_log(path)
        fill(log, 3, size=10)
        log.close()
        file = path / f"{FIRST}.log"
        whole = file.read_bytes()
        for position in range(len(whole) // 3):
            change(file, position, bytes([whole[position] ^ 0x55]))
            assert problems(tmp_path), f"position {position}"
            change(file, position, whole[position : position + 1])
        assert problems(tmp_path) == []

    def test_wrong_checksum_is_reported_once(self, closed: Path) -> None:
        """The report contains the batch's position, and later batches are still checked."""
        with (closed / f"{FIRST}.log").open("rb") as file:
            data = file.read()
        second = next(at for at, _, _ in batches_of(closed / f"{FIRST}.log") if at)
        change(closed / f"{FIRST}.log", second + HEADER_SIZE + 9, b"\xff")
        assert data[second + HEADER_SIZE + 9] != 0xFF
        assert problems(closed) == [(f"{FIRST}.log", second, "wrong CRC in the batch of offset 1")]

    def test_torn_end(self, closed: Path) -> None:
        """The report contains the number of remaining bytes."""
        last = segments(closed)[-1]
        file = closed / f"{last}.log"
        size = file.stat().st_size
        with file.open("ab") as appended:
            appended.write(b"\x00" * 70)
        assert problems(closed) == [(f"{last}.log", size, "no complete batch starts here; 70 bytes remain")]

    def test_invalid_length(self, closed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A batch with an impossible length is not read into memory."""
        monkeypatch.setattr(files, "BATCH_SIZE_MAX", 100)
        (found,) = [text for name, at, text in problems(closed) if name == f"{FIRST}.log"]
        assert found.startswith("no complete batch starts here")

    def test_repeated_batch(self, closed: Path) -> None:
        """Offsets must increase."""
        last = segments(closed)[-1]
        file = closed / f"{last}.log"
        data, position = file.read_bytes(), file.stat().st_size
        with file.open("ab") as appended:
            appended.write(data)
        first = next(header for _, header, _ in batches_of(file))
        end = max(header.next_offset for _, header, _ in batches_of(file))
        text = f"offset {first.base_offset}, expected {end} or higher"
        assert (f"{last}.log", position, text) in problems(closed)

    def test_missing_segment(self, closed: Path) -> None:
        """A gap is a problem only if the log is not compacted."""
        gone = segments(closed)[1]
        for suffix in (".log", ".index", ".timeindex", ".txnindex"):
            (closed / f"{gone}{suffix}").unlink(missing_ok=True)
        assert problems(closed) == []
        following = segments(closed)[1]
        text = f"offset {int(following)}, expected {int(gone)}: offsets are missing"
        assert problems(closed, gaps=True) == [(f"{following}.log", 0, text)]

    def test_invalid_records(self, tmp_path: Path) -> None:
        """A batch with a correct checksum may contain invalid records, which only decoding finds."""
        path = tmp_path / "orders-0"
        log = open_log(path)
        fill(log, 1)
        log.close()
        file = path / f"{FIRST}.log"
        change(file, HEADER_SIZE, b"\x7f")
        change(file, 17, pack(">I", crc32c(file.read_bytes()[21:])))
        assert problems(path) == []
        ((_, position, text),) = problems(path, records=True)
        assert position == 0
        assert text.startswith("the records of the batch of offset 0: RecordBatch.records[0]")


def batches_of(file: Path) -> list[tuple[int, object, memoryview]]:
    opened: File = ReadOnlyDisk().open(str(file))
    try:
        return list(batches(opened, opened.size()))
    finally:
        opened.close()


class TestIndexes:
    def test_position_inside_a_batch(self, closed: Path) -> None:
        """An entry of the offset index must contain the position of a batch."""
        index = closed / f"{FIRST}.index"
        offset, position = (int.from_bytes(index.read_bytes()[at : at + 4], "big") for at in (0, 4))
        change(index, 4, pack(">i", position + 1))
        assert problems(closed) == [
            (f"{FIRST}.index", 0, f"offset {offset} at position {position + 1}, where no batch starts")
        ]

    def test_offset_below_the_batch(self, closed: Path) -> None:
        """A reader would start too late in the segment."""
        index = closed / f"{FIRST}.index"
        position = int.from_bytes(index.read_bytes()[12:16], "big")
        change(index, 8, pack(">i", 1))
        found = problems(closed)
        assert (f"{FIRST}.index", 8) in [each[:2] for each in found]
        assert any(f"offset 1 at position {position}, where the batch of" in text for _, _, text in found)

    def test_entries_beyond_the_end(self, closed: Path) -> None:
        last = segments(closed)[-1]
        with (closed / f"{last}.index").open("ab") as file:
            file.write(pack(">ii", 900, 99_999))
        with (closed / f"{last}.timeindex").open("ab") as file:
            file.write(pack(">qi", 999_999, 900))
        found = problems(closed)
        assert [name for name, _, _ in found] == [f"{last}.index", f"{last}.timeindex"]
        assert all("beyond" in text for _, _, text in found)

    def test_wrong_timestamps(self, closed: Path) -> None:
        """With wrong timestamps, a lookup would skip records, or find none."""
        index = closed / f"{FIRST}.timeindex"
        at = index.stat().st_size - 12
        timestamp_ms = int.from_bytes(index.read_bytes()[at : at + 8], "big")
        change(index, at, pack(">q", timestamp_ms + 5))
        late = f"time {timestamp_ms + 5} at offset 10, where no record is later than {timestamp_ms}"
        assert problems(closed) == [(f"{FIRST}.timeindex", at, late)]
        change(index, 0, pack(">q", 5))
        early = f"time 5 at offset {int.from_bytes(index.read_bytes()[8:12], 'big')}, after a record of"
        assert problems(closed)[0][2].startswith(early)

    def test_missing_index(self, closed: Path) -> None:
        """A closed segment must have an index; that of the active segment is written when it is closed."""
        (closed / f"{FIRST}.index").unlink()
        (closed / f"{segments(closed)[-1]}.index").unlink()
        assert problems(closed) == [(f"{FIRST}.index", None, "is missing")]

    def test_partial_entry(self, closed: Path) -> None:
        """An index consists of whole entries."""
        index = closed / f"{FIRST}.index"
        size = index.stat().st_size
        with index.open("ab") as file:
            file.write(b"abc")
        assert problems(closed) == [(f"{FIRST}.index", size, "3 bytes after the last whole entry of 8 bytes")]

    def test_zeros_are_not_entries(self, closed: Path) -> None:
        """Kafka pads the indexes of the active segment with zeros."""
        for suffix in (".index", ".timeindex"):
            path = closed / f"{segments(closed)[-1]}{suffix}"
            with path.open("ab") as file:
                file.truncate(path.stat().st_size // 24 * 24 + 240_000)
        assert problems(closed) == []

    def test_entries_are_read_in_slices(self, tmp_path: Path) -> None:
        path = tmp_path / f"{5:020}.index"
        path.write_bytes(b"".join(pack(">ii", number, 100 * number) for number in range(1, 10_001)))
        file = offset_index(ReadOnlyDisk(), str(path))
        entries = list(offset_entries(file, 5))
        file.close()
        assert len(entries) == 10_000
        assert entries[-1] == (79_992, 10_005, 1_000_000)


class TestTransactions:
    @pytest.fixture
    def index(self, closed: Path) -> Path:
        (path,) = [path for path in closed.glob("*.txnindex") if path.stat().st_size]
        return path

    def test_index_is_read(self, index: Path) -> None:
        file = transaction_index(ReadOnlyDisk(), str(index))
        ((at, version, aborted),) = aborted_entries(file)
        file.close()
        assert (at, version, aborted[:3]) == (0, 0, (7, 24, 26))

    def test_entry_without_a_marker(self, closed: Path, index: Path) -> None:
        """An entry must match a marker of its producer, and an aborted transaction must have an entry."""
        change(index, 2, pack(">q", 9))
        texts = [text for _, _, text in problems(closed)]
        assert texts == [
            "producer 9 aborted at offset 26, but the batch at that offset is not its marker",
            "the transaction of producer 7 from offset 24 is aborted at 26, "
            "but is not in the segment's index of aborted transactions",
        ]

    def test_missing_index(self, closed: Path, index: Path) -> None:
        """Without the index, consumers would read aborted records."""
        index.unlink()
        ((_, _, text),) = problems(closed)
        assert text.startswith("the transaction of producer 7 from offset 24 is aborted at 26")


class TestEpochs:
    def test_epoch_missing_in_the_checkpoint(self, closed: Path) -> None:
        """The epochs in the batches and in the checkpoint must agree."""
        (closed / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n4 12\n")
        found = problems(closed)
        assert {text for _, _, text in found} == {"leader epoch 3, but the checkpoint has 4 for this offset"}

    def test_epochs_never_decrease(self, tmp_path: Path) -> None:
        """A leader of an older epoch cannot append."""
        path = tmp_path / "orders-0"
        log = open_log(path)
        fill(log, 2, epoch=3)
        log.close()
        (path / "leader-epoch-checkpoint").unlink()
        second = batches_of(path / f"{FIRST}.log")[1][0]
        change(path / f"{FIRST}.log", second + 12, pack(">i", 1))
        assert problems(path) == [(f"{FIRST}.log", second, "leader epoch 1 after 3")]


class TestSmallFiles:
    @pytest.mark.parametrize(
        ("name", "content", "text"),
        [
            ("leader-epoch-checkpoint", "0\n2\n0 0\n", "the number of rows does not match line 2"),
            ("partition.metadata", "version: 7\n", "version or topic_id is missing or malformed"),
            ("00000000000000000003.snapshot", "nonsense", "not a version 1 snapshot of producers"),
        ],
    )
    def test_files_of_a_partition(self, closed: Path, name: str, content: str, text: str) -> None:
        """Each file is parsed as the broker does it."""
        (closed / name).write_text(content)
        ((found, _, message),) = problems(closed)
        assert found == name
        assert text in message

    def test_files_of_a_log_directory(self, closed: Path) -> None:
        """The checkpoints that cover all logs are checked too."""
        (closed.parent / "recovery-point-offset-checkpoint").write_text("0\n1\norders 0 x\n")
        ((found, _, message),) = problems(closed.parent)
        assert found == "recovery-point-offset-checkpoint"
        assert message == "line 3 is malformed: 'orders 0 x'"


class TestWhileABrokerWrites:
    def test_transient_torn_write(self, closed: Path) -> None:
        """A batch that is being written is not reported if it is complete in the second check."""
        last = closed / f"{segments(closed)[-1]}.log"
        rest = bytes(batch("late", base_sequence=-1))
        with last.open("ab") as file:
            file.write(rest[:30])

        def finish() -> None:
            last.write_bytes(last.read_bytes()[:-30])

        pauses = iter([finish])
        assert problems(closed, lambda: next(pauses, lambda: None)()) == []

    def test_segment_removed_by_retention(self, closed: Path) -> None:
        change(closed / f"{FIRST}.log", 100, b"\xff\xff")

        def remove() -> None:
            (closed / f"{FIRST}.log").unlink(missing_ok=True)

        assert problems(closed, remove) == []

    def test_deleted_topic(self, closed: Path) -> None:
        (closed / "leader-epoch-checkpoint").write_text("x")
        assert problems(closed.parent, lambda: shutil.rmtree(closed, ignore_errors=True)) == []

    def test_problems_that_differ_each_time(self, closed: Path) -> None:
        """Problems that the second check does not confirm are not reported, and the check ends."""
        count = 0

        def spoil() -> None:
            nonlocal count
            count += 1
            file = closed / f"{segments(closed)[-1]}.log"
            with file.open("ab") as appended:
                appended.write(b"x" * 10)

        with (closed / f"{segments(closed)[-1]}.log").open("ab") as appended:
            appended.write(b"x")
        assert problems(closed, spoil) == []
        assert count == verification.CHECKS_MAX
