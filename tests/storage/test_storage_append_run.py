"""Appending batches together has the same results as appending them one by one, with fewer writes."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from storage_world import SMALL, bases_of, batch, idempotent, open_log, read_bytes, records_of

from kreplica.errors import ErrorCode, KafkaError
from kreplica.storage import Log, LogConfig, Origin
from kreplica.storage.log.appending import append_all_as_leader, append_as_leader
from kreplica.storage.producers.producer_entry import ProducerEntry
from kreplica.storage.segments import batch_validation
from kreplica.storage.segments.batch_validation import ValidatedBatch
from kreplica.testing.simulator.disk import MemoryDisk
from tests.support.kernels import without_kernels

PATH = "/data/orders-0"
BIG = LogConfig()


class CountingDisk(MemoryDisk):
    """Disk that counts writes of batches."""

    writes = 0

    def check(self, operation, path):
        self.writes += operation == "write" and path.endswith(".log")
        super().check(operation, path)


def some_batches(chance: random.Random) -> list[bytearray]:
    """Return batches with and without producer IDs: retries, gaps, old epochs, damaged and oversized batches."""
    sequences = {7: 0, 8: 0}
    batches: list[bytearray] = []
    for number in range(chance.randint(1, 40)):
        kind = chance.random()
        producer_id = chance.choice([7, 7, 7, 8])
        if kind < 0.3:
            batches.append(batch(*[f"plain {number}"] * chance.randint(1, 3)))
        elif kind < 0.8:
            count = chance.randint(1, 3)
            batches.append(idempotent(sequences[producer_id], count, producer_id=producer_id))
            sequences[producer_id] += count
        elif kind < 0.85:
            batches.append(idempotent(sequences[producer_id] + 5, producer_id=producer_id))
        elif kind < 0.9 and batches:
            batches.append(bytearray(chance.choice(batches[-6:])))
        elif kind < 0.93:
            batches.append(idempotent(0, epoch=chance.choice([0, 1]), producer_id=producer_id))
            sequences[producer_id] = 1
        elif kind < 0.96:
            batches.append(batch("damaged"))
            batches[-1][-1] ^= 1
        else:
            batches.append(batch("x" * chance.choice([300, 3000])))
    return batches


def codes_or_offsets(outcomes: list[object]) -> list[object]:
    return [outcome.code if isinstance(outcome, KafkaError) else tuple(outcome) for outcome in outcomes]  # type: ignore[call-overload]


def producer_entries(log: Log) -> list[ProducerEntry]:
    return sorted(log.producers.entries, key=lambda entry: entry.producer_id)


def files_of(log: Log) -> dict[str, bytes]:
    return {name: log.disk.read_file(f"{PATH}/{name}") for name in log.disk.list_directory(PATH)}


@pytest.mark.parametrize("seed", range(60))
def test_append_run_equals_single_appends(seed: int) -> None:
    """The results, the records, the producer state and the indexes are the same, with and without kernels."""
    chance = random.Random(seed)
    timestamp_type = chance.choice(["CreateTime", "CreateTime", "LogAppendTime"])
    config = replace(SMALL, message_timestamp_type=timestamp_type, segment_bytes=chance.choice([1000, 100_000]))
    together, apart = (open_log(PATH, config, MemoryDisk(directories=["/data"])) for _ in range(2))
    plain = open_log(PATH, config, MemoryDisk(directories=["/data"]))
    for _ in range(5):
        batches = some_batches(chance)
        expected = []
        for data in batches:
            try:
                expected.append(append_as_leader(apart, bytearray(data), 3, now_ms=77))
            except KafkaError as error:
                expected.append(error)
        outcomes = append_all_as_leader(together, [bytearray(data) for data in batches], 3, now_ms=77)
        assert codes_or_offsets(outcomes) == codes_or_offsets(expected)
        assert together.log_end_offset == apart.log_end_offset
        with without_kernels():
            without = append_all_as_leader(plain, [bytearray(data) for data in batches], 3, now_ms=77)
        assert codes_or_offsets(without) == codes_or_offsets(outcomes)
        assert list(map(str, without)) == list(map(str, outcomes))
        assert plain.segments.tail_positions == together.segments.tail_positions
    assert read_bytes(together) == read_bytes(apart) == read_bytes(plain)
    assert producer_entries(together) == producer_entries(apart) == producer_entries(plain)
    together.close()
    plain.close()
    assert files_of(together) == files_of(plain)
    again = open_log(PATH, config, together.disk, clean_shutdown=True)
    assert read_bytes(again) == read_bytes(apart)
    assert producer_entries(again) == producer_entries(apart)


def test_run_is_written_at_once() -> None:
    disk = CountingDisk(directories=["/data"])
    log = open_log(PATH, BIG, disk)
    append_all_as_leader(log, [batch("a"), batch("b"), batch("c")], 0, now_ms=1)
    assert disk.writes == 1
    append_all_as_leader(log, [idempotent(number) for number in range(50)], 0, now_ms=1)
    assert disk.writes == 2
    append_all_as_leader(log, [idempotent(50), idempotent(0, producer_id=9), idempotent(1, producer_id=9)], 0, now_ms=1)
    assert disk.writes == 4
    assert log.log_end_offset == 56


def test_run_does_not_exceed_a_segment() -> None:
    disk = MemoryDisk(directories=["/data"])
    log = open_log(PATH, SMALL, disk)
    outcomes = append_all_as_leader(log, [batch("x" * 150) for _ in range(40)], 0, now_ms=1)
    assert not [outcome for outcome in outcomes if isinstance(outcome, KafkaError)]
    assert all(segment.size <= SMALL.segment_bytes for segment in log.segments)
    assert len(bases_of(log)) >= 8
    assert [record.offset for record in records_of(read_bytes(log))] == list(range(40))


def test_full_disk_refuses_the_whole_run() -> None:
    """All batches are rejected and leave no trace; retries are appended once."""
    disk = MemoryDisk(directories=["/data"])
    log = open_log(PATH, BIG, disk)
    append_as_leader(log, idempotent(0), 0, now_ms=1)
    before = read_bytes(log)
    total, free = disk.usage("/data")
    for spare in range(0, 8 * 73, 13):
        disk.capacity_bytes = total - free + spare
        outcomes = append_all_as_leader(log, [idempotent(number) for number in range(1, 9)], 0, now_ms=1)
        assert codes_or_offsets(outcomes) == [ErrorCode.KAFKA_STORAGE_ERROR] * 8
        assert (log.log_end_offset, log.failure, read_bytes(log)) == (1, None, before)
        assert disk.open(f"{PATH}/00000000000000000000.log").size() == log.segments.size_bytes
    disk.capacity_bytes = 1 << 40
    outcomes = append_all_as_leader(log, [idempotent(number) for number in range(1, 9)], 0, now_ms=1)
    assert [outcome.base_offset for outcome in outcomes if not isinstance(outcome, KafkaError)] == list(range(1, 9))


def test_appends_after_a_failed_write_are_refused() -> None:
    """Batches in the same request and in later ones are rejected."""
    disk = MemoryDisk(directories=["/data"])
    log = open_log(PATH, SMALL, disk)
    disk.fail("write", "*.log", times=2)
    outcomes = append_all_as_leader(log, [batch("x" * 400) for _ in range(6)], 0, now_ms=1)
    assert codes_or_offsets(outcomes) == [ErrorCode.KAFKA_STORAGE_ERROR] * 6
    assert log.failure is not None


@pytest.mark.parametrize(
    ("settings", "reads"),
    [
        ({}, 0),
        ({"compression_type": "uncompressed"}, 0),
        ({"compression_type": "gzip"}, 1),
        ({"message_timestamp_before_max_ms": 10_000}, 1),
        ({"message_timestamp_type": "LogAppendTime"}, 0),
    ],
    ids=str,
)
def test_records_of_a_built_batch_are_read_only_if_settings_need_it(
    tmp_path, monkeypatch: pytest.MonkeyPatch, settings: dict, reads: int
) -> None:
    """The broker built the batch itself, so its records need not be read; the log is the same as if they had been."""
    config = replace(SMALL, cleanup_policy=frozenset({"compact"}), **settings)
    walk, calls = batch_validation.check_records, []

    def counted(*arguments):
        calls.append(arguments)
        return walk(*arguments)

    built, plain = open_log(tmp_path / "t-0", config), open_log(tmp_path / "t-1", config)
    records = bytes(batch(("k", "v"), ("l", "w")))
    append_as_leader(plain, bytearray(records), 0, now_ms=2000, origin=Origin.COORDINATOR)
    monkeypatch.setattr(batch_validation, "check_records", counted)
    append_as_leader(built, ValidatedBatch.built(records, config), 0, now_ms=2000, origin=Origin.COORDINATOR)
    assert len(calls) == reads
    assert read_bytes(built) == read_bytes(plain)
