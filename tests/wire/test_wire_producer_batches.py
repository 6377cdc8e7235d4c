"""A producer's batch encoded by columns equals the batch encoded record by record."""

from __future__ import annotations

from functools import partial
from random import Random

import pytest

from kreplica.wire.batch_building import BatchBuilder
from kreplica.wire.compression import Codec
from kreplica.wire.producer_batches import build_producer_batch
from kreplica.wire.records import Headers
from tests.support.kernels import both


def build_in_both_ways(
    records: list[tuple[int, bytes | None, bytes | None, Headers]], codec: Codec, transactional: bool = False
) -> tuple[bytes, bytes]:
    builder = BatchBuilder(codec=codec, transactional=transactional)
    for record in records:
        builder.append(*record)
    columns = [list(column) for column in zip(*records, strict=True)]
    build = partial(build_producer_batch, codec=codec, transactional=transactional)
    return bytes(both(build, *columns)), builder.build()


@pytest.mark.parametrize("seed", range(20))
def test_any_records(seed: int) -> None:
    """Records have optional keys, values and headers, and equal or different sizes and timestamp deltas."""
    random = Random(seed)
    sizes = random.choice([(0, 1), (100,), (63, 64, 65), (0, 50, 5_000, 20_000)])
    null_probability = random.random() ** 2
    now_ms = 1_700_000_000_000

    def data() -> bytes | None:
        return None if random.random() < null_probability else random.randbytes(random.choice(sizes))

    records: list[tuple[int, bytes | None, bytes | None, Headers]] = []
    for _ in range(random.choice([1, 2, 63, 64, 65, 300])):
        now_ms += random.choice([0, 0, 0, 1, -1, 70, 100_000])
        headers = (("name", data()), ("", b"")) if random.random() < null_probability / 2 else ()
        records.append((now_ms, data() if random.random() < 0.5 else None, data(), headers))
    by_columns, by_records = build_in_both_ways(records, random.choice([Codec.NONE, Codec.LZ4]), random.random() < 0.5)
    assert by_columns == by_records


def test_many_records() -> None:
    """The offset deltas of the records take one, two and three bytes."""
    by_columns, by_records = build_in_both_ways([(5, None, b"v", ())] * 8200, Codec.NONE)
    assert by_columns == by_records


def test_no_record() -> None:
    """A batch must contain a record."""
    with pytest.raises(ValueError, match="no records"):
        build_producer_batch([], [], [], [], Codec.NONE)


@pytest.mark.parametrize("count", [1, 63, 64, 65, 300])
@pytest.mark.parametrize("last_ms", [0, 63, 64, -1])
@pytest.mark.parametrize("size_max", [0, 70, 7_999, 8_000, 9_000])
def test_values_only(count: int, last_ms: int, size_max: int) -> None:
    """Sizes and timestamps are just inside or just outside the range of the columnar encoding."""
    random = Random(count)
    values = [bytes(random.randint(0, 70)) for _ in range(count - 1)] + [bytes(size_max)]
    records = [(5, None, value, ()) for value in values[:-1]] + [(5 + last_ms, None, values[-1], ())]
    by_columns, by_records = build_in_both_ways(records, Codec.NONE)
    assert by_columns == by_records
