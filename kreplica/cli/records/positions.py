"""From where on ``consume`` reads: what people type, and what offsets that is."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import click

from kreplica.blocking import Cluster, Isolation, TopicPartition
from kreplica.blocking.offsets import earliest_offsets, end_offsets, offsets_by_time
from kreplica.cli.terminal.parameter_types import ParameterType, Time
from kreplica.client_core.offsets import NO_OFFSET

_NUMBERS = re.compile(r"\d{1,9}(-\d{1,9})?(,\d{1,9}(-\d{1,9})?)*", re.ASCII)


class Start(NamedTuple):
    """Where to begin.

    :param kind: earliest, latest, offset, timestamp or last.
    :param value: the offset, milliseconds since 1970, or how many of each partition's last records.
    """

    kind: str
    value: int = 0


class StartType(ParameterType):
    """``earliest``, ``latest``, an offset, ``-N`` for each partition's last N, or a time; becomes a ``Start``."""

    name = "WHERE"

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


class NumbersType(ParameterType):
    """``0,2,4-7``; becomes a sorted list."""

    name = "0,2,4-7"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[int]:
        if isinstance(value, list):
            return value
        if not _NUMBERS.fullmatch(value):
            self.fail(f"{value!r}: partitions are expected, as in 0,2,4-7", param, ctx)
        found: set[int] = set()
        for part in value.split(","):
            first, _, last = part.partition("-")
            if int(last or first) - int(first) > 100_000:
                self.fail(f"{part!r}: too many", param, ctx)
            found.update(range(int(first), int(last or first) + 1))
        return sorted(found)


def chosen_partitions(topic: str, has: Sequence[int], wanted: Sequence[int] | None) -> list[TopicPartition]:
    """Some of a topic's partitions, or all.

    :raise click.UsageError: it has not all that are wanted.
    """
    missing = [number for number in wanted or () if number not in has]
    if missing:
        raise click.UsageError(f"{topic} has no partition {missing[0]}: it has {len(has)}, counted from 0")
    return [TopicPartition(topic, number) for number in (has if wanted is None else wanted)]


def start_offsets(
    cluster: Cluster, partitions: Sequence[TopicPartition], start: Start, isolation: Isolation
) -> dict[TopicPartition, int]:
    """The offsets that a start is; never before a log's start, nor behind its end."""
    earliest = earliest_offsets(cluster, partitions)
    ends = end_offsets(cluster, partitions, isolation)
    if start.kind == "earliest":
        return earliest
    if start.kind == "latest":
        return ends
    if start.kind == "timestamp":
        found = offsets_by_time(cluster, dict.fromkeys(partitions, start.value), isolation)
        wanted = {each: ends[each] if timed.offset == NO_OFFSET else timed.offset for each, timed in found.items()}
    elif start.kind == "last":
        wanted = {each: ends[each] - start.value for each in partitions}
    else:
        wanted = dict.fromkeys(partitions, start.value)
    return {each: min(max(offset, earliest[each]), max(ends[each], earliest[each])) for each, offset in wanted.items()}


def span(starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> int:
    """How many offsets lie between."""
    return sum(max(0, ends[each] - offset) for each, offset in starts.items())
