"""Templates of Produce responses that differ only in numbers."""

from __future__ import annotations

from collections.abc import Sequence

from kreplica.server.produce.results import appended_row, response_body
from kreplica.server.transport.outgoing_buffers import framed
from kreplica.storage.log.results import AppendResult
from kreplica.wire import kernels
from kreplica.wire.headers import build_response_header
from kreplica.wire.messages import PRODUCE
from kreplica.wire.template_cache import MARK, Template

_CODES = "iiqqq"
"""Codes of the correlation ID, partition, base offset, append time and log start offset; older versions lack the last
ones."""


class ResponseTemplate:
    """Response to the append of one batch.

    :param version: version of Produce.
    """

    __slots__ = ("_count", "_template")

    def __init__(self, version: int, topic: str) -> None:
        self._count = 5 if version >= 5 else 4 if version >= 2 else 3
        header = build_response_header(PRODUCE.response_header_version(version), MARK)
        row = appended_row(MARK + 1, MARK + 4, AppendResult(MARK + 2, MARK + 2, MARK + 3, False, 0))
        body = response_body([{"name": topic, "partition_responses": [row]}])
        (data,), _ = framed(PRODUCE.response.build_pieces(version, body, header))
        assert isinstance(data, bytes)
        self._template = Template(data, _CODES[: self._count])

    def fill(
        self, partition: int, correlation_ids: Sequence[int], results: Sequence[AppendResult], log_start_offset: int
    ) -> bytes:
        """Return one response frame per correlation ID and result, joined."""
        template = self._template
        if kernels.fill_responses is not None:
            filled: bytes = kernels.fill_responses(
                template.data, template.places, correlation_ids, results, partition, log_start_offset
            )
            return filled
        values, pack, count = template.values.copy(), template.struct.pack, self._count
        frames = []
        for correlation_id, (base_offset, _, append_time_ms, _, _) in zip(correlation_ids, results, strict=True):
            values[1::2] = (correlation_id, partition, base_offset, append_time_ms, log_start_offset)[:count]
            frames.append(pack(*values))
        return b"".join(frames)
