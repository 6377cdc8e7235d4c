"""Defines ``Setting``: name, type, default, valid values and update mode of one setting."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import Enum, IntEnum

from kreplica.settings.validators import ANY, EachOneOf, OneOf, Validator, Value


class Type(IntEnum):
    """Types of settings, with their codes in DescribeConfigs (KIP-569)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Source(IntEnum):
    """Sources of values, with their codes in DescribeConfigs (KIP-226); those of topics and brokers in order of
    precedence."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_CLIENT_METRICS_CONFIG = 7


class Importance(Enum):
    """Importance of a setting to an operator."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Update(Enum):
    """How a broker setting can change while the broker runs (KIP-226)."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


_BITS = {Type.SHORT: 16, Type.INT: 32, Type.LONG: 64}
_UNITS = {
    "ms": "ms", "bytes": "bytes", "hours": "hours", "minutes": "minutes", "seconds": "seconds", "secs": "seconds",
    "percentage": "percent", "second": "bytes per second", "bytes.max": "bytes", "throttled.rate": "bytes per second",
    "request.rate.min": "bytes per second", "buffer.size": "bytes",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a broker or of a topic.

    :param name: Kafka's name, or a name with the prefix ``kreplica.``.
    :param default: Kafka's typed default; None if it has no default.
    :param valid: validation rule in addition to the type.
    :param update: whether and for which brokers it can change at run time.
    :param documentation: one sentence; may be empty for a setting that is ignored.
    :param actual_behavior: if the setting is ignored, how the broker behaves instead; None for all other settings.
    :param unprotected_values: for a setting of a security feature that is not implemented, the values that do not
        require the feature; with any other value, the broker does not start.  None for all other settings.
    :param listed: True if DescribeConfigs lists it even if it is not set.
    :param synonyms: for a topic setting, the broker settings that provide its default; the first that is set applies.
    """

    name: str
    type: Type
    default: Value
    valid: Validator = ANY
    importance: Importance = Importance.MEDIUM
    update: Update = Update.READ_ONLY
    documentation: str = ""
    actual_behavior: str | None = None
    listed: bool = True
    synonyms: tuple[str, ...] = ()
    unprotected_values: tuple[Value, ...] | None = None

    @property
    def implemented(self) -> bool:
        """False if the setting is ignored: accepted with a warning, or rejected if it requires protection."""
        return self.actual_behavior is None

    def requires_protection(self, value: Value) -> bool:
        """True if the value requires a protection that kreplica does not implement."""
        return self.unprotected_values is not None and value not in self.unprotected_values

    @property
    def sensitive(self) -> bool:
        """True if the value is a secret, which is never shown."""
        return self.type is Type.PASSWORD

    @property
    def unit(self) -> str:
        """The unit of the value; empty if it has none."""
        return next((unit for suffix, unit in _UNITS.items() if self.name.endswith(f".{suffix}")), "")

    @property
    def expected(self) -> str:
        """The valid values in words, for error messages and the reference page."""
        if self.type is Type.BOOLEAN:
            return "true or false"
        if self.type is Type.DOUBLE:
            return ", ".join(filter(None, ("a number", self.valid.allowed)))
        if self.type in _BITS:
            low, high = self._bounds()
            return f"a whole number, {self.valid.allowed or f'{low} to {high}'}"
        return self.valid.allowed or ("a list separated by commas" if self.type is Type.LIST else "text")

    @property
    def choices(self) -> tuple[str, ...] | None:
        """The valid values if they are a fixed set; for a list, the valid values of its items."""
        return self.valid.choices if isinstance(self.valid, OneOf | EachOneOf) else None

    def describe(self) -> str:
        """Return the documentation; for an ignored setting, with its actual behaviour."""
        if self.actual_behavior is None:
            return self.documentation
        return f"{self.documentation} No effect: {self.actual_behavior}.".strip()

    def parse(self, text: str) -> Value:
        """Parse a value; surrounding white space is ignored.

        :raise ValueError: the text has the wrong type or is out of range; the message describes valid values.
        """
        try:
            value = self._convert(text.strip())
        except ValueError:
            value = None
        if value is None or not self.valid.accepts(value):
            shown = "the hidden value" if self.sensitive else repr(text)
            raise ValueError(f"{self.name}: {shown} is not allowed; expected {self.expected}")
        return value

    def _convert(self, text: str) -> Value:
        if self.type is Type.BOOLEAN:
            return {"true": True, "false": False}.get(text.lower())
        if self.type in _BITS:
            low, high = self._bounds()
            # int() also accepts "1_000" and non-ASCII digits, which Kafka does not.
            number = int(text) if re.fullmatch(r"[+-]?[0-9]{1,19}", text) else None
            return number if number is not None and low <= number <= high else None
        if self.type is Type.DOUBLE:
            ratio = float(text) if text.isascii() and "_" not in text else math.nan
            return None if math.isnan(ratio) else ratio
        if self.type is Type.LIST:
            return tuple(re.split(r"\s*,\s*", text)) if text else ()
        return text

    def _bounds(self) -> tuple[int, int]:
        half = 2 ** (_BITS[self.type] - 1)
        return -half, half - 1


def format_value(value: Value) -> str | None:
    """Format a typed value like Kafka's tools; return None for None."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return _format_double(value) if isinstance(value, float) else str(value)


def _format_double(value: float) -> str:
    """Format a double as Java does: ``0.5``, ``1.0E7``, ``1.7976931348623157E308``."""
    if value == 0 or not math.isfinite(value) or 1e-3 <= abs(value) < 1e7:
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, repr(value))
    digits = 16  # the fewest digits that parse to the same number, like repr()
    for digits in range(17):
        if float(f"{value:.{digits}e}") == value:
            break
    mantissa, exponent = f"{value:.{digits}e}".split("e")
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}"
