"""CBOR (RFC 8949)."""

from __future__ import annotations

from functools import partial
from io import BytesIO
from typing import Any

from zope.interface import implementer

from kreplica.formats.json_values import DEPTH_MAX, from_json, to_json
from kreplica.interfaces.formats import Decoded, FormatContext, FormatError, IRecordFormat, Place, RegisteredSchema

_SELF_DESCRIBED = b"\xd9\xd9\xf7"
"""Tag 55799, which marks self-described CBOR."""


def _tagged(tag: int, value: Any, immutable: bool) -> Any:
    return {"$tag": tag, "value": value}


_AS_TAGS = {
    tag: partial(_tagged, tag) for tag in (4, 5, 25, 28, 29, 30, 35, 36, 100, 256, 258, 260, 261, 1004, 43000)
}
"""Tags that the library would otherwise convert; some produce regular expressions, large numbers or cyclic values."""


@implementer(IRecordFormat)
class CborFormat:
    """CBOR; tags other than times, big integers and UUIDs become ``{"$tag": NUMBER, "value": ...}``."""

    can_encode = True
    schema_type = None

    def __init__(self, context: FormatContext) -> None:
        pass

    def recognizes(self, data: bytes, place: Place) -> bool:
        return data.startswith(_SELF_DESCRIBED)

    def decode(self, data: bytes, place: Place) -> Decoded:
        import cbor2

        file = BytesIO(data)
        try:
            decoder = cbor2.CBORDecoder(file, tag_hook=_unknown, max_depth=DEPTH_MAX, semantic_decoders=_AS_TAGS)
            value = decoder.decode()
        except Exception as error:  # the library raises errors of many types for malformed data
            raise FormatError(f"not valid CBOR: {str(error) or type(error).__name__}") from None
        remaining = len(data) - file.tell()
        if remaining:
            raise FormatError(f"not valid CBOR: {remaining} bytes follow the value")
        return Decoded(to_json(value))

    def encode(self, value: Any, schema: RegisteredSchema | None, message: str | None) -> bytes:
        import cbor2

        try:
            return cbor2.dumps(from_json(value))
        except (ValueError, TypeError, OverflowError) as error:
            raise FormatError(f"cannot be written as CBOR: {error}") from None


def _unknown(tag: Any, immutable: bool) -> Any:
    return _tagged(tag.tag, tag.value, immutable)
