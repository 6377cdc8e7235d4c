"""Converts decoded values to JSON values, within limits.

Integers stay exact. Bytes become ``{"$base64": "..."}``; NaN and infinities, decimals, dates, times and UUIDs become
text; keys of maps become text.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from math import isfinite
from typing import Any
from uuid import UUID

from kreplica.interfaces.formats import FormatError
from kreplica.runtime.offload import release_gil

DECODED_BYTES_MAX = 1 << 20
"""Maximum size of a decoded key or value; longer ones are shown as hexadecimal digits."""

DEPTH_MAX = 64
NODES_MAX = 200_000
"""Maximum number of values in a decoded key or value, which bounds its memory to about 30 MB."""

INTEGER_BITS_MAX = 1024

_NODES_PER_RELEASE = 2000
BYTES_MEMBER = "$base64"


def to_json(value: Any) -> Any:
    """Convert a value to a JSON value.

    :raise FormatError: the value is nested too deeply, has too many parts, or contains an object without a JSON form.
    """
    return _Converter().convert(value, 0)


class _Converter:
    """Converts one value and counts its parts."""

    def __init__(self) -> None:
        self._nodes = 0

    def convert(self, value: Any, depth: int) -> Any:
        self._nodes += 1
        if self._nodes > NODES_MAX:
            raise FormatError(f"more than {NODES_MAX:,} values")
        if depth > DEPTH_MAX:
            raise FormatError(f"nested more than {DEPTH_MAX} levels deep")
        if self._nodes % _NODES_PER_RELEASE == 0:
            release_gil()
        kind = type(value)
        if kind is str:
            return clean_text(value)
        if value is None or kind is bool:
            return value
        if kind is int:
            return _integer(value)
        if kind is float:
            return value if isfinite(value) else _float_name(value)
        if isinstance(value, Mapping):
            return {self._key(key): self.convert(each, depth + 1) for key, each in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [self.convert(each, depth + 1) for each in value]
        return self._other(value)

    def _key(self, key: Any) -> str:
        if isinstance(key, str):
            return clean_text(key)
        if isinstance(key, bytes | bytearray):
            return bytes(key).hex()
        if isinstance(key, bool | None):
            return json.dumps(key)
        if isinstance(key, int):
            return str(_integer(key))
        return json.dumps(self.convert(key, DEPTH_MAX - 8), ensure_ascii=False)

    @staticmethod
    def _other(value: Any) -> Any:
        if isinstance(value, bytes | bytearray | memoryview):
            return {BYTES_MEMBER: b64encode(value).decode("ascii")}
        if isinstance(value, datetime | date | time):
            return value.isoformat()
        if isinstance(value, Decimal | UUID):
            return str(value)
        if isinstance(value, timedelta):
            return value.total_seconds()
        raise FormatError(f"contains a value of type {type(value).__name__}, which has no JSON form")


def _integer(value: int) -> int:
    if value.bit_length() > INTEGER_BITS_MAX:
        raise FormatError(f"contains an integer of more than {INTEGER_BITS_MAX} bits")
    return value


def _float_name(value: float) -> str:
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def clean_text(text: str) -> str:
    """Return text without lone surrogates, which UTF-8 cannot represent; they become U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def bytes_of(value: Any) -> bytes | None:
    """Return the bytes of ``{"$base64": "..."}``; None if the value is anything else.

    :raise FormatError: the base64 is invalid.
    """
    if isinstance(value, dict) and len(value) == 1 and isinstance(value.get(BYTES_MEMBER), str):
        try:
            return b64decode(value[BYTES_MEMBER], validate=True)
        except ValueError as error:
            raise FormatError(f"{BYTES_MEMBER}: {error}") from None
    return None


def from_json(value: Any, convert_bytes: Callable[[bytes], Any] = bytes) -> Any:
    """Return a JSON value with its ``{"$base64": "..."}`` objects converted to bytes.

    :param convert_bytes: converts the bytes to the value that replaces the object.
    :raise FormatError: the base64 is invalid, or the value is nested too deeply.
    """
    return _from_json(value, convert_bytes, 0)


def _from_json(value: Any, convert_bytes: Callable[[bytes], Any], depth: int) -> Any:
    if depth > DEPTH_MAX:
        raise FormatError(f"nested more than {DEPTH_MAX} levels deep")
    if isinstance(value, list):
        return [_from_json(each, convert_bytes, depth + 1) for each in value]
    if isinstance(value, dict):
        data = bytes_of(value)
        if data is not None:
            return convert_bytes(data)
        return {key: _from_json(each, convert_bytes, depth + 1) for key, each in value.items()}
    return value
