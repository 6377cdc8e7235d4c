"""The rule for the last stable offset."""

import pytest

from kreplica.storage.log.last_stable_offset import last_stable_offset


@pytest.mark.parametrize(
    ("first_unstable", "high_watermark", "log_start_offset", "expected"),
    [
        (None, 10, 0, 10),
        (4, 10, 0, 4),
        (12, 10, 0, 10),
        (4, 10, 6, 6),
    ],
    ids=["no open transaction", "open", "above the high watermark", "its start is deleted"],
)
def test_last_stable_offset(
    first_unstable: int | None, high_watermark: int, log_start_offset: int, expected: int
) -> None:
    assert last_stable_offset(first_unstable, high_watermark, log_start_offset) == expected
