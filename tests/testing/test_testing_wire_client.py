"""The simulator's client rejects impossible responses."""

from __future__ import annotations

import pytest

from kreplica.errors import ErrorCode, KafkaError
from kreplica.testing.clients.fetched_records import records_of, visible_records
from kreplica.wire.batch_building import BatchBuilder, build_batch
from kreplica.wire.batches import stamp
from kreplica.wire.control_records import EndMarker, build_end_marker
from kreplica.wire.records import Record


def response(flipped_bit: int | None = None) -> dict[str, object]:
    """Return a response with one batch of one record at offset 0, at the end of the log."""
    batch = bytearray(build_batch([Record(0, 1, b"key", b"value", ())]))
    if flipped_bit is not None:
        batch[flipped_bit // 8] ^= 1 << flipped_bit % 8
    return {"error_code": 0, "high_watermark": 1, "records": bytes(batch), "aborted_transactions": None}


def test_a_valid_response_is_accepted() -> None:
    assert [record.value for record in records_of(response(), 0)] == [b"value"]
    assert [record.value for record in visible_records(response(), 0).records] == [b"value"]


@pytest.mark.parametrize("bit", [0, 7, 56, 300])
def test_a_flipped_offset_is_rejected(bit: int) -> None:
    """No checksum covers the offset, but it must be neither below the requested offset nor above the high watermark."""
    with pytest.raises(KafkaError) as refused:
        records_of(response(bit), 0)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    with pytest.raises(KafkaError):
        visible_records(response(bit), 0)


class TestVisibleRecords:
    """A log with two producers: 1 aborts offset 0, then commits offset 3; 2 commits offset 1."""

    def log(self) -> bytes:
        batches = [
            self.batch(1, b"aborted"),
            self.batch(2, b"two"),
            build_end_marker(EndMarker(False, 0), 1, 0, 0),
            self.batch(1, b"three"),
            build_end_marker(EndMarker(True, 0), 1, 0, 0),
        ]
        stamped = []
        for offset, batch in enumerate(map(bytearray, batches)):
            stamp(batch, offset, 0)
            stamped.append(bytes(batch))
        return b"".join(stamped)

    def batch(self, producer_id: int, value: bytes) -> bytes:
        builder = BatchBuilder(producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)
        builder.append(0, None, value)
        return bytes(builder.build())

    def test_aborted_records_and_markers_are_skipped(self) -> None:
        """A committed transaction after an aborted one is visible, and the position is after all of them."""
        aborted = [{"producer_id": 1, "first_offset": 0}]
        row = {"error_code": 0, "high_watermark": 5, "records": self.log(), "aborted_transactions": aborted}
        records, position = visible_records(row, 0)
        assert [(record.offset, record.value) for record in records] == [(1, b"two"), (3, b"three")]
        assert position == 5

    def test_read_uncommitted_returns_all_records(self) -> None:
        """read_uncommitted returns all records except markers."""
        row = {"error_code": 0, "high_watermark": 5, "records": self.log(), "aborted_transactions": None}
        assert [record.offset for record in visible_records(row, 0).records] == [0, 1, 3]

    def test_errors_are_raised(self) -> None:
        """A broker's error, and damaged records, raise an exception."""
        with pytest.raises(KafkaError, match="NOT_LEADER"):
            visible_records({"error_code": 6, "records": None}, 0)
        damaged = bytearray(self.log())
        damaged[-1] ^= 1
        with pytest.raises(KafkaError, match="CORRUPT_MESSAGE"):
            visible_records({"error_code": 0, "high_watermark": 5, "records": bytes(damaged)}, 0)
