"""Statistics of a profile, measured in slices without Spark, for logs of Apache Kafka; and sketches."""

from __future__ import annotations

import pickle
import tarfile
from collections import Counter
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from archives import unpack

from kreplica.client_core.errors import CorruptBatch
from kreplica.spark.pipelines.profile.profile import _merge_by_partition, measure, plan_slices
from kreplica.spark.pipelines.profile.rebalance_plan import BYTES, RATE, rebalance_request
from kreplica.spark.pipelines.profile.report import ProfileReport, TopicStatistics, key_text, profile_report
from kreplica.spark.pipelines.profile.sketches import BUCKETS_MAX, KEYS_MAX, WIDTHS_MS, Keys, Rates, Sizes
from kreplica.spark.source.options import source_options
from kreplica.wire.batches import iter_headers
from kreplica.wire.records import Record, iter_records

ARCHIVE = Path(__file__).parents[1] / "storage" / "written_by_kafka" / "kafka-3.9-killed.tar.xz"


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("kafka")
    with tarfile.open(ARCHIVE) as packed:
        unpack(packed, directory)
    return directory


def profile_topic(directory: Path, topic: str, sample: float = 1.0, slice_size: int = 1 << 40) -> TopicStatistics:
    """Return a topic's statistics, measured in slices of the given number of offsets."""
    values = {"kreplica.source": "segments", "kreplica.log.dirs": str(directory), "subscribe": topic}
    options = source_options({**values, "maxRecordsPerPartition": str(slice_size)}, is_streaming=False)
    slices = plan_slices(options)
    found = [pickle.loads(pickle.dumps(measure(each, options, sample))) for each in slices if each.offsets.size]
    report: ProfileReport = profile_report(_merge_by_partition(slices, reversed(found)), sample=sample, top=5)
    (statistics,) = report.topics
    return statistics


def read_log(directory: Path, topic: str, end: int) -> tuple[list[Record], int]:
    """Return the records of a one-partition topic below an offset, without markers, and the size of all batches."""
    records, size = [], 0
    for path in sorted((directory / f"{topic}-0").glob("*.log")):
        data = path.read_bytes()
        for position, header in iter_headers(data, incomplete_last=True):
            if header.last_offset >= end:
                break
            size += header.size
            if not header.is_control:
                records += list(iter_records(data[position : position + header.size]))
    return records, size


@pytest.mark.parametrize("slice_size", [3, 1 << 40])
def test_statistics_match_the_records(unpacked: Path, slice_size: int) -> None:
    """Counts by codec, sizes, keys and rates match the records, for any number of slices."""
    statistics = profile_topic(unpacked, "codecs", slice_size=slice_size)
    records, size = read_log(unpacked, "codecs", statistics.partitions[0].end)
    assert statistics.records == statistics.opened == len(records)
    assert statistics.size_bytes == size
    assert statistics.size_in_memory > size
    assert {each.codec for each in statistics.codecs} == {"none", "gzip", "snappy", "lz4", "zstd"}
    assert sum(each.records for each in statistics.codecs) == len(records)
    values = sorted(len(each.value or b"") for each in records)
    assert (statistics.value_sizes.min, statistics.value_sizes.max) == (values[0], values[-1])
    assert statistics.value_sizes.mean == pytest.approx(sum(values) / len(values))
    keys = Counter(each.key for each in records if each.key is not None)
    assert statistics.keys.is_exact
    assert (statistics.keys.distinct, statistics.keys.null) == (len(keys), len(records) - keys.total())
    assert statistics.keys.superseded == keys.total() - len(keys)
    assert [each.records for each in statistics.keys.top] == [count for _, count in keys.most_common(5)]
    assert sum(each.records for each in statistics.rates.buckets) == len(records)
    assert statistics.timestamp_types == {"CREATE_TIME": len(records)}
    assert sum(each.records for each in statistics.producers) == len(records)


@pytest.mark.parametrize("slice_size", [1, 2, 5, 1 << 40])
def test_outcomes_of_transactions(unpacked: Path, slice_size: int) -> None:
    """Committed, aborted and open transactions are distinguished, even if a slice ends before the marker."""
    statistics = profile_topic(unpacked, "transactions", slice_size=slice_size)
    records, size = read_log(unpacked, "transactions", statistics.partitions[0].end)
    kinds = Counter(
        "aborted" if value.startswith(b"aborted") else "open" if value.startswith(b"open") else "committed"
        for value in ((each.value or b"") for each in records)
    )
    found = statistics.transactions
    assert (found.committed, found.aborted, found.open) == (kinds["committed"], kinds["aborted"], kinds["open"])
    assert kinds["aborted"]
    assert found.markers > 0
    assert statistics.size_bytes == size


def test_sample_covers_all_headers(unpacked: Path) -> None:
    """A sample's record and byte counts cover all batches, and its key and value statistics only some."""
    topic = "rolled.small-segments"
    complete, sampled = profile_topic(unpacked, topic), profile_topic(unpacked, topic, sample=0.5)
    assert (sampled.records, sampled.size_bytes, sampled.producers) == (
        complete.records,
        complete.size_bytes,
        complete.producers,
    )
    assert 0 < sampled.opened < complete.opened
    assert sum(each.records for each in sampled.rates.buckets) == sum(each.records for each in complete.rates.buckets)


def test_damaged_batch_is_reported(unpacked: Path, tmp_path: Path) -> None:
    """A damaged batch is an error, so it does not contribute to the statistics."""
    (tmp_path / "codecs-0").mkdir()
    data = bytearray((unpacked / "codecs-0" / f"{0:020}.log").read_bytes())
    data[100] ^= 1
    (tmp_path / "codecs-0" / f"{0:020}.log").write_bytes(data)
    with pytest.raises(CorruptBatch, match="codecs-0: the batch at offset 0 is damaged"):
        profile_topic(tmp_path, "codecs")


def test_weights_of_partitions(unpacked: Path) -> None:
    """A partition's weight is its size or its rate; empty partitions have none."""
    statistics = profile_topic(unpacked, "codecs")
    report = ProfileReport(1.0, statistics.records, statistics.size_bytes, (statistics,))
    request = rebalance_request(report, BYTES)
    assert request["weights"] == [{"topic": "codecs", "partition": 0, "weight": statistics.size_bytes}]
    assert (request["kind"], request["topics"]) == ("rebalance", ["codecs"])
    (row,) = rebalance_request(report, RATE)["weights"]
    assert row["weight"] == pytest.approx(statistics.partitions[0].bytes_per_second, abs=1)


class TestSketches:
    """Summaries of many values."""

    def test_quantiles_of_sizes(self) -> None:
        random, sizes, values = Random(1), Sizes(), []
        for count in (1, 1000, 3000):
            sample = [int(random.lognormvariate(6, 2)) for _ in range(count)]
            part = Sizes()
            part.add(np.array(sample, dtype=np.int64))
            sizes.merge(part)
            values += sample
        values.sort()
        assert (sizes.smallest, sizes.largest, sizes.total) == (values[0], values[-1], sum(values))
        for share in (0.01, 0.5, 0.99):
            assert sizes.quantile(share) == pytest.approx(values[int(share * len(values))], rel=0.02, abs=1)
        assert Sizes().quantile(0.5) == 0

    def test_few_keys_are_counted_exactly(self) -> None:
        random, keys, expected = Random(2), Keys(), Counter[bytes]()
        for _ in range(5):
            sample = [b"key-%d" % int(random.paretovariate(1)) for _ in range(2000)]
            part = Keys()
            part.add(pa.array(sample, pa.binary()), pa.array([len(each) for each in sample], pa.int64()))
            keys.merge(part)
            expected.update(sample)
        assert keys.is_exact
        assert keys.distinct == len(expected)
        (first, second) = keys.top(2)
        assert [(first.key, first.records), (second.key, second.records)] == expected.most_common(2)
        assert first.size_bytes == first.records * len(first.key)

    def test_many_keys_are_estimated(self) -> None:
        """The number of distinct keys is accurate to a few percent, a frequent key's count to within ``error``."""
        keys, count, often = Keys(), 10 * KEYS_MAX, b"o" * 1000
        for start in range(0, count, 50_000):
            sample = [b"%d" % each for each in range(start, min(start + 50_000, count))] + [often] * 500
            keys.add(pa.array(sample, pa.binary()), pa.array([1] * len(sample), pa.int64()))
        records = 500 * -(-count // 50_000)
        assert not keys.is_exact
        assert keys.distinct == pytest.approx(count, rel=0.05)
        (top,) = keys.top(1)
        assert top.key == often
        assert records - keys.error <= top.records <= records
        assert keys.error <= (count + records) / KEYS_MAX

    def test_long_periods_have_wider_buckets(self) -> None:
        """Buckets are minutes or, if there are too many, hours, in whatever order slices are merged."""
        rates, hours = Rates(), Rates()
        times = np.arange(BUCKETS_MAX + 1, dtype=np.int64) * WIDTHS_MS[0]
        hours.add(times, np.ones(len(times), dtype=np.int64), np.full(len(times), 10.0))
        assert hours.width_ms == WIDTHS_MS[1]
        rates.add(times[:60], np.ones(60, dtype=np.int64), np.full(60, 10.0))
        assert rates.buckets()[1] == (60_000, 1, 10)
        rates.merge(hours)
        assert rates.buckets()[:2] == [(0, 120, 1200), (3_600_000, 60, 600)]
        rates.add(np.array([1 << 61]), np.array([1]), np.array([1.0]))
        assert sum(each.records for each in rates.buckets()) == len(times) + 61

    def test_text_keys_are_shown_as_text(self) -> None:
        assert key_text("käse".encode()) == "käse"
        assert key_text(b"\xff\x00") == "0xff00"
        assert key_text(b"a\n") == "0x610a"
