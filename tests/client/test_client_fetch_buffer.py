"""The fetch buffer: gaps, records before the position, damaged batches."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kreplica.client.consumer.fetch_buffer import FetchBuffer
from kreplica.client.consumer.records import ConsumedBatch
from kreplica.client_core.errors import CorruptBatch
from kreplica.client_core.fetched_batches import FetchedRecords, next_offset_after
from kreplica.model import TopicPartition
from kreplica.wire.batch_building import build_batch, seal
from kreplica.wire.batches import HEADER_SIZE, parse_header, stamp
from kreplica.wire.control_records import EndMarker, build_end_marker
from kreplica.wire.records import Record
from tests.support.kernels import both

KEY = TopicPartition("t", 0)


def fetched_records(position: int, *batches: bytes) -> FetchedRecords:
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


def take_all(buffer: FetchBuffer, position: int) -> list[tuple[list[int], int]]:
    """Take all batches, and return (offsets, next position) of each."""
    results = []
    while not buffer.is_empty:
        taken, position = buffer.take(position)
        results.append(([] if taken is None else [record.offset for record in taken], position))
    return results


def test_gaps_and_records_before_the_position() -> None:
    """Compaction leaves gaps in and between batches; a response may start with records before the position."""
    buffer = FetchBuffer()
    buffer.add(fetched_records(4, batch(0, 2, 4, 5), batch(8, 9), marker(10)))
    buffer.add(fetched_records(11, batch(20, 20)))
    assert len(buffer) == 2
    assert take_all(buffer, 4) == [([4, 5, 9], 10), ([], 11), ([20], 21), ([], 21)]
    assert buffer.size == 0


def test_small_batches_are_delivered_together() -> None:
    """Consecutive small batches of one leader epoch are delivered together, up to a limit."""
    buffer = FetchBuffer()
    many = [batch(first, *range(first, first + 100)) for first in range(0, 500, 100)]
    large = [build_batch([Record(offset, 5, None, bytes(50_000))], base_offset=offset) for offset in (500, 501, 502)]
    other = [batch(503, 503), batch(504, 504, epoch=4), batch(505, 505, epoch=4)]
    buffer.add(fetched_records(0, *many, *large, *other))
    batches = []
    position = 0
    while not buffer.is_empty:
        taken, position = buffer.take(position)
        if taken is not None:
            batches.append((len(taken), taken.next_offset, taken.leader_epoch))
    assert batches == [(300, 300, 3), (200, 500, 3), (2, 502, -1), (1, 503, -1), (1, 504, 3), (2, 506, 4)]


def test_returned_records_come_first() -> None:
    """Records that are put back are delivered before those of later responses."""
    buffer = FetchBuffer()
    buffer.add(fetched_records(0, batch(0, 0, 1, 2)))
    taken, _ = buffer.take(0)
    assert isinstance(taken, ConsumedBatch)
    first, others = taken.split(1)
    assert (first.next_offset, others.next_offset) == (1, 3)
    assert first.leader_epoch == others.leader_epoch == 3
    buffer.put_back(others)
    buffer.add(fetched_records(3, batch(3, 3)))
    assert take_all(buffer, 1) == [([1, 2], 3), ([], 3), ([3], 4), ([], 4)]


def test_damaged_batch() -> None:
    """Batches before a damaged one are delivered; later data is discarded."""
    broken = bytearray(batch(1, 1))
    broken[-2] ^= 1
    buffer = FetchBuffer()
    buffer.add(fetched_records(0, batch(0, 0), bytes(broken)))
    buffer.add(fetched_records(2, batch(2, 2)))
    assert buffer.take(0)[1] == 1
    with pytest.raises(CorruptBatch, match="offset 1"):
        buffer.take(1)
    assert buffer.is_empty
    assert buffer.size == 0


def test_malformed_records() -> None:
    """Malformed records in a batch with a valid CRC are detected."""
    made = build_batch([Record(0, 5, None, b"abc")])
    buffer = FetchBuffer()
    buffer.add(fetched_records(0, seal(parse_header(made), b"\x10" + made[HEADER_SIZE + 1 :])))
    with pytest.raises(CorruptBatch, match="t-0 from offset 0"):
        buffer.take(0)


def test_batches_before_the_position_do_not_count() -> None:
    """A batch whose records are all skipped does not count as bytes of the batches that are delivered together."""
    large = build_batch([Record(offset, 5, None, bytes(200)) for offset in range(500)])
    many = [batch(first, *range(first, first + 100)) for first in range(500, 900, 100)]
    buffer = FetchBuffer()
    buffer.add(fetched_records(500, large, *many))
    assert [len(offsets) for offsets, _ in take_all(buffer, 500)] == [300, 100, 0]


batches = st.lists(
    st.tuples(
        st.lists(st.tuples(st.none() | st.binary(max_size=3), st.sampled_from([0, 3, 1000])), max_size=4),
        st.sampled_from([0, 0, 0, 0, 8, 1, 16, 32, 64]),
        st.sampled_from([3, 3, 3, 4]),
        st.integers(0, 2),
        st.sampled_from([1, 1, 70]),
    ),
    min_size=1,
    max_size=6,
)
damage = st.none() | st.tuples(st.integers(0, 2**20), st.integers(0, 255), st.booleans())


@given(batches, st.integers(0, 500), st.lists(st.integers(-1, 600), max_size=2), damage, st.integers(0, 70))
@settings(max_examples=300, deadline=None)
def test_kernel_delivers_the_same_batches(
    made: list[tuple[list[tuple[bytes | None, int]], int, int, int, int]],
    position: int,
    aborted: list[int],
    damaged: tuple[int, int, bool] | None,
    cut: int,
) -> None:
    """With and without kernels, the same records are delivered in the same batches, and the same errors are raised."""
    data, offset = bytearray(), 0
    for contents, attributes, epoch, gap, copies in made:
        records = [
            Record(offset + number, 5 + number % 3, key, bytes(size))
            for number, (key, size) in enumerate(contents * copies)
        ]
        whole = build_batch(
            records or [Record(offset, 5, None, b"")],
            base_offset=offset,
            codec=attributes & 7,
            producer_id=7 if attributes & 48 else -1,
            producer_epoch=0,
        )
        header, section = parse_header(whole), whole[HEADER_SIZE:]
        header = header._replace(attributes=attributes, partition_leader_epoch=epoch, max_timestamp=9)
        if not records:
            header, section = header._replace(record_count=0, attributes=attributes & ~7), b""
        if attributes & 32:
            header, section = parse_header(marker(offset)), marker(offset)[HEADER_SIZE:]
        if damaged is not None and damaged[2] and section:
            changed = bytearray(section)
            changed[damaged[0] % len(section)] = damaged[1]
            section = bytes(changed)  # malformed records with a valid CRC
        data += seal(header, section)
        offset = header.last_offset + 1 + gap
    if damaged is not None and not damaged[2]:
        data[damaged[0] % len(data)] = damaged[1]
    data = data[: max(len(data) - cut, 0)]
    fetched = FetchedRecords(KEY, memoryview(data), position, offset, tuple((7, first) for first in sorted(aborted)))

    def deliver() -> list[object]:
        buffer, at, found = FetchBuffer(), position, list[object]()
        buffer.add(fetched)
        while not buffer.is_empty:
            try:
                taken, at = buffer.take(at)
            except CorruptBatch as error:
                found.append(str(error))
            else:
                found += (taken, at)
        return found

    both(deliver)
