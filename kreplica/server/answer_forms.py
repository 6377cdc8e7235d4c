"""Answers to Produce that differ in numbers only: built once, and filled in."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from kreplica.model import TopicPartition
from kreplica.server.pieces import framed
from kreplica.server.produced import answer_body, appended_row
from kreplica.storage.results import AppendResult
from kreplica.wire.headers import build_response_header
from kreplica.wire.messages import PRODUCE

FORMS_MAX = 1000

_CORRELATION_ID = Struct(">i")
_BASE_OFFSET = Struct(">q")
_OLD_NUMBERS = Struct(">qq")
_NUMBERS = Struct(">qqq")
_MARK = 0x1122334455667788
"""Marks the place of the first number: no topic's name has such bytes."""


class AnswerForm:
    """What is said of one batch that is in the log: all but the request's number and where the batch is.

    :param version: of Produce.
    """

    __slots__ = ("_at", "_count", "_data")

    def __init__(self, version: int, topic: str, index: int) -> None:
        header = build_response_header(PRODUCE.response_header_version(version), 0)
        row = appended_row(index, 0, AppendResult(_MARK, _MARK, -1, False, 0))
        body = answer_body([{"name": topic, "partition_responses": [row]}])
        (data,), _ = framed(PRODUCE.response.build_pieces(version, body, header))
        assert isinstance(data, bytes)
        self._data = data
        self._at = data.index(_BASE_OFFSET.pack(_MARK))
        self._count = 3 if version >= 5 else 2 if version >= 2 else 1

    def filled(
        self, correlation_ids: Sequence[int], results: Sequence[AppendResult], log_start_offset: int
    ) -> bytearray:
        """Whole frames, one behind the other."""
        size, at, count = len(self._data), self._at, self._count
        data = bytearray(self._data * len(results))
        start = 0
        for correlation_id, (base_offset, _, append_time_ms, _, _) in zip(correlation_ids, results, strict=True):
            _CORRELATION_ID.pack_into(data, start + 4, correlation_id)
            if count == 3:
                _NUMBERS.pack_into(data, start + at, base_offset, append_time_ms, log_start_offset)
            elif count == 2:
                _OLD_NUMBERS.pack_into(data, start + at, base_offset, append_time_ms)
            else:
                _BASE_OFFSET.pack_into(data, start + at, base_offset)
            start += size
        return data


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
