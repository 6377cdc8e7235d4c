"""Offset commits for partitions that the broker does not know."""

from __future__ import annotations

import pytest

from kreplica.errors import ErrorCode
from kreplica.server.handlers.groups.offset_rows import OffsetRows


class View:
    """A view of the cluster that knows one topic with two partitions."""

    def __init__(self, *, is_complete: bool) -> None:
        self.is_complete = is_complete

    def partition_count(self, topic: str) -> int | None:
        return 2 if topic == "t" else None


def codes(view: View, topic: str, *partitions: int) -> list[int]:
    rows = [{"partition_index": each, "committed_offset": 1, "committed_metadata": ""} for each in partitions]
    offsets = OffsetRows(view, 4096, 0, 0)  # type: ignore[arg-type]
    for _ in offsets.read([{"name": topic, "partitions": rows}]):
        pass
    return [row["error_code"] for row in offsets.topics[0]["partitions"]]


def test_unknown_partitions() -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes(View(is_complete=True), "t", 0, 1, 2, -1) == [0, 0, unknown, unknown]
    assert codes(View(is_complete=True), "u", 0) == [unknown]


@pytest.mark.parametrize("topic", ["t", "u"])
def test_before_the_metadata_arrives(topic: str) -> None:
    """A restarted coordinator does not reject offsets of a topic that it does not know yet."""
    assert codes(View(is_complete=False), topic, 0, 1) == [0, 0]
