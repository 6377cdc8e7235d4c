"""Start positions and partitions to read: parameter types, and conversion to offsets."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import click

from kreplica.blocking import Cluster, Isolation, TopicPartition
from kreplica.blocking.offsets import earliest_offsets, end_offsets, offsets_by_time
from kreplica.cli.terminal.parameter_types import ParameterType, Time, partition_numbers
from kreplica.client_core.offsets import NO_OFFSET


class Start(NamedTuple):
    """Start position of a read.

    :param kind: earliest, latest, offset, timestamp or last.
    :param value: the offset, the time in milliseconds since 1970, or the number of offsets to read at the end of each
        partition.
    """

    kind: str
    value: int = 0


class StartType(ParameterType):
    """``earliest``, ``latest``, an offset, ``-N`` (last N offsets of each partition) or a time; becomes a ``Start``."""

    name = "POSITION"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Start:
        if isinstance(value, Start):
            return value
        if value in ("earliest", "latest"):
            return Start(value)
        match = re.fullmatch(r"(offset:|timestamp:|-)?(\d{1,18})", value, re.ASCII)
        if match is not None:
            kinds = {None: "offset", "offset:": "offset", "timestamp:": "timestamp", "-": "last"}
            return Start(kinds[match[1]], int(match[2]))
        return Start("timestamp", Time().convert(value, param, ctx))


class PartitionsType(ParameterType):
    """``0,2,4-7``; converted to a sorted list."""

    name = "0,2,4-7"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[int]:
        if isinstance(value, list):
            return value
        found = partition_numbers(value)
        if found is None:
            self.fail(f"{value!r}: expected partitions such as 0,2,4-7", param, ctx)
        return sorted(set(found))


def select_partitions(topic: str, existing: Sequence[int], requested: Sequence[int] | None) -> list[TopicPartition]:
    """Return the requested partitions of a topic.

    :param existing: all partitions of the topic.
    :param requested: None for all.
    :raise click.UsageError: a requested partition does not exist.
    """
    missing = [number for number in requested or () if number not in existing]
    if missing:
        count = len(existing)
        raise click.UsageError(f"{topic} has no partition {missing[0]}: it has {count} partitions, numbered from 0")
    return [TopicPartition(topic, number) for number in (existing if requested is None else requested)]


def start_offsets(
    cluster: Cluster, partitions: Sequence[TopicPartition], start: Start, isolation: Isolation
) -> dict[TopicPartition, int]:
    """Convert a start position to offsets, limited to the range between log start and log end."""
    earliest = earliest_offsets(cluster, partitions)
    ends = end_offsets(cluster, partitions, isolation)
    if start.kind == "earliest":
        return earliest
    if start.kind == "latest":
        return ends
    if start.kind == "timestamp":
        found = offsets_by_time(cluster, dict.fromkeys(partitions, start.value), isolation)
        starts = {each: ends[each] if timed.offset == NO_OFFSET else timed.offset for each, timed in found.items()}
    elif start.kind == "last":
        starts = {each: ends[each] - start.value for each in partitions}
    else:
        starts = dict.fromkeys(partitions, start.value)
    return {each: min(max(offset, earliest[each]), max(ends[each], earliest[each])) for each, offset in starts.items()}
