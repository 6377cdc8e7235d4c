"""Produce requests, and what answers and failures mean to the batches that they carried.

Pure: the producer sends, keeps time, and tells what came of it.  The rule of what a retry may do is in ``queues``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from random import Random
from typing import Any, Generic, NamedTuple

from kreplica.client_core.backoff import backoff_s
from kreplica.client_core.delivery import UNKNOWN_OFFSET
from kreplica.client_core.errors import (
    BrokerRefused,
    ClientError,
    GaveUp,
    MalformedAnswer,
    OutcomeUnknown,
    RecordTooLarge,
)
from kreplica.client_core.options import ClientOptions
from kreplica.client_core.partition_queue import BatchT, PartitionQueue
from kreplica.errors import ErrorCode
from kreplica.wire.batches import NO_SEQUENCE

REQUESTS_MAX = 5
"""Under way on one connection."""

REQUEST_SIZE_MAX = 8 << 20
"""Bytes of batches in one request; a larger batch goes alone."""

ADDED_BY_CLIENT_MAX = 11
"""From the next version of Produce on, brokers take partitions into transactions by themselves (KIP-890)."""

_WRONG_NUMBERS = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_EPOCH,
)
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


class QueuedBatch(NamedTuple, Generic[BatchT]):
    """A batch in a request, and the queue that it came from."""

    queue: PartitionQueue[BatchT]
    batch: BatchT


def produce_body(
    batches: Iterable[QueuedBatch[BatchT]], transactional_id: str | None, acks: int, timeout_ms: int
) -> dict[str, Any]:
    """A request that carries these batches, at most one of each partition."""
    rows = sorted(batches, key=lambda each: each.queue.partition)
    return {
        "transactional_id": transactional_id,
        "acks": acks,
        "timeout_ms": timeout_ms,
        "topic_data": [
            {
                "name": topic,
                "partition_data": [{"index": each.queue.partition.partition, "records": each.batch.data} for each in group],
            }
            for topic, group in groupby(rows, key=lambda each: each.queue.partition.topic)
        ],
    }


class BatchOutcomes(Generic[BatchT]):
    """Decides what becomes of batches: written, tried again, given up.

    :param random: draws how long queues wait.
    :param is_numbered: batches have sequences, so that leaders recognize them.
    :param settled: is told of each batch whose outcome is set.
    """

    def __init__(
        self,
        random: Random,
        options: ClientOptions,
        *,
        is_numbered: bool,
        is_transactional: bool,
        settled: Callable[[BatchT], None],
    ) -> None:
        self._random = random
        self._options = options
        self._is_numbered = is_numbered
        self._is_transactional = is_transactional
        self._settled = settled

    # --- answers ---

    def answered(self, answer: dict[str, Any], batches: Sequence[QueuedBatch[BatchT]], now_s: float) -> bool:
        """Take a leader's answer to a request.

        :return: whether it accepted every batch; where not, what is known of the leaders may be wrong.
        """
        rows = {
            (topic["name"], row["index"]): row for topic in answer["responses"] for row in topic["partition_responses"]
        }
        accepted = True
        for queue, batch in batches:
            row = rows.get(queue.partition)
            if row is None:
                error: ClientError = MalformedAnswer(f"the answer does not tell of {queue.partition}")
            elif row["error_code"] in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                self._written(queue, batch, row)
                continue
            else:
                text = row.get("error_message") or ""
                error = BrokerRefused(ErrorCode.of(row["error_code"]), f"produce to {queue.partition}", text)
            accepted = False
            self._failed(queue, batch, error, now_s)
        return accepted

    def sent_unanswered(self, batches: Iterable[QueuedBatch[BatchT]]) -> None:
        """A request left to which no answer comes (acks=0)."""
        for queue, batch in batches:
            queue.answered(batch)
            self._settle(batch, None)

    def lost(self, batches: Iterable[QueuedBatch[BatchT]], error: ClientError, now_s: float) -> None:
        """No answer to a request will come."""
        for queue, batch in batches:
            self._failed(queue, batch, error, now_s)

    def _written(self, queue: PartitionQueue[BatchT], batch: BatchT, row: dict[str, Any]) -> None:
        queue.answered(batch)
        queue.failures, queue.last_error = 0, None
        batch.outcome.base_offset = row["base_offset"] if row["error_code"] == ErrorCode.NONE else UNKNOWN_OFFSET
        batch.outcome.log_append_time_ms = row.get("log_append_time_ms", -1)
        self._settle(batch, None)

    # --- failures ---

    def _failed(self, queue: PartitionQueue[BatchT], batch: BatchT, error: ClientError, now_s: float) -> None:
        """A try was in vain, or its outcome is not known."""
        first = queue.is_first(batch)
        queue.answered(batch)
        code = error.code if isinstance(error, BrokerRefused) else None
        if code in _WRONG_NUMBERS and self._may_renumber(code, first=first):
            self._wrong_sequence(queue, batch, error, now_s, first=first)
        elif code in _TOO_LARGE and not batch.maybe_written:
            self._split(queue, batch, error)
        elif not error.retriable:
            batch.maybe_written = batch.maybe_written or not isinstance(error, BrokerRefused)
            self._fail_batch(queue, batch, error)
        else:
            # Another error that may pass says nothing of whether the batch is in the log by now.
            batch.maybe_written = batch.maybe_written or code is not ErrorCode.NOT_ENOUGH_REPLICAS
            queue.last_error = error
            queue.put_back(batch, self._retry_at_s(queue, now_s))

    def _may_renumber(self, code: ErrorCode | None, *, first: bool) -> bool:
        """A transaction's numbers are not given anew, but a batch that overtook another one may wait for it."""
        if not self._is_transactional:
            return self._is_numbered
        return not first and code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def _wrong_sequence(
        self, queue: PartitionQueue[BatchT], batch: BatchT, error: ClientError, now_s: float, *, first: bool
    ) -> None:
        """The leader expects another sequence: one before this one is missing, or has yet to come."""
        if not first:
            queue.put_back(batch, queue.retry_at_s)
        elif batch.maybe_written:
            self._fail_batch(queue, batch, error)
        else:
            queue.must_restart = True
            queue.put_back(batch, self._retry_at_s(queue, now_s))

    def _split(self, queue: PartitionQueue[BatchT], batch: BatchT, error: ClientError) -> None:
        """The partition takes no batch as large: two may fit, or one record is too large by itself."""
        parts = batch.split() if batch.count > 1 else None
        if parts is not None:
            for part in parts:
                queue.insert(part)
            return
        if batch.count == 1:
            too_large = RecordTooLarge(str(error))
            too_large.__cause__ = error
            error = too_large
        self._fail_batch(queue, batch, error)

    def delay(self, queue: PartitionQueue[BatchT], error: ClientError, now_s: float) -> None:
        """What waits first cannot be sent at the moment, or never."""
        if error.retriable:
            queue.last_error = error
            queue.retry_at_s = self._retry_at_s(queue, now_s)
        else:
            self._fail_batch(queue, queue.waiting.popleft(), error)

    def fail_unrecognizable(self, queue: PartitionQueue[BatchT]) -> None:
        """Give up what can be recognized no more."""
        for batch in queue.unrecognizable():
            queue.waiting.remove(batch)
            self._fail_batch(queue, batch, ClientError(f"{queue.partition}: a batch before it was refused"))

    def expire(self, queue: PartitionQueue[BatchT], now_s: float) -> None:
        """Give up what has waited too long."""
        while queue.waiting and queue.waiting[0].deadline_s <= now_s:
            late = GaveUp(f"{queue.partition}: not delivered in time: {queue.last_error or 'brokers were busy'}")
            late.__cause__ = queue.last_error
            self._fail_batch(queue, queue.waiting.popleft(), late)

    def drop_waiting(self, queue: PartitionQueue[BatchT], error: ClientError) -> bool:
        """Give up what waits, as if it never was.

        :return: whether some of it had its numbers already, so that it may have been written.
        """
        numbered = False
        while queue.waiting:
            batch = queue.waiting.popleft()
            numbered = numbered or batch.sequence != NO_SEQUENCE
            queue.must_restart = queue.must_restart or batch.sequence != NO_SEQUENCE
            self._settle(batch, error)
        return numbered

    def fail_all(self, queue: PartitionQueue[BatchT], error: ClientError) -> None:
        """Nobody will send, or wait for answers, any more."""
        for batch in list(queue.in_flight):
            queue.answered(batch)
            batch.maybe_written = True
            self._fail_batch(queue, batch, error)
        while queue.waiting:
            self._fail_batch(queue, queue.waiting.popleft(), error)

    def fail_in_flight(self, queue: PartitionQueue[BatchT], error: ClientError) -> bool:
        """Give up what is under way without anybody who waits for its answer.

        :return: whether there was any.
        """
        forgotten = list(queue.in_flight)
        for batch in forgotten:
            queue.answered(batch)
            queue.must_restart = True
            self._settle(batch, error)
        return bool(forgotten)

    def _retry_at_s(self, queue: PartitionQueue[BatchT], now_s: float) -> float:
        queue.failures += 1
        return now_s + backoff_s(self._random, queue.failures, self._options.backoff_s, self._options.backoff_s_max)

    def _fail_batch(self, queue: PartitionQueue[BatchT], batch: BatchT, error: ClientError) -> None:
        if batch.sequence != NO_SEQUENCE:
            queue.must_restart = True
        if batch.maybe_written:
            unknown = OutcomeUnknown(f"produce to {queue.partition}: whether it was written is not known: {error}")
            unknown.__cause__ = error
            error = unknown
        self._settle(batch, error)

    def _settle(self, batch: BatchT, error: ClientError | None) -> None:
        batch.outcome.error = error
        batch.outcome.is_settled = True
        self._settled(batch)


def fit_request(batches: Sequence[QueuedBatch[BatchT]], size_max: int = REQUEST_SIZE_MAX) -> list[QueuedBatch[BatchT]]:
    """Those that one request holds, from the first on; one at least."""
    fitting: list[QueuedBatch[BatchT]] = []
    size = 0
    for queued in batches:
        size += len(queued.batch.data)
        if fitting and size > size_max:
            break
        fitting.append(queued)
    return fitting
