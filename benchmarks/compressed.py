"""Time to validate a produced batch, in us: only its header and CRC, and a compressed batch in full.

Validating the header and the CRC is the cost of an uncompressed batch; a compressed batch is also decompressed, and its
records are validated.  A batch is sent in 16 or 128 KiB, and its records have about 100 bytes or 1 KB.  Values are the
lowest CPU time of many rounds, because other programs affect it least.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from typing import Any

from benchmarks.codec import TURNS, microseconds
from kreplica.storage.log_config import LogConfig
from kreplica.storage.segments.batch_validation import validate
from kreplica.wire.batch_building import NEXT_OFFSET, build_batch
from kreplica.wire.batches import check_batch, parse_header
from kreplica.wire.compression import Codec
from kreplica.wire.records import DECOMPRESSED_SIZE_MAX, Record

KIB = 1024
SIZES = (16 * KIB, 128 * KIB)
RECORD_SIZES = (100, 1000)
NOW_MS = 1_700_000_000_000


def _record(chance: random.Random, number: int, size: int) -> Record:
    """Return a record as applications write them: repeated names and random values."""
    value = b'{"id":%d,"user":"%d","amount":%d,"text":"' % (number, chance.randrange(10**6), chance.randrange(10**4))
    value += chance.randbytes((size - len(value)) // 4).hex().encode()
    value += b" order shipped" * ((size - len(value)) // 14) + b'"}'
    return Record(NEXT_OFFSET, NOW_MS + number // 4, b"%08d" % chance.randrange(10**6), value, ())


def batch_of(codec: int, size: int, record_size: int) -> bytes:
    """Return a batch that has about this size when it is sent."""
    chance = random.Random(1)
    count = size // record_size
    while True:
        batch = build_batch([_record(chance, number, record_size) for number in range(count)], codec=codec)
        if len(batch) >= 0.9 * size:
            return batch
        count = max(count + 1, int(count * size / len(batch)))


def cases() -> Iterator[tuple[Codec, int, int]]:
    for codec in Codec:
        for size in SIZES:
            for record_size in RECORD_SIZES:
                yield codec, size, record_size


def run(scale: str) -> list[dict[str, Any]]:
    rows = []
    for codec, size, record_size in cases():
        batch = batch_of(codec, size, record_size)
        read = partial(validate, batch, LogConfig(), NOW_MS, DECOMPRESSED_SIZE_MAX)
        us = microseconds({"header": partial(check_batch, batch), "records": read}, TURNS[scale])
        checked = us["header"] if codec is Codec.NONE else us["records"]
        rows.append(
            {
                "codec": codec.name.lower(),
                "KiB": round(len(batch) / KIB),
                "records": parse_header(batch).record_count,
                "KiB decompressed": round(read().decompressed_size / KIB) or None,
                "header and CRC us": us["header"],
                "total us": checked,
                "MB/s": len(batch) / checked,
            }
        )
    return rows
