"""Start and end positions of reads, in the formats of Spark's Kafka source and its checkpoints.

Offsets are written as JSON, ``{"orders": {"0": 23, "1": -1}}``; -2 is the earliest offset, -1 the latest.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeAlias

from kreplica.client_core.offsets import EARLIEST, LATEST
from kreplica.model import TopicPartition

Offsets: TypeAlias = Mapping[TopicPartition, int]
INT64_END = 1 << 63


class NoMatch(Enum):
    """Behaviour of ``startingOffsetsByTimestamp`` if no record has that timestamp or a later one."""

    ERROR = "error"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class CommonOffset:
    """The same offset in every partition: ``EARLIEST`` or ``LATEST``."""

    offset: int


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """An offset, ``EARLIEST`` or ``LATEST`` for exactly the partitions that are read."""

    offsets: Offsets


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record with that timestamp or a later one.

    :param times_ms: milliseconds since 1970, by partition.
    :param common_ms: milliseconds since 1970, for all partitions; None to use ``times_ms``.
    """

    times_ms: Offsets = field(default_factory=dict)
    common_ms: int | None = None
    no_match: NoMatch = NoMatch.ERROR


Position: TypeAlias = CommonOffset | PartitionOffsets | AtTime


def parse_position(text: str, option: str) -> CommonOffset | PartitionOffsets:
    """Parse ``startingOffsets`` or ``endingOffsets``.

    :raise ValueError: the text is malformed; the message names the option.
    """
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return CommonOffset(EARLIEST if word == "earliest" else LATEST)
    return PartitionOffsets(parse_numbers(text, option, lowest=EARLIEST))


def parse_numbers(text: str, option: str, *, lowest: int = 0) -> Offsets:
    """Parse ``{"topic": {"0": number}}``.

    :raise ValueError: the text is malformed; the message contains the option and the location.
    """
    location = f"option {option!r}"
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ValueError(
            f'{location}: expected "earliest", "latest" or {{"topicA": {{"0": 23, "1": -1}}}}, not {text!r}'
        ) from error
    numbers = {}
    for topic, partitions in _pairs(found, location):
        for name, number in _pairs(partitions, f"{location}, topic {topic!r}"):
            if not name.isdecimal():
                raise ValueError(f"{location}, topic {topic!r}: {name!r} is not a partition")
            if not isinstance(number, int) or isinstance(number, bool) or not lowest <= number < INT64_END:
                raise ValueError(
                    f"{location}, topic {topic!r}, partition {name}: {number!r} is not an integer of at least {lowest}"
                )
            numbers[TopicPartition(topic, int(name))] = number
    return numbers


def parse_partitions(text: str, option: str) -> frozenset[TopicPartition]:
    """Parse ``{"topic": [0, 1]}``.

    :raise ValueError: the text is malformed; the message contains the option and the location.
    """
    location = f"option {option!r}"
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ValueError(f'{location}: expected {{"topicA": [0, 1]}}, not {text!r}') from error
    chosen: set[TopicPartition] = set()
    for topic, partitions in _pairs(found, location):
        if not isinstance(partitions, list) or not all(type(each) is int and each >= 0 for each in partitions):
            raise ValueError(f"{location}, topic {topic!r}: expected a list of partitions, not {partitions!r}")
        chosen.update(TopicPartition(topic, each) for each in partitions)
    return frozenset(chosen)


def _pairs(found: Any, location: str) -> list[tuple[str, Any]]:
    if not isinstance(found, dict):
        raise ValueError(f"{location}: expected an object, not {found!r}")
    return list(found.items())


def as_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Convert offsets to the JSON structure of checkpoints."""
    rows: dict[str, dict[str, int]] = {}
    for topic, partition in sorted(offsets):
        rows.setdefault(topic, {})[str(partition)] = offsets[TopicPartition(topic, partition)]
    return rows


def from_json(rows: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """Parse offsets written by ``as_json`` or by Spark's Kafka source."""
    return {
        TopicPartition(topic, int(name)): int(offset)
        for topic, partitions in rows.items()
        for name, offset in partitions.items()
    }
