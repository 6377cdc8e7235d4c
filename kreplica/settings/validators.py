"""Validation rules for the values of settings, each with a description in words."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

Value = bool | int | float | str | tuple[str, ...] | None
"""A typed value; lists are tuples; None if the setting is not set and has no default."""


class Validator(Protocol):
    """A validation rule."""

    @property
    def allowed(self) -> str:
        """The rule in words that follow "expected"; empty if every value of the type is valid."""

    def accepts(self, value: Value) -> bool:
        """Return True if a value of the right type is valid."""


@dataclass(frozen=True, slots=True)
class _Anything:
    allowed: str = ""

    def accepts(self, value: Value) -> bool:
        return True


ANY = _Anything()
"""Accepts every value of the right type."""


@dataclass(frozen=True, slots=True)
class Range:
    """A number between two inclusive bounds; None means unbounded.

    :param special_value: a special value outside the range that Kafka accepts.
    """

    low: float | None = None
    high: float | None = None
    special_value: float | None = None

    @property
    def allowed(self) -> str:
        if self.high is None:
            text = f"at least {self.low}"
        elif self.low is None:
            text = f"at most {self.high}"
        else:
            text = f"{self.low} to {self.high}"
        return text if self.special_value is None else f"{text}, or {self.special_value}"

    def accepts(self, value: Value) -> bool:
        if not isinstance(value, int | float):
            return False
        inside = (self.low is None or value >= self.low) and (self.high is None or value <= self.high)
        return inside or value == self.special_value


def at_least(low: float) -> Range:
    """A number of at least ``low``."""
    return Range(low)


def between(low: float, high: float) -> Range:
    """A number from ``low`` to ``high``, both included."""
    return Range(low, high)


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of these words.

    :param ignore_case: True to ignore case.
    """

    choices: tuple[str, ...]
    ignore_case: bool = False

    @property
    def allowed(self) -> str:
        words = ", ".join(filter(None, self.choices))
        return f"one of {words}, or empty" if "" in self.choices else f"one of {words}"

    def accepts(self, value: Value) -> bool:
        return value in self.choices or (
            self.ignore_case and isinstance(value, str) and value.lower() in {choice.lower() for choice in self.choices}
        )


@dataclass(frozen=True, slots=True)
class EachOneOf:
    """A list of some of these words; may be empty."""

    choices: tuple[str, ...]

    @property
    def allowed(self) -> str:
        return f"a list that may contain {', '.join(self.choices)}"

    def accepts(self, value: Value) -> bool:
        return isinstance(value, tuple) and all(item in self.choices for item in value)


@dataclass(frozen=True, slots=True)
class ReleaseVersion:
    """A release of Apache Kafka in the format of ``inter.broker.protocol.version``: ``3.9``, ``2.8-IV1``, ``0.10.0.0``.

    Releases before 1.0 have three segments, later ones have two; as in Kafka, further segments are ignored.
    """

    allowed: str = "a release of Apache Kafka, 0.8.0 or later, such as 3.9, 2.8-IV1 or 0.10.2"

    def accepts(self, value: Value) -> bool:
        if not isinstance(value, str):
            return False
        release = ".".join(value.split(".")[: 3 if value.startswith("0.") else 2])
        return re.fullmatch(r"(0\.(8|9|10|11)\.\d+|[1-9]\d*\.\d+)(-IV\d+)?", release, re.ASCII) is not None


@dataclass(frozen=True, slots=True)
class ThrottledReplicas:
    """Throttled replicas: ``*`` for all, or a list of partition:broker."""

    allowed: str = "* or a list of partition:broker, such as 0:1,0:2"

    def accepts(self, value: Value) -> bool:
        if not isinstance(value, tuple):
            return False
        return value == ("*",) or all(re.fullmatch(r"\d+:\d+", item, re.ASCII) is not None for item in value)


@dataclass(frozen=True, slots=True)
class ConnectionOverrides:
    """Numbers of connections by address, as in ``max.connections.per.ip.overrides``."""

    allowed: str = "a list of ADDRESS:NUMBER, such as 10.0.0.1:100,host:200"

    def accepts(self, value: Value) -> bool:
        try:
            parse_connection_overrides(str(value))
        except ValueError:
            return False
        return True


def parse_connection_overrides(text: str) -> dict[str, int]:
    """Parse ``ADDRESS:NUMBER,ADDRESS:NUMBER``; IPv6 addresses may be in brackets.

    :return: numbers of connections by IP address or host name.
    :raise ValueError: the text is malformed.
    """
    overrides = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        address, colon, number = item.rpartition(":")
        name = address.strip().strip("[]")
        if not colon or re.fullmatch(r"[0-9A-Za-z._:%-]+", name, re.ASCII) is None:
            raise ValueError(f"{item!r} is not ADDRESS:NUMBER")
        if re.fullmatch(r"\d{1,10}", number.strip(), re.ASCII) is None or int(number) >= 2**31:
            raise ValueError(f"{item!r} does not end with a number of connections below 2147483648")
        overrides[name] = int(number)
    return overrides
