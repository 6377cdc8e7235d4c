"""The fetch buffer: gaps, records before the position, damaged batches."""

from __future__ import annotations

import pytest

from kreplica.client.consumer.fetch_buffer import FetchBuffer
from kreplica.client.consumer.records import ConsumedBatch
from kreplica.client_core.errors import CorruptBatch
from kreplica.client_core.fetched_batches import FetchedRecords, next_offset_after
from kreplica.model import TopicPartition
from kreplica.wire.batch_building import build_batch
from kreplica.wire.batches import stamp
from kreplica.wire.control_records import EndMarker, build_end_marker
from kreplica.wire.records import Record

KEY = TopicPartition("t", 0)


def fetched(position: int, *batches: bytes) -> FetchedRecords:
    data = memoryview(b"".join(batches))
    return FetchedRecords(KEY, data, position, next_offset_after(data, position, KEY))


def batch(base_offset: int, *offsets: int, epoch: int = 3) -> bytes:
    return build_batch(
        [Record(offset, 5, None, str(offset).encode()) for offset in offsets],
        base_offset=base_offset,
        leader_epoch=epoch,
    )


def marker(offset: int) -> bytes:
    made = bytearray(build_end_marker(EndMarker(True, 0), 7, 0, 5))
    stamp(made, offset, 3)
    return bytes(made)


def take_all(stock: FetchBuffer, position: int) -> list[tuple[list[int], int]]:
    """Return (offsets, next position) of all batches."""
    found = []
    while not stock.is_empty:
        taken, position = stock.take(position)
        found.append(([] if taken is None else [record.offset for record in taken], position))
    return found


def test_gaps_and_records_before_the_position() -> None:
    """Compaction leaves gaps in and between batches; a response may contain earlier records."""
    stock = FetchBuffer()
    stock.add(fetched(4, batch(0, 2, 4, 5), batch(8, 9), marker(10)))
    stock.add(fetched(11, batch(20, 20)))
    assert len(stock) == 2
    assert take_all(stock, 4) == [([4, 5, 9], 10), ([], 11), ([20], 21), ([], 21)]
    assert stock.size == 0


def test_small_batches_are_delivered_together() -> None:
    """The batches must come from one leader."""
    stock = FetchBuffer()
    many = [batch(first, *range(first, first + 100)) for first in range(0, 500, 100)]
    large = [build_batch([Record(offset, 5, None, bytes(50_000))], base_offset=offset) for offset in (500, 501, 502)]
    other = [batch(503, 503), batch(504, 504, epoch=4), batch(505, 505, epoch=4)]
    stock.add(fetched(0, *many, *large, *other))
    found = []
    position = 0
    while not stock.is_empty:
        taken, position = stock.take(position)
        if taken is not None:
            found.append((len(taken), taken.next_offset, taken.leader_epoch))
    assert found == [(300, 300, 3), (200, 500, 3), (2, 502, -1), (1, 503, -1), (1, 504, 3), (2, 506, 4)]


def test_returned_records_come_first() -> None:
    """Responses that arrived meanwhile follow them."""
    stock = FetchBuffer()
    stock.add(fetched(0, batch(0, 0, 1, 2)))
    taken, _ = stock.take(0)
    assert isinstance(taken, ConsumedBatch)
    first, others = taken.split(1)
    assert (first.next_offset, others.next_offset) == (1, 3)
    assert first.leader_epoch == others.leader_epoch == 3
    stock.put_back(others)
    stock.add(fetched(3, batch(3, 3)))
    assert take_all(stock, 1) == [([1, 2], 3), ([], 3), ([3], 4), ([], 4)]


def test_damaged_batch() -> None:
    """Batches before a damaged one are delivered; later data is discarded."""
    broken = bytearray(batch(1, 1))
    broken[-2] ^= 1
    stock = FetchBuffer()
    stock.add(fetched(0, batch(0, 0), bytes(broken)))
    stock.add(fetched(2, batch(2, 2)))
    assert stock.take(0)[1] == 1
    with pytest.raises(CorruptBatch, match="offset 1"):
        stock.take(1)
    assert stock.is_empty
    assert stock.size == 0


def test_malformed_records() -> None:
    """Malformed records in a batch with a valid CRC are detected."""
    made = build_batch([Record(0, 5, None, b"abc")])
    from kreplica.wire.batch_building import seal
    from kreplica.wire.batches import HEADER_SIZE, parse_header

    stock = FetchBuffer()
    stock.add(fetched(0, seal(parse_header(made), b"\x10" + made[HEADER_SIZE + 1 :])))
    with pytest.raises(CorruptBatch, match="t-0 from offset 0"):
        stock.take(0)
