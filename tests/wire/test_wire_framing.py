"""Frames are decoded from a byte stream, however it is segmented."""

from __future__ import annotations

import random
import time
from struct import pack

import pytest
from wire_values import random_message

from kreplica.errors import ProtocolError
from kreplica.wire.framing import FrameReader, frame, frame_pieces
from kreplica.wire.messages import APIS


def all_bodies() -> list[bytes]:
    """Return a body for every version of every request and response."""
    rng = random.Random(5)
    return [
        schema.build(version, random_message(schema, version, rng))
        for api in APIS.values()
        for schema in (api.request, api.response)
        for version in schema.versions
    ]


def test_frames_byte_by_byte() -> None:
    """Each frame is returned as soon as its last byte arrives."""
    reader = FrameReader()
    for body in all_bodies():
        data = frame(body)
        for index in range(len(data) - 1):
            assert list(reader.feed(data[index : index + 1])) == []
            assert reader.buffered_size == index + 1
        assert list(reader.feed(data[-1:])) == [body]
        assert reader.buffered_size == 0


def test_frames_in_pieces_of_any_size() -> None:
    """Pieces may be bytes, bytearrays or memoryviews; the frames are the same, in order."""
    bodies = all_bodies()
    stream = b"".join(map(frame, bodies))
    rng = random.Random(6)
    for largest in (3, 100, 5_000, len(stream)):
        reader, got, position = FrameReader(), [], 0
        while position < len(stream):
            size = rng.randint(1, largest)
            piece = rng.choice((bytes, bytearray, memoryview))(stream[position : position + size])
            got += reader.feed(piece)
            position += size
        assert got == bodies


def test_frame_within_one_piece_is_not_copied() -> None:
    """Such a frame is a view of the piece."""
    data = frame(b"one") + frame(b"") + frame(b"two") + b"\x00\x00"
    reader = FrameReader()
    views = list(reader.feed(data))
    assert views == [b"one", b"", b"two"]
    assert all(view.obj is data for view in views)
    assert reader.buffered_size == 2


def test_later_bytes_do_not_change_earlier_frames() -> None:
    reader = FrameReader()
    list(reader.feed(frame(b"first")[:6]))
    (first,) = reader.feed(frame(b"first")[6:] + frame(b"second")[:3])
    (second,) = reader.feed(frame(b"second")[3:])
    assert (first, second) == (b"first", b"second")


@pytest.mark.parametrize("length", [-1, -(1 << 31), 101, (1 << 31) - 1])
def test_invalid_lengths_are_refused_at_once(length: int) -> None:
    """A negative or oversized length is rejected as soon as its four bytes arrive."""
    reader = FrameReader(size_max=100)
    assert list(reader.feed(frame(bytes(100)))) == [bytes(100)]
    with pytest.raises(ProtocolError, match=f"^frame: length {length} is not between 0 and 100$"):
        list(reader.feed(pack(">i", length)))


def test_frames_before_an_invalid_length_are_returned() -> None:
    given = FrameReader(size_max=100).feed(frame(b"good") + pack(">i", 101))
    assert next(given) == b"good"
    with pytest.raises(ProtocolError):
        next(given)


def test_long_frame_is_copied_once() -> None:
    """Receiving 32 MiB in pieces of 16 KiB takes a fraction of a second, because pieces do not copy earlier ones."""
    data = frame(bytes(32 << 20))
    reader, got = FrameReader(), 0
    started = time.process_time()
    for position in range(0, len(data), 16384):
        got += sum(len(body) for body in reader.feed(data[position : position + 16384]))
    assert time.process_time() - started < 2
    assert got == 32 << 20


def test_length_prefix_includes_file_ranges() -> None:
    """A response with a file range is framed with the range's size."""

    class Range:
        size = 5_000

    file_range = Range()
    pieces = frame_pieces([b"head", file_range, b"mid", memoryview(bytes(10))])
    assert pieces[0] == pack(">i", 4 + 5_000 + 3 + 10) + b"head"
    assert pieces[1] is file_range
    assert pieces[2:] == [b"mid", bytes(10)]


@pytest.mark.parametrize("first", [4, 5, 1_000, 300_000])
def test_remainder_of_a_long_frame_is_received_in_place(first: int) -> None:
    """The buffer provided to the transport has exactly the missing size."""
    bodies = [bytes([number]) * 400_000 for number in range(3)]
    reader, got = FrameReader(), []
    for body in bodies:
        data = frame(body)
        assert reader.receive_buffer is None
        got += reader.feed(data[:first])
        position = first
        while position < len(data):
            room = reader.receive_buffer
            assert room is not None
            assert len(room) == len(data) - position
            assert reader.buffered_size == position
            size = min(len(room), 70_000)
            room[:size] = data[position : position + size]
            position += size
            frame_body = reader.received(size)
            got += [] if frame_body is None else [frame_body]
        assert reader.buffered_size == 0
    assert got == bodies


def test_no_buffer_is_provided_for_short_frames() -> None:
    """If only a few bytes are missing, they are passed to ``feed``."""
    reader = FrameReader()
    data = frame(bytes(400_000))
    assert list(reader.feed(data[:-1000])) == []
    assert reader.receive_buffer is None
    assert list(reader.feed(data[-1000:])) == [bytes(400_000)]
