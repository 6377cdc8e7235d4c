"""The compiled kernels: loops over batches and records in C (``native``), which are optional.

A name in this module is None if its kernel is not available: the extension was not built, it does not load on this
machine, the processor has no CRC-32C instruction, or ``KREPLICA_KERNELS=no`` is set.  Callers then use their Python
code, which is the reference: a kernel returns None, or fewer results, for input that is malformed or unusual, and
never raises an error for it.
"""

from __future__ import annotations

import os
from importlib import import_module
from types import ModuleType
from typing import Any

VARIABLE = "KREPLICA_KERNELS"
"""Environment variable; ``no`` disables the kernels.  ``setup.py`` reads it as well."""


def load(setting: str) -> ModuleType | None:
    """Return the extension module, or None if it is disabled or unavailable.

    :param setting: value of the environment variable.
    :raise ValueError: the value is invalid.
    """
    if setting not in ("", "yes", "no"):
        raise ValueError(f"environment variable {VARIABLE}: {setting!r} is not yes or no")
    if setting == "no":
        return None
    try:
        return import_module("kreplica.wire._kernels")
    except ImportError:
        return None


_module = load(os.environ.get(VARIABLE, ""))
_crc_module = _module if _module is not None and _module.HAS_CRC else None

place_batches: Any = getattr(_crc_module, "place_batches", None)
"""Checks produced batches as ``batches.check_batch`` does, and sets their base offsets and leader epoch in place.

Arguments: types of headers and results, the batches, base offset, leader epoch, maximum size of a batch and of all
batches.  Returns the headers, the results and the total size of the leading batches that need no other checks and have
consecutive sequences; later batches are unchanged.
"""

index_batches: Any = getattr(_module, "index_batches", None)
"""Finds the index entries of appended batches, as ``Segment.add_batch`` does.

Arguments: headers, position, bytes since the last entry, index interval, largest timestamp and its offset.  Returns
the new position, bytes since the last entry, largest timestamp with its offset, and entries (last offset, position,
largest timestamp, its offset).
"""

scan_batches: Any = getattr(_crc_module, "scan_batches", None)
"""Checks batches as ``batches.iter_headers`` and ``batches.verify_crc`` do.

Arguments: type of headers, buffer, position, number of bytes after which to stop.  Returns the headers up to the first
batch that is incomplete or invalid.
"""

match_requests: Any = getattr(_module, "match_requests", None)
"""Finds Produce requests that repeat the request before them, as ``ProduceRuns.add`` does for one.

Arguments: buffer with frames; tail of the template; positions of the first request's body and of the next frame; end of
the frames; maximum length of a frame; size of the template's head; true if lengths are compact; attributes that a batch
may not have; maximum number of requests.  Returns correlation IDs, views of the records, bitwise or of the codecs, and
the position after the last of these requests.
"""

fill_responses: Any = getattr(_module, "fill_responses", None)
"""Builds Produce responses as ``ResponseTemplate.fill`` does.

Arguments: template, and positions of its numbers; correlation IDs, results, partition, log start offset.  Returns the
frames.
"""

read_rows: Any = getattr(_module, "read_rows", None)
"""Reads records as ``record_columns.read_rows`` does.

Arguments: type, constants and places of ``RowShape``; section; base offset, base timestamp, last offset delta and
record count of the header; whether the timestamp is the append time, and that time.  Returns a list of rows, or None.
"""

read_batches: Any = getattr(_crc_module, "read_batches", None)
"""Checks and reads batches as ``batches.iter_checked`` and ``record_columns.read_rows`` do.

Arguments: type, constants and places of ``RowShape``; buffer; position; attributes and leader epoch of all batches to
read; offset of the first record to read; numbers of rows and bytes after which to stop.  Returns the rows, the bytes of
records, and the position and the offset after the last batch; stops before a batch that is invalid or different.
"""

check_records: Any = getattr(_module, "check_records", None)
"""Checks records as ``record_validation.check_records`` does.

Arguments: section; base timestamp, last offset delta and record count of the header; earliest and latest timestamp.
Returns the fields of ``RecordFacts``, or None.
"""

encode_records: Any = getattr(_module, "encode_records", None)
"""Encodes records without headers as ``producer_batches`` does.

Arguments: lists of timestamps, keys, values and headers.  Returns a bytearray with space for the header of the batch,
or None.
"""

decode_columns: Any = getattr(_module, "decode_columns", None)
"""Decodes records to the buffers of Arrow columns, as ``spark.source.decoding`` does.

Argument: list of sections, which are tuples of header and records.  Returns a bytearray, the number of records, the
size of all sections, the size and the number of nulls of the keys and of the values, and the number of records that
have headers, or None.  The bytearray contains the offsets, the timestamps, the offsets of the keys and of the values in
their data, the validity bits of both, and their data, each with space for the size of all sections.
"""


def description() -> str:
    """Return the name of the implementation in use, for ``kreplica --version``."""
    if _module is None:
        return "kernels in Python"
    return "kernels in C" if _crc_module is not None else "kernels in C and Python: no CRC instruction"
