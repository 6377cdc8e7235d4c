"""Files of an archive, and how they are validated."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kreplica.model import TopicPartition
from kreplica.spark.pipelines.archive.file_stores import LocalStore, StoreError, normalize_path, store_of
from kreplica.spark.pipelines.archive.layout import (
    ArchiveDescription,
    ArchivedFile,
    ArchivedRange,
    Batch,
    NoArchive,
    archive_file,
    batch_file,
    checkpoint,
    read_archive,
    read_batch,
    write_batch,
    write_description,
)
from kreplica.spark.pipelines.archive.stream_checkpoint import UnknownCheckpoint, batch_ends, batch_numbers

STORE = LocalStore()
DESCRIPTION = ArchiveDescription(cluster_id="abc", topics=("a", "b"), made_ms=1)


def batch(number: int, start: int, end: int, *days: str) -> Batch:
    files = tuple(ArchivedFile(f"topic=a/day={day}/batch={number}/part-0.parquet", 10) for day in days)
    return Batch(number, (ArchivedRange("a", 0, start, end, end - start),), files, 5)


def test_only_complete_batches_are_read(tmp_path: Path) -> None:
    """Complete batches are ordered by number; the archive's ranges, counts and files cover all of them."""
    write_description(str(tmp_path), DESCRIPTION, STORE)
    for number, start, end in ((0, 5, 10), (2, 20, 30), (10, 30, 31), (1, 10, 20)):
        write_batch(str(tmp_path), batch(number, start, end, "2026-11-22", "2026-11-23"), STORE)
    (tmp_path / "_archive" / "batches" / "11.json.writing").write_text("{")
    archive = read_archive(f"{tmp_path}/")
    assert archive.description == DESCRIPTION
    assert [each.number for each in archive.batches] == [0, 1, 2, 10]
    assert archive.batches[1] == batch(1, 10, 20, "2026-11-22", "2026-11-23")
    assert archive.spans == {TopicPartition("a", 0): (5, 31)}
    assert (archive.topics, archive.records, archive.size) == (["a"], 26, 80)
    assert archive.files(["a"], archive.batches[:1]) == [
        f"{tmp_path}/topic=a/day=2026-11-22/batch=0/part-0.parquet",
        f"{tmp_path}/topic=a/day=2026-11-23/batch=0/part-0.parquet",
    ]
    assert archive.files(["b"]) == []
    assert len(archive.files()) == 8
    file = archive.batches[0].files[1]
    assert (file.topic, file.day) == ("a", "2026-11-23")


def test_invalid_archive(tmp_path: Path) -> None:
    """For a missing, newer or damaged metadata file, the error names the file."""
    with pytest.raises(NoArchive, match=r"is not an archive \(_archive/archive.json is missing\)"):
        read_archive(str(tmp_path))
    file = Path(archive_file(str(tmp_path)))
    file.parent.mkdir()
    for text, message in (
        ('{"format": 2}', "format 2, but this release reads only 1"),
        ("{", "archive.json is not a metadata file of an archive"),
        ("[]", "archive.json is not a metadata file of an archive"),
        ('{"format": 1}', "the cluster ID is missing"),
    ):
        file.write_text(text)
        with pytest.raises(NoArchive, match=message.replace("(", r"\(")):
            read_archive(str(tmp_path))
    write_description(str(tmp_path), DESCRIPTION, STORE)
    STORE.write(batch_file(str(tmp_path), 3), '{"format": 1, "batch": 3, "ranges": [{"topic": "a"}], "files": []}')
    with pytest.raises(NoArchive, match=r"batches/3\.json"):
        read_archive(str(tmp_path))
    assert read_batch(str(tmp_path), 4, STORE) is None


def test_unknown_fields_of_later_releases_are_ignored(tmp_path: Path) -> None:
    """Fields that a later release adds to the same format are ignored."""
    write_description(str(tmp_path), DESCRIPTION, STORE)
    file = Path(archive_file(str(tmp_path)))
    file.write_text(json.dumps({**json.loads(file.read_text()), "more": 1}))
    assert read_archive(str(tmp_path)).description == DESCRIPTION


def test_metadata_is_written_atomically(tmp_path: Path) -> None:
    """Writing replaces the file and leaves no temporary file."""
    path = f"{tmp_path}/folder/note.json"
    assert STORE.read(path) is None
    STORE.write(path, "one")
    STORE.write(path, "two")
    assert STORE.read(path) == "two"
    assert STORE.names(f"{tmp_path}/folder") == ["note.json"]
    assert STORE.names(f"{tmp_path}/nowhere") == []
    STORE.delete(f"{tmp_path}/folder")
    STORE.delete(path)
    assert STORE.read(path) is None


def test_one_run_at_a_time(tmp_path: Path) -> None:
    """A second run is rejected until the first one has released its lock."""
    lock = f"{tmp_path}/_archive/lock"
    with STORE.exclusive_lock(lock), pytest.raises(StoreError, match="another run"), STORE.exclusive_lock(lock):
        pass
    with STORE.exclusive_lock(lock):
        pass


def test_paths(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Local paths become absolute; paths with a scheme are kept, and need a session."""
    monkeypatch.chdir(tmp_path)
    assert normalize_path("a/b/") == f"{tmp_path}/a/b"
    assert normalize_path("/data/archive/") == "/data/archive"
    assert normalize_path("file:/data") == normalize_path("file:///data/") == "file:///data"
    assert normalize_path("hdfs://name:9000/data/") == "hdfs://name:9000/data"
    STORE.write(f"file://{tmp_path}/x", "text")
    assert (tmp_path / "x").read_text() == "text"
    assert STORE.names(f"file:{tmp_path}") == ["x"]
    assert isinstance(store_of("file:///data"), LocalStore)
    assert isinstance(store_of("/data"), LocalStore)
    with pytest.raises(StoreError, match="a Spark session is needed"):
        store_of("s3a://bucket/data")


def test_end_offsets_of_a_batch_in_a_checkpoint(tmp_path: Path) -> None:
    """Offsets are read in the format of Spark's checkpoints; anything else is rejected."""
    offsets = Path(checkpoint(str(tmp_path))) / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "0").write_text('v1\n{"batchWatermarkMs":0}\n{"a": {"0": 5, "1": 7}}')
    (offsets / "12").write_text('v1\n{"batchWatermarkMs":0}\n{"a": {"0": 6}}\n{"b": {"0": 6}}')
    (offsets / ".0.crc").touch()
    path = checkpoint(str(tmp_path))
    assert batch_numbers(path, STORE) == [0, 12]
    assert batch_ends(path, 0, STORE) == {TopicPartition("a", 0): 5, TopicPartition("a", 1): 7}
    assert batch_ends(path, 1, STORE) is None
    with pytest.raises(UnknownCheckpoint, match="offsets/12"):
        batch_ends(path, 12, STORE)
