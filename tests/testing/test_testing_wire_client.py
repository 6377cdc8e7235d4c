"""The simulator's client rejects responses that are impossible."""

from __future__ import annotations

import pytest

from kreplica.errors import ErrorCode, KafkaError
from kreplica.testing.clients.isolation import visible_records
from kreplica.testing.clients.wire_client import records_of
from kreplica.wire.batch_building import build_batch
from kreplica.wire.records import Record


def answer(flipped_bit: int | None = None) -> dict[str, object]:
    """Return a response with one batch of one record at offset 0, at the end of the log."""
    batch = bytearray(build_batch([Record(0, 1, b"key", b"value", ())]))
    if flipped_bit is not None:
        batch[flipped_bit // 8] ^= 1 << flipped_bit % 8
    return {"error_code": 0, "high_watermark": 1, "records": bytes(batch), "aborted_transactions": None}


def test_a_valid_response_is_accepted() -> None:
    assert [record.value for record in records_of(answer(), 0)] == [b"value"]
    assert [record.value for record in visible_records(answer(), 0).records] == [b"value"]


@pytest.mark.parametrize("bit", [0, 7, 56, 300])
def test_a_flipped_offset_is_rejected(bit: int) -> None:
    """No checksum covers the offset, but records are never below the requested offset or above the high watermark."""
    with pytest.raises(KafkaError) as refused:
        records_of(answer(bit), 0)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    with pytest.raises(KafkaError):
        visible_records(answer(bit), 0)
