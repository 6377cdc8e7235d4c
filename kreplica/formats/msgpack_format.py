"""MessagePack."""

from __future__ import annotations

from typing import Any

from zope.interface import implementer

from kreplica.formats.json_values import DECODED_BYTES_MAX, NODES_MAX, from_json, to_json
from kreplica.interfaces.formats import Decoded, FormatContext, FormatError, IRecordFormat, Place, RegisteredSchema

_TIMESTAMP_AS_DATETIME = 3


@implementer(IRecordFormat)
class MsgpackFormat:
    """MessagePack; extension types become ``{"$extension": TYPE, "data": {"$base64": "..."}}``."""

    can_encode = True
    schema_type = None

    def __init__(self, context: FormatContext) -> None:
        pass

    def recognizes(self, data: bytes, place: Place) -> bool:
        return False  # almost any data is valid MessagePack

    def decode(self, data: bytes, place: Place) -> Decoded:
        import msgpack

        try:
            value = msgpack.unpackb(
                data,
                timestamp=_TIMESTAMP_AS_DATETIME,
                strict_map_key=False,
                ext_hook=_extension,
                max_str_len=DECODED_BYTES_MAX,
                max_bin_len=DECODED_BYTES_MAX,
                max_array_len=NODES_MAX,
                max_map_len=NODES_MAX,
                max_ext_len=DECODED_BYTES_MAX,
            )
        except (ValueError, TypeError, OverflowError, msgpack.UnpackException) as error:
            raise FormatError(f"not valid MessagePack: {str(error) or type(error).__name__}") from None
        return Decoded(to_json(value))

    def encode(self, value: Any, schema: RegisteredSchema | None, message: str | None) -> bytes:
        import msgpack

        try:
            packed: bytes = msgpack.packb(from_json(value))
        except (ValueError, TypeError, OverflowError) as error:
            raise FormatError(f"cannot be written as MessagePack: {error}") from None
        return packed


def _extension(code: int, data: bytes) -> Any:
    return {"$extension": code, "data": data}
