"""JSON without a schema."""

from __future__ import annotations

import json
import re
from math import isinf
from typing import Any

from zope.interface import implementer

from kreplica.formats.json_values import DEPTH_MAX, to_json
from kreplica.interfaces.formats import Decoded, FormatContext, FormatError, IRecordFormat, Place, RegisteredSchema

_SPACE = b" \t\r\n"
_FIRST_BYTES = b'{["-0123456789tfn'
_MAY_OVERFLOW = re.compile(rb"[eE][+-]?\d{3}|\d{300}")
_ERROR_LENGTH_MAX = 200


@implementer(IRecordFormat)
class JsonFormat:
    """Text in JSON (RFC 8259).

    Only objects and arrays are recognized automatically, so that keys such as ``42`` remain text.
    """

    can_encode = True
    schema_type = None

    def __init__(self, context: FormatContext) -> None:
        pass

    def recognizes(self, data: bytes, place: Place) -> bool:
        if not data.lstrip(_SPACE).startswith((b"{", b"[")):
            return False
        try:
            self.decode(data, place)
        except FormatError:
            return False
        return True

    def decode(self, data: bytes, place: Place) -> Decoded:
        return Decoded(parse_json(data))

    def encode(self, value: Any, schema: RegisteredSchema | None, message: str | None) -> bytes:
        return dump_json(value)


def parse_json(data: bytes) -> Any:
    """Parse JSON; numbers that Python cannot represent become text.

    :raise FormatError: it is not valid JSON, or nested too deeply.
    """
    stripped = data.lstrip(_SPACE)
    if not stripped or stripped[0] not in _FIRST_BYTES:
        raise FormatError("not valid JSON")
    more: dict[str, Any] = {"parse_float": _float} if _MAY_OVERFLOW.search(data) else {}
    try:
        value = json.loads(data.decode(), parse_constant=_reject_constant, **more)
    except RecursionError:
        raise FormatError(f"nested more than {DEPTH_MAX} levels deep") from None
    except UnicodeDecodeError:
        raise FormatError("not UTF-8") from None
    except ValueError as error:
        raise FormatError(f"not valid JSON: {str(error)[:_ERROR_LENGTH_MAX]}") from None
    # Only these documents can break a limit or contain lone surrogates.
    if data.count(b"[") + data.count(b"{") > DEPTH_MAX or b"\\u" in data or len(data) > 64 * 1024:
        return to_json(value)
    return value


def dump_json(value: Any) -> bytes:
    """Return compact JSON in UTF-8.

    :raise FormatError: the value is nested too deeply, or is not a JSON value.
    """
    try:
        return json.dumps(to_json(value), separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, TypeError) as error:
        raise FormatError(str(error)) from None


def _float(text: str) -> float | str:
    number = float(text)
    return text if isinf(number) else number


def _reject_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")
