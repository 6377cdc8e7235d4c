"""Encodes the position in each partition as an opaque page token."""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from kreplica.admin.http.problems import Problem

VERSION = 2
PARTITIONS_MAX = 500
"""Maximum number of partitions of a page; a longer token would exceed the maximum length of a request line."""

_DECODED_BYTES_MAX = 100_000


@dataclass(slots=True)
class Span:
    """The unread range of a partition, which is read from its start, or from its end if the newest records are first.

    :param next_offset: its first offset.
    :param end_offset: its exclusive end.
    """

    next_offset: int
    end_offset: int

    @property
    def is_read(self) -> bool:
        """True if the range is empty."""
        return self.next_offset >= self.end_offset

    @property
    def size(self) -> int:
        """Number of offsets in the range."""
        return max(self.end_offset - self.next_offset, 0)


OLDEST, NEWEST = "oldest", "newest"
"""Orders of records."""


def encode_spans(topic_id: UUID, order: str, spans: Mapping[int, Span]) -> str | None:
    """Return the page token; None if nothing is left to read."""
    rows = [[number, span.next_offset, span.end_offset] for number, span in spans.items() if not span.is_read]
    if not rows:
        return None
    text = json.dumps([VERSION, topic_id.hex, order, rows], separators=(",", ":"))
    return base64.urlsafe_b64encode(zlib.compress(text.encode())).decode()


def decode_spans(topic_id: UUID, order: str, text: str) -> dict[int, Span]:
    """Decode a page token.

    :raise Problem: 400 if the token is malformed, or belongs to another order or topic, or to a deleted topic of the
        same name.
    """
    try:
        version, topic, its_order, rows = json.loads(_inflate(text))
        if version == VERSION and topic == topic_id.hex and its_order == order:
            return {_offset(number): Span(_offset(next_offset), _offset(end)) for number, next_offset, end in rows}
    except (ValueError, TypeError, zlib.error, binascii.Error):
        pass
    raise Problem(
        400,
        "INVALID_REQUEST",
        "the query parameter 'after' is not the `next` of a response for this topic and order",
        what_to_do="Omit it to start again.",
    )


def _inflate(text: str) -> bytes:
    raw = base64.urlsafe_b64decode(text.encode("ascii"))
    return zlib.decompressobj().decompress(raw, _DECODED_BYTES_MAX)


def _offset(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**63:
        raise ValueError(value)
    return value
