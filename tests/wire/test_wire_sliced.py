"""Sliced parsers and builders do a bounded amount of work between two yields."""

from __future__ import annotations

from collections.abc import Generator
from struct import pack
from typing import Any

import pytest

from kreplica.errors import ProtocolError
from kreplica.wire.messages import METADATA, OFFSET_FETCH
from kreplica.wire.parsing import NUMBERS_PER_STEP
from kreplica.wire.primitives import STEP_COST, TAGS_MAX, PrebuiltElements, uvarint

NAMES = 50_000
NAME_COST = 7
"""Cost of a record with one string."""


def run_in_steps(work: Generator[None, None, Any]) -> tuple[int, Any]:
    """Run a sliced operation, and return the number of its yields and its result."""
    count = 0
    while True:
        try:
            next(work)
        except StopIteration as done:
            return count, done.value
        count += 1


def test_parsing_yields_in_proportion_to_the_elements() -> None:
    """Elements with a total cost of at most ``STEP_COST`` are parsed between two yields."""
    body = {"topics": [{"name": f"topic-{number}"} for number in range(NAMES)]}
    count, value = run_in_steps(METADATA.request.sliced_parser(0)(METADATA.request.build(0, body), 0))
    assert value == body
    assert count == pytest.approx(NAMES * NAME_COST / STEP_COST, rel=0.02)


def test_parsing_yields_within_long_arrays_of_numbers() -> None:
    numbers = list(range(NUMBERS_PER_STEP * 5 + 1))
    body = {"group_id": "g", "topics": [{"name": "t", "partition_indexes": numbers}]}
    count, value = run_in_steps(OFFSET_FETCH.request.sliced_parser(1)(OFFSET_FETCH.request.build(1, body), 0))
    assert value == body
    assert count == 6


def test_building_yields_in_proportion_to_the_elements() -> None:
    """The buffers built between two yields are small, and together they form the message."""
    rows = [{"name": "t", "partitions": [partition_row(number) for number in range(20_000)]}]
    body = {"group_id": "g", "topics": rows, "error_code": 0}
    count, pieces = run_in_steps(OFFSET_FETCH.response.sliced_builder(5)(body, b""))
    assert b"".join(pieces) == OFFSET_FETCH.response.build(5, body)
    assert count > 100
    assert max(map(len, pieces)) < 10_000


def partition_row(index: int) -> dict[str, Any]:
    return {"partition_index": index, "committed_offset": 1, "committed_leader_epoch": 2, "metadata": "m",
            "error_code": 0}  # fmt: skip


def test_encoded_elements_are_not_joined() -> None:
    """The bytes of prebuilt elements remain separate buffers."""
    build = METADATA.response.element(1, "topics")
    topics = [build({"error_code": 0, "name": f"t{number}", "partitions": []}) for number in range(100)]
    body = {"brokers": [], "controller_id": 1, "topics": PrebuiltElements(len(topics), topics)}
    _, pieces = run_in_steps(METADATA.response.sliced_builder(1)(body, b"head"))
    assert b"".join(pieces) == b"head" + METADATA.response.build(1, body)
    assert len(pieces) > 100


def test_malformed_message() -> None:
    """The sliced parser's error names the field, like the plain parser's."""
    data = pack(">i", 3) + b"\x00\x01a" * 2 + b"\x00\x09"
    with pytest.raises(ProtocolError, match=r"MetadataRequest.topics\[2\].name"):
        run_in_steps(METADATA.request.sliced_parser(0)(data, 0))


def test_tags_of_a_section_are_bounded() -> None:
    """The tags of one section, which are read in one step, are limited."""
    tags = b"".join(uvarint(tag) + b"\x00" for tag in range(TAGS_MAX + 1))
    data = b"\x01\x00\x00\x00" + uvarint(TAGS_MAX + 1) + tags
    with pytest.raises(ProtocolError, match="tags"):
        METADATA.request.parse(9, data)
    with pytest.raises(ProtocolError, match="tags"):
        run_in_steps(METADATA.request.sliced_parser(9)(data, 0))
