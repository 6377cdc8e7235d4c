"""A broker's files as a table: directories written by Apache Kafka, intact and damaged."""

from __future__ import annotations

import pickle
import shutil
import tarfile
from pathlib import Path

import pytest
from archives import unpack

from kreplica.client_core.errors import CorruptBatch
from kreplica.runtime.os_disk import OsDisk
from kreplica.spark.source import segment_reading
from kreplica.spark.source.range_reading import DataLoss
from kreplica.storage.formats.checkpoints import HIGH_WATERMARKS, read_offsets
from kreplica.wire.batches import iter_headers
from kreplica.wire.records import Record, iter_records
from pyspark_kreplica import DefaultSource

ARCHIVE = Path(__file__).parents[1] / "storage" / "written_by_kafka" / "kafka-3.9-killed.tar.xz"


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("kafka")
    with tarfile.open(ARCHIVE) as packed:
        unpack(packed, directory)
    return directory


def read_log(directory: Path, name: str) -> list[Record]:
    """Return all records of a log, without markers."""
    found: list[Record] = []
    for path in sorted((directory / name).glob("*.log")):
        data = path.read_bytes()
        for position, header in iter_headers(data, incomplete_last=True):
            if not header.is_control:
                found += iter_records(data[position : position + header.size])
    return found


def read(directory: Path, **options: str) -> list[dict]:
    required = {"kreplica.source": "segments", "kreplica.log.dirs": str(directory), "includeHeaders": "true"}
    source = DefaultSource({**required, **options})
    reader = source.reader(schema=source.schema())
    return [
        row
        for task in reader.partitions()
        for batch in reader.read(pickle.loads(pickle.dumps(task)))
        for row in batch.to_pylist()
    ]


@pytest.mark.parametrize("read_size", [500, 1 << 20])
def test_tables_equal_kafkas_records(unpacked: Path, monkeypatch: pytest.MonkeyPatch, read_size: int) -> None:
    """For any read size, the rows of each partition equal its records below the high watermark."""
    monkeypatch.setattr(segment_reading, "READ_SIZE", read_size)
    high_watermarks = read_offsets(OsDisk(), f"{unpacked}/{HIGH_WATERMARKS}")
    rows = read(unpacked, subscribePattern=".*")
    names = sorted(each.name for each in unpacked.iterdir() if each.is_dir() and not each.name.startswith("__"))
    assert {f"{row['topic']}-{row['partition']}" for row in rows} == set(names)
    for name in names:
        topic, _, partition = name.rpartition("-")
        own = [row for row in rows if (row["topic"], row["partition"]) == (topic, int(partition))]
        start = min(int(path.stem) for path in (unpacked / name).glob("*.log"))
        expected = [
            record
            for record in read_log(unpacked, name)
            if start <= record.offset < high_watermarks[next(each for each in high_watermarks if str(each) == name)]
        ]
        expected = [each for each in expected if each.offset >= min((row["offset"] for row in own), default=0)]
        assert [(row["offset"], row["key"], row["value"]) for row in own] == [
            (record.offset, record.key, record.value) for record in expected
        ]
        assert len(own) > 0


def test_read_committed(unpacked: Path) -> None:
    """Aborted and open transactions are skipped, even if a reader starts within an aborted one."""
    committed = read(unpacked, subscribe="transactions", **{"kafka.isolation.level": "read_committed"})
    all_rows = read(unpacked, subscribe="transactions")
    aborted = {row["offset"] for row in all_rows} - {row["offset"] for row in committed}
    assert aborted == {row["offset"] for row in all_rows if row["value"].startswith((b"aborted", b"open"))}
    assert aborted
    inside = sorted(aborted)[1]
    part = read(
        unpacked,
        subscribe="transactions",
        startingOffsets=f'{{"transactions":{{"0":{inside}}}}}',
        **{"kafka.isolation.level": "read_committed"},
    )
    assert [row["offset"] for row in part] == [row["offset"] for row in committed if row["offset"] >= inside]


def test_offsets_and_times(unpacked: Path) -> None:
    """A range of offsets can be read by several tasks, and a read can start at a timestamp."""
    all_rows = read(unpacked, subscribe="codecs")
    part = read(
        unpacked,
        assign='{"codecs":[0]}',
        startingOffsets='{"codecs":{"0":3}}',
        endingOffsets='{"codecs":{"0":17}}',
        minPartitions="4",
    )
    assert [row["offset"] for row in part] == [row["offset"] for row in all_rows if 3 <= row["offset"] < 17]
    middle = all_rows[len(all_rows) // 2]
    since = read(unpacked, subscribe="codecs", startingTimestamp=str(round(middle["timestamp"].timestamp() * 1000)))
    first = next(row["offset"] for row in all_rows if row["timestamp"] >= middle["timestamp"])
    assert since[0]["offset"] == first
    with pytest.raises(ValueError, match="codecs-0 has no record"):
        read(unpacked, subscribe="codecs", startingTimestamp="99999999999999")


def test_missing_and_damaged_records(unpacked: Path, tmp_path: Path) -> None:
    """Missing offsets are an error unless data loss is allowed; damage is always an error."""
    copy = tmp_path / "copy"
    shutil.copytree(unpacked, copy)
    beyond = {"assign": '{"codecs":[0]}', "endingOffsets": '{"codecs":{"0":100000}}'}
    with pytest.raises(ValueError, match="topic 'codec' is not in"):
        read(unpacked, subscribe="codec")
    with pytest.raises(DataLoss, match="before the requested end 100000"):
        read(copy, **beyond)
    all_rows = read(copy, subscribe="codecs")
    rows = read(copy, **beyond, failOnDataLoss="false")  # explicit end offsets may be above the high watermark
    assert rows[: len(all_rows)] == all_rows
    assert len(rows) == 100
    path = copy / "codecs-0" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptBatch, match="codecs-0"):
        read(copy, subscribe="codecs")
    with pytest.raises(Exception, match="is not a log directory"):
        read(tmp_path / "nowhere", subscribe="codecs")
