"""Hexadecimal digits of any data."""

from __future__ import annotations

from typing import Any

from zope.interface import implementer

from kreplica.interfaces.formats import Decoded, FormatContext, FormatError, IRecordFormat, Place, RegisteredSchema

SHOWN_BYTES_MAX = 16 * 1024
"""Maximum number of bytes that are shown."""


@implementer(IRecordFormat)
class HexFormat:
    """Hexadecimal digits without separators; longer data is cut after ``SHOWN_BYTES_MAX`` bytes."""

    can_encode = True
    schema_type = None

    def __init__(self, context: FormatContext) -> None:
        pass

    def recognizes(self, data: bytes, place: Place) -> bool:
        return True

    def decode(self, data: bytes, place: Place) -> Decoded:
        return Decoded(data[:SHOWN_BYTES_MAX].hex())

    def encode(self, value: Any, schema: RegisteredSchema | None, message: str | None) -> bytes:
        if not isinstance(value, str):
            raise FormatError("expected a string of hexadecimal digits")
        try:
            return bytes.fromhex(value)
        except ValueError as error:
            raise FormatError(str(error)) from None
