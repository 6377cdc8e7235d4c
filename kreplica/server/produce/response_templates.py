"""Templates of Produce responses that differ only in numbers."""

from __future__ import annotations

from collections.abc import Sequence

from kreplica.model import TopicPartition
from kreplica.server.produce.results import appended_row, response_body
from kreplica.server.transport.outgoing_buffers import framed
from kreplica.storage.log.results import AppendResult
from kreplica.wire.headers import build_response_header
from kreplica.wire.messages import PRODUCE
from kreplica.wire.template_cache import MARK, Template

_CODES = "iqqq"
"""Codes of the correlation ID, base offset, append time and log start offset; older versions lack the last ones."""


class ResponseTemplate:
    """Response to the append of one batch.

    :param version: version of Produce.
    """

    __slots__ = ("_count", "_template")

    def __init__(self, version: int, key: TopicPartition) -> None:
        self._count = 4 if version >= 5 else 3 if version >= 2 else 2
        header = build_response_header(PRODUCE.response_header_version(version), MARK)
        row = appended_row(key.partition, MARK + 3, AppendResult(MARK + 1, MARK + 1, MARK + 2, False, 0))
        body = response_body([{"name": key.topic, "partition_responses": [row]}])
        (data,), _ = framed(PRODUCE.response.build_pieces(version, body, header))
        assert isinstance(data, bytes)
        self._template = Template(data, _CODES[: self._count])

    def fill(self, correlation_ids: Sequence[int], results: Sequence[AppendResult], log_start_offset: int) -> bytes:
        """Return one response frame per correlation ID and result, joined."""
        values, pack, count = self._template.values.copy(), self._template.struct.pack, self._count
        frames = []
        for correlation_id, (base_offset, _, append_time_ms, _, _) in zip(correlation_ids, results, strict=True):
            values[1::2] = (correlation_id, base_offset, append_time_ms, log_start_offset)[:count]
            frames.append(pack(*values))
        return b"".join(frames)
