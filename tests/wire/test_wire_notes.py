"""Notes of produce interceptors: control batches that only their plugins understand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kreplica.errors import ProtocolError
from kreplica.storage.segments.append_validation import read_marker
from kreplica.wire.batch_building import build_batch, with_records
from kreplica.wire.batches import parse_header, verify_crc
from kreplica.wire.control_records import EndMarker, build_end_marker
from kreplica.wire.notes import NOTE, Note, Notes, build_notes, parse_notes
from kreplica.wire.records import Record, iter_records

NAMES = st.text(min_size=1, max_size=20)


ROWS = st.lists(st.tuples(NAMES, st.binary(max_size=50)), min_size=1, max_size=5)


@given(ROWS, st.none() | st.integers(0, 2**32 - 1))
def test_notes_are_read_as_they_were_written(rows, crc):
    """Any bytes of any plugin, with the batch that has to follow."""
    notes = [Note(*row) for row in rows]
    batch = build_notes(notes, crc, 1000)
    assert parse_notes(batch) == Notes(tuple(notes), crc)
    header = parse_header(batch)
    assert header.is_control
    assert header.record_count == len(notes)
    assert verify_crc(batch, header)


def test_they_count_only_before_their_batch():
    """Another batch, or none, makes them void; where nothing was left they count for themselves."""
    own, other = (parse_header(build_batch([Record(0, 1, None, value)])) for value in (b"own", b"other"))
    notes = parse_notes(build_notes([Note("p", b"")], own.crc, 1))
    assert notes is not None
    assert [notes.are_of(header) for header in (own, other, None)] == [True, False, False]
    alone = parse_notes(build_notes([Note("p", b"")], None, 1))
    assert alone is not None
    assert all(alone.are_of(header) for header in (own, None))


def test_they_are_no_markers_and_markers_no_notes():
    """Neither takes the other's control records for its own."""
    assert parse_notes(build_end_marker(EndMarker(True, 3), 7, 0, 1)) is None
    assert read_marker(build_notes([Note("p", b"")], None, 1)) is None
    assert NOTE > 100  # far from the numbers that Kafka gives


@pytest.mark.parametrize("cut", [0, 1, 5, 8])
def test_one_that_is_cut_short(cut):
    """Its bytes are named as the trouble."""
    (record,) = iter_records(build_notes([Note("p", b"data")], 1, 1))
    batch = build_batch([record._replace(value=record.value[:cut])], control=True)
    with pytest.raises(ProtocolError, match="a note is cut short"):
        parse_notes(batch)


@given(st.lists(st.sampled_from([None, b"", b"value"]), min_size=1, max_size=6), st.data())
def test_a_batch_with_fewer_records_keeps_its_header(values, data):
    """Offsets, producer and sequence stay, whatever is left out."""
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
def test_offsets_that_are_not_the_batchs(offsets):
    """They are refused before anything is made of them."""
    header = parse_header(build_batch([Record(0, 1, None, b"a"), Record(1, 1, None, b"b")]))
    with pytest.raises(ValueError, match="are not growing within 0 to 1"):
        with_records(header, [Record(offset, 1, None, b"x") for offset in offsets])
