"""Streams in real Spark: limits, restarts from a checkpoint, lag, data loss, broker failures, and idle queries."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from jvm_tables import WAIT_S_MAX, count_values, load, load_stream, produce, start_query, wait_until
from kafka import KafkaAdminClient
from kafka import TopicPartition as KafkaPartition
from kafka.admin import NewPartitions

from kreplica.spark.source.lag import Lag, LagListener
from kreplica.testing.fixtures.kafka_cluster import KafkaCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"
TICKS = os.sysconf("SC_CLK_TCK")


@pytest.fixture
def admin(brokers: KafkaCluster) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=brokers.bootstrap_servers)
    yield client
    client.close()


def read_offsets(checkpoint: Path) -> list[dict]:
    """Return the offsets of each micro-batch in the checkpoint."""
    files = sorted((checkpoint / "offsets").glob("[0-9]*"), key=lambda file: int(file.name))
    return [json.loads(file.read_text().splitlines()[2]) for file in files]


def convert_to_jvm_format(checkpoint: Path) -> None:
    """Convert a checkpoint to the format of Spark's own Kafka source."""
    for file in (checkpoint / "offsets").glob("[0-9]*"):
        version, metadata, offsets = file.read_text().splitlines()
        compact = json.dumps(json.loads(offsets), separators=(",", ":"))
        file.write_text("\n".join((version, metadata, compact)))
        (file.parent / f".{file.name}.crc").unlink(missing_ok=True)
    initial = checkpoint / "sources" / "0"
    initial.mkdir(parents=True, exist_ok=True)
    (initial / "0").write_text('v1\n{"jvm-stream":{"0":0,"1":0}}')


def test_query_resumes_where_it_stopped(
    spark: SparkSession, brokers: KafkaCluster, admin: KafkaAdminClient, tmp_path: Path
) -> None:
    """A query with limited micro-batches copies each row once, and resumes from a checkpoint in the JVM's format.

    This includes rows of an added partition; a listener receives the lag.
    """
    brokers.create_topic("jvm-stream", 2)
    brokers.create_topic("jvm-stream-copy", 1)
    rows = [str(number) for number in range(90)]
    produce(brokers, "jvm-stream", rows[:60], partition=0)
    produce(brokers, "jvm-stream", rows[60:], partition=1)
    frame = load_stream(spark, brokers, subscribe="jvm-stream", startingOffsets="earliest", maxOffsetsPerTrigger="30")
    lags: list[Lag] = []
    listener = LagListener(lags.append)
    spark.streams.addListener(listener)
    try:
        first = start_query(frame, brokers, "jvm-stream-copy", tmp_path, availableNow=True)
        assert first.awaitTermination(WAIT_S_MAX)
        wait_until(lambda: lags and not lags[-1].total)
    finally:
        spark.streams.removeListener(listener)
    assert count_values(brokers, "jvm-stream-copy") == Counter(rows)
    offsets = [{"jvm-stream": {"0": 20 * number, "1": 10 * number}} for number in (1, 2, 3)]
    assert read_offsets(tmp_path) == offsets
    assert [(lag.total, lag.least, lag.most) for lag in lags] == [(60, 20, 40), (30, 10, 20), (0, 0, 0)]

    convert_to_jvm_format(tmp_path)
    admin.create_partitions({"jvm-stream": NewPartitions(3)})
    brokers.wait_until_in_sync("jvm-stream")
    more = [str(number) for number in range(100, 120)]
    produce(brokers, "jvm-stream", more[:10], partition=2)
    produce(brokers, "jvm-stream", more[10:], partition=0)
    second = start_query(frame, brokers, "jvm-stream-copy", tmp_path, availableNow=True)
    assert second.awaitTermination(WAIT_S_MAX)
    assert count_values(brokers, "jvm-stream-copy") == Counter(rows + more)
    assert read_offsets(tmp_path)[-1] == {"jvm-stream": {"0": 70, "1": 30, "2": 10}}


def test_deleted_records(spark: SparkSession, brokers: KafkaCluster, admin: KafkaAdminClient, tmp_path: Path) -> None:
    """Deleted records make a planned batch and a query fail, unless ``failOnDataLoss`` is false."""
    for topic in ("jvm-gone", "jvm-gone-copy", "jvm-vanished"):
        brokers.create_topic(topic, 1)
    produce(brokers, "jvm-gone", [str(number) for number in range(20)])
    planned = load(spark, brokers, subscribe="jvm-gone", **{"kreplica.columns": "value"})
    assert planned.count() == 20
    admin.delete_records({KafkaPartition("jvm-gone", 0): 15})
    with pytest.raises(Exception, match=r"jvm-gone-0: offsets 0 to 15 were deleted(.|\n)*failOnDataLoss to false"):
        planned.count()

    def copy(**options: str) -> None:
        start = {"subscribe": "jvm-gone", "startingOffsets": '{"jvm-gone":{"0":5}}'}
        frame = load_stream(spark, brokers, **start, **options)
        query = start_query(frame, brokers, "jvm-gone-copy", tmp_path, availableNow=True)
        assert query.awaitTermination(WAIT_S_MAX)

    with pytest.raises(Exception, match="DataLoss: jvm-gone-0: offsets 5 to 15 were deleted"):
        copy()
    copy(failOnDataLoss="false")
    assert sorted(count_values(brokers, "jvm-gone-copy")) == ["15", "16", "17", "18", "19"]


def test_idle_query_uses_little_cpu_and_then_reacts_fast(
    spark: SparkSession, brokers: KafkaCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The process that looks up offsets is mostly idle, reads new records soon, and ends with its query."""
    for topic in ("jvm-idle", "jvm-idle-copy"):
        brokers.create_topic(topic, 1)
    frame = load_stream(spark, brokers, subscribe="jvm-idle", startingOffsets="earliest")
    others = set(processes(RUNNER))
    query = start_query(frame, brokers, "jvm-idle-copy", tmp_path, processingTime="0 seconds")
    try:
        produce(brokers, "jvm-idle", ["first"])
        wait_until(lambda: count_values(brokers, "jvm-idle-copy")["first"], query)
        (process,) = set(processes(RUNNER)) - others
        cpu_s, since_s = cpu_time_s(process), time.monotonic()
        time.sleep(2.0)
        share = (cpu_time_s(process) - cpu_s) / (time.monotonic() - since_s)
        assert share < 0.5
        durations_ms = []
        for number in range(5):
            produce(brokers, "jvm-idle", [f"then-{number}"])
            wait_until(lambda number=number: count_values(brokers, "jvm-idle-copy")[f"then-{number}"], query)
        for progress in query.recentProgress:
            if progress["numInputRows"]:
                durations = progress["durationMs"]  # includes the time that the source waits for new records
                durations_ms.append(durations["triggerExecution"] - durations["latestOffset"])
        with capsys.disabled():
            print(f"\nidle: {share:.1%} of a core; micro-batches of one row took {sorted(durations_ms)} ms")
        assert min(durations_ms) < 10_000
    finally:
        query.stop()
    wait_until(lambda: process not in processes(RUNNER))


def processes(module: str) -> list[int]:
    """Return the IDs of the descendant processes of this test that run a module."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if module.encode() in words and os.getpid() in ancestors(int(entry.name)):
                found.append(int(entry.name))
    return found


def ancestors(process: int) -> list[int]:
    found = []
    while process > 1:
        try:
            process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            break
        found.append(process)
    return found


def cpu_time_s(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def test_leader_dies_during_reads_and_writes(spark: SparkSession) -> None:
    """All rows are written, although some possibly twice."""
    with KafkaCluster(3, session_timeout_ms=5000) as own:
        own.create_topic("read", 2)
        own.create_topic("write", 2)
        rows = [f"{number:05}" + "x" * 100 for number in range(30_000)]
        produce(own, "read", rows[:15_000], partition=0)
        produce(own, "read", rows[15_000:], partition=1)
        # Small tasks, so that some remain when the first rows are written.
        limits = {"maxRecordsPerPartition": "500", "kafka.max.partition.fetch.bytes": "20000"}
        frame = load(spark, own, subscribe="read", **limits, **{"kreplica.columns": "value"})
        sink = frame.write.format("kreplica").option("kafka.bootstrap.servers", own.bootstrap_servers)
        leader = own.leader_of("read", 0)
        killed_at: list[int] = []

        def kill() -> None:
            wait_until(lambda: sum(own.end_offsets("write").values()))
            own.kill(leader)
            killed_at.append(sum(own.end_offsets("write").values()))

        killer = threading.Thread(target=kill)
        killer.start()
        sink.options(topic="write", **{"kafka.batch.size": "20000"}).mode("append").save()
        killer.join(WAIT_S_MAX)
        assert killed_at[0] < len(rows)
        assert set(count_values(own, "write")) == set(rows)
