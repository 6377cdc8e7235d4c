"""Notes of produce interceptors: control batches that store data of plugins."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kreplica.errors import ProtocolError
from kreplica.storage.segments.batch_validation import read_marker
from kreplica.wire.batch_building import build_batch, with_records
from kreplica.wire.batches import parse_header, verify_crc
from kreplica.wire.control_records import EndMarker, build_end_marker
from kreplica.wire.interceptor_notes import NOTE, Note, Notes, build_notes, parse_notes
from kreplica.wire.records import Record, iter_records

NAMES = st.text(min_size=1, max_size=20)


ROWS = st.lists(st.tuples(NAMES, st.binary(max_size=50)), min_size=1, max_size=5)


@given(ROWS, st.none() | st.integers(0, 2**32 - 1))
def test_notes_round_trip(rows, crc):
    """Notes contain any bytes of a plugin, and the CRC of the batch that must follow."""
    notes = [Note(*row) for row in rows]
    batch = build_notes(notes, crc, 1000)
    assert parse_notes(batch) == Notes(tuple(notes), crc)
    header = parse_header(batch)
    assert header.is_control
    assert header.record_count == len(notes)
    assert verify_crc(batch, header)


def test_notes_apply_to_the_next_batch_only():
    """Notes with a CRC apply only if that batch follows them; notes without a CRC always apply."""
    own, other = (parse_header(build_batch([Record(0, 1, None, value)])) for value in (b"own", b"other"))
    notes = parse_notes(build_notes([Note("p", b"")], own.crc, 1))
    assert notes is not None
    assert [notes.apply_to(header) for header in (own, other, None)] == [True, False, False]
    standalone = parse_notes(build_notes([Note("p", b"")], None, 1))
    assert standalone is not None
    assert all(standalone.apply_to(header) for header in (own, None))


def test_notes_and_markers_are_distinct():
    """The parser of notes does not accept markers, and the parser of markers does not accept notes."""
    assert parse_notes(build_end_marker(EndMarker(True, 3), 7, 0, 1)) is None
    assert read_marker(build_notes([Note("p", b"")], None, 1)) is None
    assert NOTE > 100  # far from the numbers that Kafka assigns


@pytest.mark.parametrize("cut", [0, 1, 5, 8])
def test_truncated_notes(cut):
    """Truncated notes raise ``ProtocolError``."""
    (record,) = iter_records(build_notes([Note("p", b"data")], 1, 1))
    batch = build_batch([record._replace(value=record.value[:cut])], control=True)
    with pytest.raises(ProtocolError, match="a note is truncated"):
        parse_notes(batch)


@given(st.lists(st.sampled_from([None, b"", b"value"]), min_size=1, max_size=6), st.data())
def test_batch_with_fewer_records_keeps_its_header(values, data):
    """Whichever records are removed, the header keeps its offsets, producer and sequence."""
    records = [Record(i, 1000 + i, b"k", value) for i, value in enumerate(values)]
    batch = build_batch(records, producer_id=9, producer_epoch=1, base_sequence=4)
    left = data.draw(st.lists(st.sampled_from(records), unique=True).map(sorted))
    changed = with_records(parse_header(batch), left)
    before, after = parse_header(batch), parse_header(changed)
    assert list(iter_records(changed)) == left
    assert verify_crc(changed, after)
    for name in ("base_offset", "last_offset_delta", "producer_id", "producer_epoch", "base_sequence"):
        assert getattr(before, name) == getattr(after, name)


@pytest.mark.parametrize("offsets", [[1, 0], [0, 0], [2], [-1]])
def test_offsets_outside_of_the_batch_are_refused(offsets):
    header = parse_header(build_batch([Record(0, 1, None, b"a"), Record(1, 1, None, b"b")]))
    with pytest.raises(ValueError, match="do not increase from 0 to 1"):
        with_records(header, [Record(offset, 1, None, b"x") for offset in offsets])
