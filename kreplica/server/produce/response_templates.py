"""Answers to Produce that differ in numbers only: built once, and filled in."""

from __future__ import annotations

from collections.abc import Sequence

from kreplica.model import TopicPartition
from kreplica.server.produce.results import answer_body, appended_row
from kreplica.server.transport.outgoing_buffers import framed
from kreplica.storage.log.results import AppendResult
from kreplica.wire.forms import MARK, Form
from kreplica.wire.headers import build_response_header
from kreplica.wire.messages import PRODUCE

FORMS_MAX = 1000

_CODES = "iqqq"
"""Of the request's number, the batch's offset, its append time, and the log's start, as far as a version has them."""


class AnswerForm:
    """What is said of one batch that is in the log: all but the request's number and where the batch is.

    :param version: of Produce.
    """

    __slots__ = ("_count", "_form")

    def __init__(self, version: int, topic: str, index: int) -> None:
        self._count = 4 if version >= 5 else 3 if version >= 2 else 2
        header = build_response_header(PRODUCE.response_header_version(version), MARK)
        row = appended_row(index, MARK + 3, AppendResult(MARK + 1, MARK + 1, MARK + 2, False, 0))
        body = answer_body([{"name": topic, "partition_responses": [row]}])
        (data,), _ = framed(PRODUCE.response.build_pieces(version, body, header))
        assert isinstance(data, bytes)
        self._form = Form(data, _CODES[: self._count])

    def filled(
        self, correlation_ids: Sequence[int], results: Sequence[AppendResult], log_start_offset: int
    ) -> bytes:
        """Whole frames, one behind the other."""
        values, pack, count = self._form.values.copy(), self._form.struct.pack, self._count
        frames = []
        for correlation_id, (base_offset, _, append_time_ms, _, _) in zip(correlation_ids, results, strict=True):
            values[1::2] = (correlation_id, base_offset, append_time_ms, log_start_offset)[:count]
            frames.append(pack(*values))
        return b"".join(frames)


class AnswerForms:
    """Those that were filled in lately."""

    def __init__(self) -> None:
        self._forms: dict[tuple[int, TopicPartition], AnswerForm] = {}

    def of(self, version: int, key: TopicPartition) -> AnswerForm:
        """The one for a batch of a partition."""
        form = self._forms.get((version, key))
        if form is None:
            if len(self._forms) >= FORMS_MAX:
                self._forms.clear()
            form = self._forms[version, key] = AnswerForm(version, *key)
        return form
