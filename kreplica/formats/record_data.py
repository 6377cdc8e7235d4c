"""Input of formats and filters: one record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kreplica.wire.records import Headers


class RecordData(NamedTuple):
    """A record of a partition.

    :param timestamp_ms: -1 if the producer did not set it.
    :param timestamp_type: ``create_time`` or ``log_append_time``.
    :param control: the transaction marker in the record; see ``docs/reference/rest.md``; None for other records.
    """

    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    control: Mapping[str, Any] | None = None
