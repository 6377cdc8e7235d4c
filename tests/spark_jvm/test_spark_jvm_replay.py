"""Replays of Parquet files to topics: despite crashes, each record once, in order, with timestamp and headers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from time import time
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as parquet
import pytest
from click.testing import CliRunner
from jvm_tables import produce

from kreplica.blocking import Cluster, Isolation
from kreplica.blocking.admin import create_topic
from kreplica.blocking.offsets import end_offsets, topic_partitions
from kreplica.blocking.reader import Reader, ReaderOptions
from kreplica.cli.pipelines import pipeline_replay
from kreplica.model import TopicPartition
from kreplica.spark.pipelines.archive.file_stores import LocalStore
from kreplica.spark.pipelines.archive.layout import (
    ArchiveDescription,
    ArchivedFile,
    ArchivedRange,
    Batch,
    write_batch,
    write_description,
)
from kreplica.spark.pipelines.progress import Progress
from kreplica.spark.pipelines.replay.plan import ReplayOptions
from kreplica.spark.pipelines.replay.replay import arrange_rows, plan_replay, replay
from kreplica.spark.pipelines.replay.sources import NotReplayable
from kreplica.spark.sink import exactly_once
from kreplica.spark.sink.batch_sequence import SinkIdInUse
from kreplica.spark.sink.exactly_once import Task, commit_prepared, prepare_rows
from kreplica.spark.sink.options import sink_options
from kreplica.transfer.record_columns import HEADERS_TYPE, TIMESTAMP
from kreplica.transfer.topics import TopicUnusable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kreplica.testing.fixtures.kafka_cluster import KafkaCluster

pytestmark = pytest.mark.timeout(600)

START_MS = (int(time()) - 3600) * 1000
"""A recent time, because brokers delete old records."""

DAY = datetime.fromtimestamp(START_MS / 1000, UTC).date().isoformat()
BATCHES = 2
ROWS = 300
"""Number of offsets of each partition in each batch."""

ORDERS, PAYMENTS = "orders", "payments"
PARTITIONS = {ORDERS: 3, PAYMENTS: 1}


class Row(NamedTuple):
    """A record without its offset, which differs in the target."""

    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def archived_row(topic: str, partition: int, offset: int) -> Row:
    """Return a row: every seventh has no value, every fifth no key, every third headers; timestamps vary."""
    headers = (("h", b"%d" % offset), ("none", None)) if offset % 3 == 0 else ()
    key = None if offset % 5 == 0 else b"key-%d" % (offset % 11)
    value = None if offset % 7 == 0 else f"{topic}/{partition}/{offset}".encode()
    return Row(START_MS + offset * 7919 % 100_000, key, value, headers)


def offsets(batch: int) -> range:
    """Return the offsets of one batch; every ninth one has no record."""
    return range(100 + batch * ROWS, 100 + (batch + 1) * ROWS)


def expected(topic: str, *, selects: Any = lambda _partition, _offset: True) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = {}
    for partition in range(PARTITIONS[topic]):
        present = [each for batch in range(BATCHES) for each in offsets(batch) if each % 9 and selects(partition, each)]
        found[partition] = [archived_row(topic, partition, each) for each in present]
    return found


def table(rows: list[tuple[int, int, Row]]) -> pa.Table:
    """Return the Arrow table for rows given as (partition, offset, row)."""
    headers = [[{"key": name, "value": data} for name, data in row.headers] or None for _, _, row in rows]
    return pa.table(
        {
            "key": pa.array([row.key for _, _, row in rows], pa.binary()),
            "value": pa.array([row.value for _, _, row in rows], pa.binary()),
            "partition": pa.array([partition for partition, _, _ in rows], pa.int32()),
            "offset": pa.array([offset for _, offset, _ in rows], pa.int64()),
            "timestamp": pa.array([row.timestamp_ms * 1000 for _, _, row in rows], TIMESTAMP),
            "timestampType": pa.array([0] * len(rows), pa.int32()),
            "headers": pa.array(headers, HEADERS_TYPE),
        }
    )


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An archive of two topics in two batches, each in two files with unsorted rows."""
    path, random, store = tmp_path_factory.mktemp("archive"), Random(1), LocalStore()
    for number in range(BATCHES):
        ranges, files = [], []
        for topic, count in PARTITIONS.items():
            rows = [(partition, offset, archived_row(topic, partition, offset))
                    for partition in range(count) for offset in offsets(number) if offset % 9]  # fmt: skip
            random.shuffle(rows)
            ranges += [ArchivedRange(topic, partition, offsets(number).start, offsets(number).stop, len(rows) // count)
                       for partition in range(count)]  # fmt: skip
            for part, part_rows in enumerate((rows[::2], rows[1::2])):
                name = f"topic={topic}/day={DAY}/batch={number}/part-{part}.parquet"
                (path / name).parent.mkdir(parents=True, exist_ok=True)
                parquet.write_table(table(part_rows), path / name)
                files.append(ArchivedFile(name, (path / name).stat().st_size))
        write_batch(str(path), Batch(number, tuple(ranges), tuple(files)), store)
    description = ArchiveDescription(cluster_id="elsewhere", topics=tuple(PARTITIONS), made_ms=START_MS)
    write_description(str(path), description, store)
    return str(path)


def read(brokers: KafkaCluster, topic: str) -> dict[int, list[Row]]:
    """Return the records that read_committed consumers see."""
    with Cluster(brokers.bootstrap_servers) as cluster:
        partitions = topic_partitions(cluster, topic)
        ends = end_offsets(cluster, partitions, Isolation.READ_COMMITTED)
        options = ReaderOptions(isolation=Isolation.READ_COMMITTED)
        found: dict[int, list[Row]] = {each.partition: [] for each in partitions}
        with Reader(cluster, dict.fromkeys(partitions, 0), ends=ends, options=options) as reader:
            for each in reader.records():
                found[each.partition].append(Row(each.timestamp_ms, each.key, each.value, each.headers))
        return found


def replay_options(brokers: KafkaCluster, target: str, **more: Any) -> ReplayOptions:
    names = {ORDERS: target, PAYMENTS: f"{target}-payments"} if "topics" not in more else {"": target}
    return ReplayOptions(**{"bootstrap": brokers.bootstrap_servers, "renamed": names, "create": True, **more})


def test_killed_drivers(
    spark: SparkSession, brokers: KafkaCluster, archive: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After drivers die between decision and commit and between two steps, the next one writes all rows exactly once.

    Partitions, order, timestamps, tombstones and headers are the same as in the archive.
    """
    options = replay_options(brokers, "died", step_records=1100)
    brokers.create_topic("died", PARTITIONS[ORDERS])
    brokers.create_topic("died-payments", PARTITIONS[PAYMENTS])
    first = plan_replay(spark, archive, options)
    with monkeypatch.context() as patched:
        patched.setattr(exactly_once, "_commit_transaction", _kill_driver)
        with pytest.raises(KeyboardInterrupt):
            write_step(spark, brokers, first)
    steps_done: list[Progress] = []

    def die_after_a_step(progress: Progress) -> None:
        steps_done.append(progress)
        if progress.records:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replay(spark, archive, options, die_after_a_step)
    assert [each.done for each in steps_done] == [first.steps[0].size, first.steps[0].size + first.steps[1].size]
    report = replay(spark, archive, options)
    assert report.steps == len(first.steps) - 2 > 0
    assert report.offsets == sum(PARTITIONS.values()) * BATCHES * ROWS
    assert read(brokers, "died") == expected(ORDERS)
    assert read(brokers, "died-payments") == expected(PAYMENTS)
    assert replay(spark, archive, options).steps == 0
    assert read(brokers, "died") == expected(ORDERS)


def write_step(spark: SparkSession, brokers: KafkaCluster, plan: Any) -> None:
    """Write the plan's first step, as Spark's tasks and driver do."""
    from pyspark.sql import functions as F

    step = plan.steps[0]
    required = {"kafka.bootstrap.servers": brokers.bootstrap_servers, "kreplica.exactly.once": "many"}
    options = sink_options({**required, "kreplica.batch.id": str(step.position), "kreplica.batch.after": "-1"})
    rows = arrange_rows(spark, plan, step).withColumn("lane", F.spark_partition_id()).toArrow()
    lanes = sorted(pc.unique(rows["lane"]).to_pylist())
    assert len(lanes) == 2
    prepared = []
    for lane in lanes:
        own = rows.filter(pc.equal(rows["lane"], lane)).drop(["lane"]).combine_chunks()
        prepared.append(prepare_rows(iter(own.to_batches()), options, Task(plan.name, step.position, lane)))
    commit_prepared(prepared, options)


def _kill_driver(*_: object) -> None:
    raise KeyboardInterrupt


def test_part_of_an_archive(spark: SparkSession, brokers: KafkaCluster, archive: str) -> None:
    """A replay can be limited by topics, offsets and times; a target's existing records are kept and noted."""
    brokers.create_topic("some", 4)
    produce(brokers, "some", ["old"])
    starts, ends = {TopicPartition(ORDERS, 1): 350}, {TopicPartition(ORDERS, 0): 200}
    times = {"from_ms": START_MS + 20_000, "to_ms": START_MS + 70_000}
    options = replay_options(brokers, "some", topics=(ORDERS,), starts=starts, ends=ends, **times)
    report = replay(spark, archive, options)
    assert report.notes == ("some already has 1 offsets: replayed records are appended",)
    found = {each: [row for row in rows if row.value != b"old"] for each, rows in read(brokers, "some").items()}

    def is_selected(partition: int, offset: int) -> bool:
        is_in_range = offset < 200 if partition == 0 else offset >= 350 if partition == 1 else True
        time_ms = archived_row(ORDERS, partition, offset).timestamp_ms
        return is_in_range and times["from_ms"] <= time_ms < times["to_ms"]

    assert found == {**expected(ORDERS, selects=is_selected), 3: []}
    assert report.records == sum(map(len, found.values()))


def test_targets_that_delete_or_restamp_records(spark: SparkSession, brokers: KafkaCluster, archive: str) -> None:
    """Targets that would delete old records or replace timestamps are noted in the plan."""
    with Cluster(brokers.bootstrap_servers) as cluster:
        create_topic(cluster, "short", 3, configs={"retention.ms": "1000"})
        create_topic(cluster, "restamped", 3, configs={"message.timestamp.type": "LogAppendTime"})
    (short,) = plan_replay(spark, archive, replay_options(brokers, "short", topics=(ORDERS,))).notes
    assert short.startswith("short has retention.ms=1000, but some records are older")
    (restamped,) = plan_replay(spark, archive, replay_options(brokers, "restamped", topics=(ORDERS,))).notes
    assert restamped == "restamped has message.timestamp.type=LogAppendTime: timestamps are not kept"


def test_fewer_partitions(spark: SparkSession, brokers: KafkaCluster, archive: str) -> None:
    """Fewer partitions are rejected unless keys choose them; each key's records stay in order in one partition."""
    brokers.create_topic("fewer", 2)
    with pytest.raises(TopicUnusable, match="orders has 3 partitions and fewer has 2: add partitions, or use --by-key"):
        replay(spark, archive, replay_options(brokers, "fewer", topics=(ORDERS,)))
    replay(spark, archive, replay_options(brokers, "fewer", topics=(ORDERS,), by_key=True))
    found = read(brokers, "fewer")
    everything = [row for rows in found.values() for row in rows]
    assert sorted(everything, key=str) == sorted((row for rows in expected(ORDERS).values() for row in rows), key=str)
    key_partitions = {(row.key, partition) for partition, rows in found.items() for row in rows if row.key is not None}
    assert len(key_partitions) == len({key for key, _ in key_partitions})
    for source, rows in expected(ORDERS).items():
        for key in {row.key for row in rows} - {None}:
            (target,) = (each for name, each in key_partitions if name == key)
            prefix = f"{ORDERS}/{source}/".encode()
            own = [row for row in found[target] if row.key == key and (row.value or b"").startswith(prefix)]
            assert own == [row for row in rows if row.key == key and row.value is not None]


def test_impossible_replays(spark: SparkSession, brokers: KafkaCluster, archive: str, tmp_path: Path) -> None:
    """Impossible replays raise an error before anything is written."""
    plain = ReplayOptions(bootstrap=brokers.bootstrap_servers)
    absent = replace(plain, renamed={ORDERS: "absent-orders", PAYMENTS: "absent-payments"})
    parquet.write_table(pa.table({"key": ["a"]}), tmp_path / "a.parquet")
    for path, options, kind, text in (
        (archive, absent, TopicUnusable, "there is no topic 'absent-.*': create it with --create"),
        (archive, replay_options(brokers, "x", topics=("nothing",)), NotReplayable, "its topics are orders, payments"),
        (
            archive,
            replay_options(brokers, "x", renamed={"": "x"}),
            NotReplayable,
            "2 topics cannot all be renamed to 'x'",
        ),
        (
            archive,
            replay_options(brokers, "x", ends={TopicPartition(ORDERS, 7): 1}),
            NotReplayable,
            "orders-7 does not exist",
        ),
        (str(tmp_path), plain, NotReplayable, "the column 'value' is missing"),
        (str(tmp_path / "none"), plain, NotReplayable, "does not exist"),
    ):
        with pytest.raises(kind, match=text):
            replay(spark, path, options)


def test_other_directories(spark: SparkSession, brokers: KafkaCluster, tmp_path: Path) -> None:
    """Rows of other directories are ordered by offset, or else by file and row, and may have no partition column.

    A replay of a directory that has changed since is rejected.
    """
    rows = [(partition, offset, archived_row(ORDERS, partition, offset)) for partition in range(3)
            for offset in offsets(0) if offset % 9]  # fmt: skip
    in_order = [rows[: len(rows) // 2], rows[len(rows) // 2 :]]
    shuffled = Random(2).sample(rows, len(rows))
    by_partition = {partition: [row for each, _, row in rows if each == partition] for partition in range(3)}
    for number, (parts, dropped) in enumerate(
        (([shuffled], ["timestampType"]), (in_order, ["timestampType", "offset"]), (in_order, ["offset", "partition"]))
    ):
        path = tmp_path / str(number)
        path.mkdir()
        for part, own in enumerate(parts):
            parquet.write_table(table(own).drop(dropped), path / f"{part}.parquet")
        options = replay_options(
            brokers, f"plain-{number}", renamed={"": f"plain-{number}"}, step_records=500, name=f"n{number}"
        )
        if "partition" in dropped:
            brokers.create_topic(f"plain-{number}", 3)
        report = replay(spark, str(path), options)
        found = read(brokers, f"plain-{number}")
        assert report.records == len(rows)
        if "partition" not in dropped:
            assert found == by_partition
            continue
        keyed = [[row for row in found[each] if row.key == b"key-1"] for each in found]
        assert [each for each in keyed if each] == [[row for _, _, row in rows if row.key == b"key-1"]]
    parquet.write_table(table(rows[:5]), tmp_path / "0" / "more.parquet")
    with pytest.raises(SinkIdInUse, match="use another name"):
        replay(spark, str(tmp_path / "0"), replay_options(brokers, "plain-0", renamed={"": "plain-0"}, name="n0"))


def test_command(spark: SparkSession, brokers: KafkaCluster, archive: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dry run prints its plan; a replay writes the records and prints the result."""

    @contextmanager
    def shared(*_: object) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(pipeline_replay, "open_spark", shared)
    words = [archive, "--bootstrap", brokers.bootstrap_servers, "--topics", PAYMENTS, "--as", "replayed", "--create"]

    def run(*more: str) -> str:
        done = CliRunner().invoke(pipeline_replay.command, [*words, *more])
        assert done.exit_code == 0, done.output
        return done.stdout

    assert "600 offsets in 1 steps" in run("--dry-run")
    found = json.loads(run("--json", "--codec", "zstd"))
    assert found["records"] == len(expected(PAYMENTS)[0])
    assert read(brokers, "replayed") == expected(PAYMENTS)
    assert "600 offsets replayed in total" in run("--codec", "zstd")
    assert json.loads(run("--dry-run", "--json"))["offsets_done"] == 600
