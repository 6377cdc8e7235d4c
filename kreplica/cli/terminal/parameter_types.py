"""Click parameter types: times, durations, sizes, settings, partitions, replicas."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    ParameterType = click.ParamType[Any]
else:
    ParameterType = click.ParamType  # not generic in older versions of click

_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+)s)?(?:(\d+)ms)?")
_UNITS_MS = (86_400_000, 3_600_000, 60_000, 1000, 1)
_ISO_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([KMGT]?)(i?)(?:B(?:/s)?)?", re.IGNORECASE)


class Duration(ParameterType):
    """A duration: ``90s``, ``2h30m``, ``1d`` or, in ISO 8601, ``PT2H30M``; converted to milliseconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        match = _ISO_DURATION.fullmatch(value.upper()) or _DURATION.fullmatch(value.lower())
        if match is None or not any(match.groups()):
            self.fail(f"{value!r}: expected a duration such as 90s, 2h30m, 1d or PT2H30M", param, ctx)
        return sum(int(count or 0) * unit for count, unit in zip(match.groups(), _UNITS_MS, strict=False))


class Time(ParameterType):
    """A date with optional time of day and time zone (default: UTC, in which all times are printed), or milliseconds
    since 1970; converted to milliseconds since 1970.
    """

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        if value.isascii() and value.isdigit() and len(value) > 8:
            return int(value)
        try:
            time = datetime.fromisoformat(value.removesuffix(" UTC"))
            return round((time if time.tzinfo is not None else time.replace(tzinfo=UTC)).timestamp() * 1000)
        except (ValueError, OverflowError):
            self.fail(
                f"{value!r}: expected a time such as 2027-01-31T08:30:00 or 2027-01-31T08:30:00+01:00, or milliseconds "
                "since 1970",
                param,
                ctx,
            )


class Size(ParameterType):
    """Bytes: ``1048576``, ``10MB`` (powers of 1000) or ``10MiB`` (powers of 1024)."""

    name = "bytes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        match = _SIZE.fullmatch(value)
        if match is None:
            self.fail(f"{value!r}: expected a number of bytes such as 1048576, 10MB or 10MiB", param, ctx)
        number, unit, binary = match.groups()
        power = " KMGT".index(unit.upper() or " ")
        return int(float(number) * (1024 if binary else 1000) ** power)


class Setting(ParameterType):
    """``NAME=VALUE``; converted to a pair."""

    name = "NAME=VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        name, equals, text = value.partition("=")
        if not equals or not name:
            self.fail(f"{value!r}: expected NAME=VALUE, for example retention.ms=86400000", param, ctx)
        return name, text


class KafkaSetting(Setting):
    """A setting of a topic or broker: ``NAME=VALUE``, where the value may have a unit.

    Durations (``2d``) are converted for names that end in ``.ms``, sizes (``1GiB``) for those that end in ``.bytes``.
    Other values are left to the broker, which rejects invalid ones.
    """

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        name, text = super().convert(value, param, ctx)
        unit = Duration() if name.endswith(".ms") else Size() if name.endswith(".bytes") else None
        if unit is not None and text[-1:].isalpha():
            return name, str(unit.convert(text, param, ctx))
        return name, text


class Partition(ParameterType):
    """``TOPIC:PARTITION``; converted to a pair."""

    name = "TOPIC:PARTITION"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        if isinstance(value, tuple):
            return value
        topic, colon, number = value.rpartition(":")
        if not colon or not topic or not (number.isascii() and number.isdigit()):
            self.fail(f"{value!r}: expected TOPIC:PARTITION, for example orders:0", param, ctx)
        return topic, int(number)


class Partitions(ParameterType):
    """``TOPIC`` or ``TOPIC:0,1,4-7``; converted to the topic and a list of partitions, which is None for all."""

    name = "TOPIC[:PARTITIONS]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, list[int] | None]:
        if isinstance(value, tuple):
            return value
        topic, colon, numbers = value.partition(":")
        found = partition_numbers(numbers) if colon else []
        if not topic or found is None:
            self.fail(f"{value!r}: expected TOPIC or TOPIC:PARTITIONS, for example orders:0,1,4-7", param, ctx)
        return topic, found if colon else None


class Assignment(ParameterType):
    """``PARTITION=BROKER,BROKER,...``, preferred leader first; converted to a pair."""

    name = "PARTITION=BROKERS"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, list[int]]:
        if isinstance(value, tuple):
            return value
        match = re.fullmatch(r"(\d{1,9})=(\d+(?:,\d+)*)", value, re.ASCII)
        if match is None:
            self.fail(f"{value!r}: expected PARTITION=BROKERS, for example 0=1,2,3", param, ctx)
        return int(match[1]), [int(broker) for broker in match[2].split(",")]


class Replicas(ParameterType):
    """``TOPIC:PARTITION=BROKER,BROKER,...``, preferred leader first; converted to a triple."""

    name = "TOPIC:PARTITION=BROKERS"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int, list[int]]:
        if isinstance(value, tuple):
            return value
        match = re.fullmatch(r"([^:=]+):(\d+)=(\d+(?:,\d+)*)", value, re.ASCII)
        if match is None:
            self.fail(f"{value!r}: expected TOPIC:PARTITION=BROKERS, for example orders:0=1,2,3", param, ctx)
        return match[1], int(match[2]), [int(broker) for broker in match[3].split(",")]


def partitions_by_topic(arguments: tuple[tuple[str, list[int] | None], ...]) -> dict[str, list[int] | None]:
    """Merge several ``Partitions`` arguments; None for a topic means all of its partitions."""
    merged: dict[str, list[int] | None] = {}
    for topic, numbers in arguments:
        numbers_so_far = merged.get(topic, [])
        merged[topic] = None if numbers is None or numbers_so_far is None else sorted({*numbers_so_far, *numbers})
    return merged


def partition_numbers(text: str) -> list[int] | None:
    """Parse numbers and ranges such as ``0,1,4-7``; return None if the text is malformed or a range is too large."""
    numbers: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", part, re.ASCII)
        if match is None:
            return None
        first, last = int(match[1]), int(match[2] or match[1])
        if not first <= last < first + 100_000:
            return None
        numbers += range(first, last + 1)
    return numbers
