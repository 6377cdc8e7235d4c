"""Printable text in UTF-8."""

from __future__ import annotations

import re
from typing import Any

from zope.interface import implementer

from kreplica.interfaces.formats import Decoded, FormatContext, FormatError, IRecordFormat, Place, RegisteredSchema

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
"""Control characters other than tab, line feed and carriage return."""


@implementer(IRecordFormat)
class TextFormat:
    """Text without control characters, so that binary data is never shown as text."""

    can_encode = True
    schema_type = None

    def __init__(self, context: FormatContext) -> None:
        pass

    def recognizes(self, data: bytes, place: Place) -> bool:
        try:
            return _CONTROL.search(data.decode()) is None
        except UnicodeDecodeError:
            return False

    def decode(self, data: bytes, place: Place) -> Decoded:
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise FormatError(f"not UTF-8: byte {data[error.start]:#04x} at position {error.start}") from None
        control = _CONTROL.search(text)
        if control is not None:
            raise FormatError(f"not text: control character {ord(control[0]):#04x} at position {control.start()}")
        return Decoded(text)

    def encode(self, value: Any, schema: RegisteredSchema | None, message: str | None) -> bytes:
        if not isinstance(value, str):
            raise FormatError("expected a string")
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise FormatError(f"not valid text: {error.reason}") from None
