"""Archives of topics in Parquet files, with each record once, and comparisons of archives with topics."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from kafka import KafkaAdminClient
from kafka import TopicPartition as KafkaPartition

from kreplica.blocking import Cluster, Codec, Producer, ProducerOptions
from kreplica.model import TopicPartition
from kreplica.spark.pipelines.archive import micro_batches
from kreplica.spark.pipelines.archive.archive import ArchiveError, ArchiveOptions, archive
from kreplica.spark.pipelines.archive.file_stores import store_of
from kreplica.spark.pipelines.archive.layout import batch_file, checkpoint, read_archive
from kreplica.spark.pipelines.archive.reading import read_rows
from kreplica.spark.pipelines.compare.compare import CompareOptions, CompareReport, compare
from kreplica.spark.pipelines.compare.findings import Kind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kreplica.testing.fixtures.kafka_cluster import KafkaCluster

START_MS = 1_700_000_000_000  # 2023-11-14, late in the evening
HOUR_MS = 3_600_000


def create(brokers: KafkaCluster, *topics: str, partitions: int = 1) -> None:
    """Create topics whose records may be old."""
    for topic in topics:
        brokers.create_topic(topic, partitions, retention_ms=-1)


def write(brokers: KafkaCluster, topic: str, values: Iterable[Any], partitions: int = 1, **options: Any) -> None:
    with Cluster(brokers.bootstrap_servers) as cluster, Producer(cluster, ProducerOptions(**options)) as producer:
        for number, value in enumerate(values):
            data = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
            headers = (("h", b"x"), ("h", None)) if number % 3 == 0 else ()
            producer.send(
                topic,
                data,
                key=None if number % 5 == 0 else b"k%d" % (number % 7),
                partition=number % partitions,
                timestamp_ms=START_MS + number * HOUR_MS // 10,
                headers=headers,
            )


def numbers(first: int, count: int) -> list[bytes]:
    return [b"%d" % each for each in range(first, first + count)]


def read_archived(spark: SparkSession, path: Path) -> list[tuple[Any, ...]]:
    rows = read_rows(spark, read_archive(str(path))).collect()
    return sorted(
        (
            row.topic,
            row.partition,
            row.offset,
            row.key,
            row.value,
            row.timestamp.timestamp(),
            row.headers and len(row.headers),
        )
        for row in rows
    )


def read_topic(brokers: KafkaCluster, topic: str) -> list[tuple[Any, ...]]:
    return sorted(
        (topic, row.partition, row.offset, row.key, row.value, row.timestamp_ms / 1000, len(row.headers) or None)
        for row in brokers.records(topic)
    )


def compare_with_topics(spark: SparkSession, brokers: KafkaCluster, path: Path, **options: Any) -> CompareReport:
    return compare(spark, str(path), CompareOptions(bootstrap=brokers.bootstrap_servers, **options))


def counts(report: CompareReport) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in report.partitions:
        for kind, count in each.counts.items():
            if count:
                found[kind.value] = found.get(kind.value, 0) + count
    return found


def test_each_record_is_in_a_file_once(spark: SparkSession, brokers: KafkaCluster, tmp_path: Path) -> None:
    """Records of two topics, several codecs and days are archived in batches; a second run adds only new records."""
    create(brokers, "archive.a", partitions=2)
    create(brokers, "archive-b")
    for number, codec in enumerate(Codec):
        write(brokers, "archive.a", numbers(number * 40, 40), 2, codec=codec)
    write(brokers, "archive-b", [b"text", None, b""])
    options = ArchiveOptions(
        bootstrap=brokers.bootstrap_servers, topics=("archive.a", "archive-b"), batch_records_max=120
    )
    progress: list[Any] = []
    first = archive(spark, str(tmp_path), options, progress.append)
    assert (first.records, first.batches, first.lag, first.is_resumed) == (203, 2, 0, False)
    assert (progress[0].done, progress[0].total, progress[-1].done, progress[-1].records) == (0, 203, 203, 203)
    assert read_archived(spark, tmp_path) == read_topic(brokers, "archive-b") + read_topic(brokers, "archive.a")
    assert spark.read.parquet(str(tmp_path)).count() == 203
    contents = read_archive(str(tmp_path))
    assert contents.spans == {
        TopicPartition("archive-b", 0): (0, 3),
        TopicPartition("archive.a", 0): (0, 100),
        TopicPartition("archive.a", 1): (0, 100),
    }
    days = {each.day for batch in contents.batches for each in batch.files}
    assert days == {"2023-11-14", "2023-11-15"}

    write(brokers, "archive-b", [b"later"])
    second = archive(spark, str(tmp_path), options)
    assert (second.records, second.first_batch, second.is_resumed, second.files) == (1, 2, True, 1)
    assert {each.topic: each.records for each in second.topics} == {"archive-b": 1, "archive.a": 0}
    assert read_archived(spark, tmp_path) == read_topic(brokers, "archive-b") + read_topic(brokers, "archive.a")
    assert compare_with_topics(spark, brokers, tmp_path).is_equal


def test_retried_batch_is_archived_once(
    spark: SparkSession, brokers: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a run dies before it records its files, the next run replaces them, even with other tasks and days."""
    create(brokers, "retried", partitions=2)
    write(brokers, "retried", numbers(0, 60), 2)
    options = ArchiveOptions(bootstrap=brokers.bootstrap_servers, topics=("retried",))
    archive(spark, str(tmp_path), options)
    write(brokers, "retried", numbers(60, 60), 2)

    def raise_error(*_: Any) -> None:
        raise RuntimeError("killed before the batch is recorded")

    with monkeypatch.context() as patched:
        patched.setattr(micro_batches, "write_batch", raise_error)
        with pytest.raises(Exception, match="killed before the batch is recorded"):
            archive(spark, str(tmp_path), options)
    leftover_files = sorted(tmp_path.glob("topic=retried/day=*/batch=1/*.parquet"))
    assert leftover_files
    assert len(read_archive(str(tmp_path)).batches) == 1
    assert len(read_archived(spark, tmp_path)) == 60
    stale = tmp_path / "topic=retried" / "day=2001-01-01" / "batch=1"
    stale.mkdir(parents=True)
    shutil.copy(leftover_files[0], stale)

    monkeypatch.setattr(micro_batches, "TASK_RECORDS_MIN", 20)
    retried = archive(spark, str(tmp_path), replace(options, kafka={"minPartitions": "4"}))
    assert (retried.records, retried.first_batch) == (60, 1)
    assert read_archived(spark, tmp_path) == read_topic(brokers, "retried")
    assert spark.read.parquet(str(tmp_path)).count() == 120
    assert not stale.exists()

    # A recorded batch that is missing in Spark's checkpoint is not written again.
    commits = Path(checkpoint(str(tmp_path))) / "commits"
    for name in ("1", ".1.crc"):
        (commits / name).unlink()
    before = Path(batch_file(str(tmp_path), 1)).stat().st_mtime_ns
    assert archive(spark, str(tmp_path), options).records == 0
    assert Path(batch_file(str(tmp_path), 1)).stat().st_mtime_ns == before
    assert (commits / "1").exists()
    assert read_archived(spark, tmp_path) == read_topic(brokers, "retried")


def test_column_of_json_values_grows(spark: SparkSession, brokers: KafkaCluster, tmp_path: Path) -> None:
    """New fields are added and changed types widened; all files remain one table, even for plain Spark."""
    create(brokers, "json")
    options = ArchiveOptions(bootstrap=brokers.bootstrap_servers, topics=("json",), values="json")
    write(brokers, "json", [b"no json", None, [1], {"a": 1, "n": None, "deep": {"x": 1, "list": [{"q": 1}]}}])
    archive(spark, str(tmp_path), options)
    write(brokers, "json", [{"a": 2, "b": True}, b"{broken"])
    archive(spark, str(tmp_path), options)
    plain = spark.read.option("mergeSchema", "true").parquet(str(tmp_path))
    assert [(row.json.a, row.json.b) for row in plain.where("json is not null").orderBy("offset").collect()] == [
        (1, None),
        (2, True),
    ]
    write(brokers, "json", [{"a": 1.5, "b": {"c": [1]}, "deep": {"list": [{"q": "text"}]}}])
    archive(spark, str(tmp_path), options)
    rows = read_rows(spark, read_archive(str(tmp_path))).orderBy("offset").collect()
    found = [row.json.asDict(recursive=True) if row.json else None for row in rows]
    assert found == [
        None,
        None,
        None,
        {"a": 1.0, "deep": {"list": [{"q": "1"}], "x": 1}, "b": None},
        {"a": 2.0, "deep": None, "b": "true"},
        None,
        {"a": 1.5, "deep": {"list": [{"q": "text"}], "x": None}, "b": '{"c":[1]}'},
    ]
    plain = spark.read.option("mergeSchema", "true").parquet(str(tmp_path))
    assert plain.where("json.a = 2").count() == plain.where("json_2.a = 1.5").count() == 1
    assert [row.value for row in rows] == [record.value for record in brokers.records("json")]


def test_archive_has_one_source(spark: SparkSession, brokers: KafkaCluster, tmp_path: Path) -> None:
    """Other topics or options, another cluster, or a missing checkpoint are rejected before anything is written."""
    create(brokers, "mixed", "more")
    write(brokers, "mixed", numbers(0, 3))
    options = ArchiveOptions(bootstrap=brokers.bootstrap_servers, topics=("mixed",))
    path = tmp_path / "archive"
    with pytest.raises(ArchiveError, match="topic 'missing' does not exist"):
        archive(spark, str(path), replace(options, topics=("missing",)))
    with pytest.raises(ArchiveError, match="no topic matches"):
        archive(spark, str(path), replace(options, topics=(), pattern="missing.*"))
    archive(spark, str(path), options)
    for other in (
        replace(options, topics=("mixed", "more")),
        replace(options, topics=(), pattern="mi.*"),
        replace(options, values="json"),
        replace(options, read_committed=False),
    ):
        with pytest.raises(ArchiveError, match="use --adopt"):
            archive(spark, str(path), other)
    metadata_file = path / "_archive" / "archive.json"
    text = metadata_file.read_text()
    metadata_file.write_text(text.replace('"cluster_id": "', '"cluster_id": "another-'))
    with pytest.raises(ArchiveError, match="cluster_id another-"):
        archive(spark, str(path), options)
    metadata_file.write_text(text)
    shutil.move(path / "_archive" / "checkpoint", tmp_path / "kept")
    with pytest.raises(ArchiveError, match="does not contain batch 0 of the archive"):
        archive(spark, str(path), options)
    shutil.move(tmp_path / "kept", path / "_archive" / "checkpoint")
    write(brokers, "more", numbers(0, 2))
    adopted = archive(spark, str(path), replace(options, topics=("mixed", "more"), adopt=True))
    assert (adopted.records, adopted.first_batch) == (2, 1)
    (tmp_path / "strange").mkdir()
    (tmp_path / "strange" / "file").touch()
    with pytest.raises(ArchiveError, match="needs its own directory"):
        archive(spark, str(tmp_path / "strange"), options)


def change(path: Path, offset: int, replacements: list[dict[str, Any]]) -> None:
    """Replace the row with the given offset by copies with changed columns, in its file."""
    for file in path.glob("topic=*/day=*/batch=*/*.parquet"):
        table = parquet.read_table(file, partitioning=None)
        rows = table.to_pylist()
        indexes = [index for index, row in enumerate(rows) if row["offset"] == offset]
        if indexes:
            rows[indexes[0] : indexes[0] + 1] = [{**rows[indexes[0]], **each} for each in replacements]
            parquet.write_table(pa.Table.from_pylist(rows, table.schema), file)
            file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
            return
    raise AssertionError(f"no file has offset {offset}")


def test_differences_between_an_archive_and_its_topic(
    spark: SparkSession, brokers: KafkaCluster, tmp_path: Path
) -> None:
    """Each kind of difference is reported with its offset; deleted and later records are not differences."""
    create(brokers, "differs")
    write(brokers, "differs", numbers(0, 100))
    archive(spark, str(tmp_path), ArchiveOptions(bootstrap=brokers.bootstrap_servers, topics=("differs",)))
    change(tmp_path, 30, [])
    change(tmp_path, 40, [{}, {}, {}])
    change(tmp_path, 50, [{"value": b"another"}])
    change(tmp_path, 60, [{"headers": [{"key": "h", "value": b"y"}]}])
    change(tmp_path, 70, [{}, {"offset": 1000}])
    write(brokers, "differs", numbers(100, 5))
    delete_before(brokers, "differs", 10)
    found = compare_with_topics(spark, brokers, tmp_path)
    assert counts(found) == {"missing": 1, "duplicate": 2, "different": 2, "extra": 1}
    assert [(each.kind, each.archive_offset, each.topic_offset) for each in found.differences] == [
        (Kind.MISSING, None, 30),
        (Kind.DUPLICATE, 40, 40),
        (Kind.DIFFERENT, 50, 50),
        (Kind.DIFFERENT, 60, 60),
        (Kind.EXTRA, 1000, None),
    ]
    assert (found.records, found.deleted, found.lag, found.difference_count) == (90, 10, 5, 6)
    file = min(tmp_path.glob("topic=differs/day=*/batch=0/*.parquet"))
    file.unlink()
    report = compare_with_topics(spark, brokers, tmp_path, shown_max=3)
    assert report.lost_files == (str(file.relative_to(tmp_path)),)
    assert counts(report)["missing"] > 1
    assert len(report.differences) == 3


@pytest.mark.soak
def test_differences_of_a_replayed_topic(spark: SparkSession, brokers: KafkaCluster, tmp_path: Path) -> None:
    """Because offsets differ, records are compared by order and content; one missing record is one difference."""
    create(brokers, "played", "same", "changed")
    write(brokers, "played", numbers(0, 100))
    archive(spark, str(tmp_path), ArchiveOptions(bootstrap=brokers.bootstrap_servers, topics=("played",)))
    rows = [(row.key, row.value, row.timestamp_ms, row.headers) for row in brokers.records("played")]
    write_rows(brokers, "same", rows)
    assert compare_with_topics(spark, brokers, tmp_path, others={"played": "same"}).is_equal
    delete_before(brokers, "same", 10)
    shortened = compare_with_topics(spark, brokers, tmp_path, others={"played": "same"})
    assert (shortened.is_equal, shortened.records, shortened.deleted) == (True, 90, 10)

    rows[80], rows[81] = rows[81], rows[80]
    rows[60:60] = [(None, b"never written", START_MS, ())]
    rows[50] = (rows[50][0], b"another", *rows[50][2:])
    rows[40:41] = [rows[40]] * 3
    del rows[30]
    write_rows(brokers, "changed", rows)
    found = compare_with_topics(spark, brokers, tmp_path, others={"played": "changed"})
    assert counts(found) == {"missing": 1, "duplicate": 2, "different": 1, "extra": 1, "out of order": 1}
    assert [(each.kind, each.archive_offset, each.topic_offset) for each in found.differences] == [
        (Kind.MISSING, 30, None),
        (Kind.DUPLICATE, None, 40),
        (Kind.DUPLICATE, None, 41),
        (Kind.DIFFERENT, 50, 51),
        (Kind.EXTRA, None, 61),
        (Kind.OUT_OF_ORDER, 81, 82),
    ]


def write_rows(brokers: KafkaCluster, topic: str, rows: list[tuple[Any, ...]]) -> None:
    with Cluster(brokers.bootstrap_servers) as cluster, Producer(cluster, ProducerOptions()) as producer:
        for key, value, timestamp_ms, headers in rows:
            producer.send(topic, value, key=key, partition=0, timestamp_ms=timestamp_ms, headers=headers)


def delete_before(brokers: KafkaCluster, topic: str, offset: int) -> None:
    admin = KafkaAdminClient(bootstrap_servers=brokers.bootstrap_servers)
    try:
        admin.delete_records({KafkaPartition(topic, 0): offset})
    finally:
        admin.close()


def test_archive_in_a_hadoop_file_system(spark: SparkSession, brokers: KafkaCluster, tmp_path: Path) -> None:
    """With a URL as path, metadata files are written through Hadoop too, and a later run resumes the archive."""
    spark.conf.set("fs.viewfs.mounttable.archives.link./data", f"file://{tmp_path}")
    create(brokers, "elsewhere")
    write(brokers, "elsewhere", numbers(0, 5))
    path = "viewfs://archives/data/one"
    options = ArchiveOptions(bootstrap=brokers.bootstrap_servers, topics=("elsewhere",))
    archive(spark, path, options)
    write(brokers, "elsewhere", numbers(5, 5))
    assert archive(spark, f"{path}/", options).first_batch == 1
    store = store_of(path, spark)
    contents = read_archive(path, store)
    assert contents.spans == {TopicPartition("elsewhere", 0): (0, 10)}
    assert sorted(bytes(row.value) for row in read_rows(spark, contents).collect()) == numbers(0, 10)
    assert compare(spark, path, CompareOptions(bootstrap=brokers.bootstrap_servers)).is_equal
    assert read_archive(str(tmp_path / "one")).spans == contents.spans
    note = f"{path}/_archive/note"
    store.write(note, "one")
    store.write(note, "two")
    assert (store.read(note), store.read(f"{note}s")) == ("two", None)
    assert [each.size for each in store.find(path, "_archive/no*")] == [3]
    store.delete(f"{path}/_archive")
    assert store.names(path) == ["topic=elsewhere"]
    assert store.names(f"{path}/_archive") == []
    assert store.read(note) is None
