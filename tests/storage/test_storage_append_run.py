"""Batches that are appended together fare as they would one after the other, with fewer writes."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from storage_world import SMALL, bases_of, batch, idempotent, open_log, read_bytes, records_of

from kreplica.errors import ErrorCode, KafkaError
from kreplica.storage import Log, LogConfig
from kreplica.storage.producers.producer_state import ProducerEntry
from kreplica.testing.simulator.disk import MemoryDisk

PATH = "/data/orders-0"
BIG = LogConfig()


class CountingDisk(MemoryDisk):
    """How often batches were written."""

    writes = 0

    def check(self, operation, path):
        self.writes += operation == "write" and path.endswith(".log")
        super().check(operation, path)


def some_batches(chance: random.Random) -> list[bytearray]:
    """Of producers with and without ids: retries, gaps, old epochs, damage, and what is too large."""
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


def told(outcomes: list[object]) -> list[object]:
    return [outcome.code if isinstance(outcome, KafkaError) else tuple(outcome) for outcome in outcomes]  # type: ignore[call-overload]


def known(log: Log) -> list[ProducerEntry]:
    return sorted(log.producers.entries, key=lambda entry: entry.producer_id)


@pytest.mark.parametrize("seed", range(60))
def test_as_one_after_the_other(seed: int) -> None:
    """The same answers, the same records, and the same known of producers."""
    chance = random.Random(seed)
    whose_time = chance.choice(["CreateTime", "CreateTime", "LogAppendTime"])
    config = replace(SMALL, message_timestamp_type=whose_time, segment_bytes=chance.choice([1000, 100_000]))
    together, apart = (open_log(PATH, config, MemoryDisk(directories=["/data"])) for _ in range(2))
    for _ in range(5):
        batches = some_batches(chance)
        expected = []
        for data in batches:
            try:
                expected.append(apart.append_as_leader(bytearray(data), 3, now_ms=77))
            except KafkaError as error:
                expected.append(error)
        outcomes = together.append_all_as_leader([bytearray(data) for data in batches], 3, now_ms=77)
        assert told(outcomes) == told(expected)
        assert together.log_end_offset == apart.log_end_offset
    assert read_bytes(together) == read_bytes(apart)
    assert known(together) == known(apart)
    together.close()
    again = open_log(PATH, config, together._disk, clean_shutdown=True)
    assert read_bytes(again) == read_bytes(apart)
    assert known(again) == known(apart)


def test_one_write() -> None:
    """Whether or not their producer is idempotent."""
    disk = CountingDisk(directories=["/data"])
    log = open_log(PATH, BIG, disk)
    log.append_all_as_leader([batch("a"), batch("b"), batch("c")], 0, now_ms=1)
    assert disk.writes == 1
    log.append_all_as_leader([idempotent(number) for number in range(50)], 0, now_ms=1)
    assert disk.writes == 2
    log.append_all_as_leader([idempotent(50), idempotent(0, producer_id=9), idempotent(1, producer_id=9)], 0, now_ms=1)
    assert disk.writes == 4
    assert log.log_end_offset == 56


def test_within_one_segment() -> None:
    """What is written together does not reach beyond its segment's size."""
    disk = MemoryDisk(directories=["/data"])
    log = open_log(PATH, SMALL, disk)
    outcomes = log.append_all_as_leader([batch("x" * 150) for _ in range(40)], 0, now_ms=1)
    assert not [outcome for outcome in outcomes if isinstance(outcome, KafkaError)]
    assert all(segment.size <= SMALL.segment_bytes for segment in log.segments)
    assert len(bases_of(log)) >= 8
    assert [record.offset for record in records_of(read_bytes(log))] == list(range(40))


def test_a_full_disk_takes_none_of_those_that_are_written_together() -> None:
    """All are refused, and leave no trace; their producer sends them again, and they are there once."""
    disk = MemoryDisk(directories=["/data"])
    log = open_log(PATH, BIG, disk)
    log.append_as_leader(idempotent(0), 0, now_ms=1)
    before = read_bytes(log)
    total, free = disk.usage("/data")
    for spare in range(0, 8 * 73, 13):
        disk.capacity_bytes = total - free + spare
        outcomes = log.append_all_as_leader([idempotent(number) for number in range(1, 9)], 0, now_ms=1)
        assert told(outcomes) == [ErrorCode.KAFKA_STORAGE_ERROR] * 8
        assert (log.log_end_offset, log.failure, read_bytes(log)) == (1, None, before)
        assert disk.open(f"{PATH}/00000000000000000000.log").size() == log.size_bytes
    disk.capacity_bytes = 1 << 40
    outcomes = log.append_all_as_leader([idempotent(number) for number in range(1, 9)], 0, now_ms=1)
    assert [outcome.base_offset for outcome in outcomes if not isinstance(outcome, KafkaError)] == list(range(1, 9))


def test_what_comes_behind_a_failed_write() -> None:
    """A log whose device failed takes nothing more, of the same request or of others."""
    disk = MemoryDisk(directories=["/data"])
    log = open_log(PATH, SMALL, disk)
    disk.fail("write", "*.log", times=2)
    outcomes = log.append_all_as_leader([batch("x" * 400) for _ in range(6)], 0, now_ms=1)
    assert told(outcomes) == [ErrorCode.KAFKA_STORAGE_ERROR] * 6
    assert log.failure is not None
