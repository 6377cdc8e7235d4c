"""The records that all clients send: keys, headers, timestamps, nulls, empty and large values, arbitrary bytes."""

from __future__ import annotations

from typing import NamedTuple

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


HEADERS = (("a", b"1"), ("a", b"2"), ("ü", b"\x00\xff"))


class Sent(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    timestamp_ms: int


def sample(count: int = 200) -> list[Sent]:
    """Return a fixed set of records of many shapes."""
    shapes = [
        lambda i: Sent(f"key-{i}".encode(), f"value {i}".encode(), (), 1_600_000_000_000 + i),
        lambda i: Sent(None, bytes(range(256)) * (i % 5), (), 1_600_000_000_000 + i),
        lambda i: Sent(b"", b"", (("empty", b""),), 1_600_000_000_000 + i),
        lambda i: Sent(
            "schlüssel".encode(), b"x" * 5000, (("a", b"1"), ("a", b"2"), ("ü", b"\x00\xff")), 1_600_000_000_000 + i
        ),
        lambda i: Sent(f"deleted-{i}".encode(), None, (), 1_600_000_000_000 + i),
    ]
    return [shapes[i % len(shapes)](i) for i in range(count)]
