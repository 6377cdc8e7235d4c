"""Produce requests, and the effect of responses and failures on batches.

The producer sends the requests and provides the time; the rules for retries are in ``partition_queue``.
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
    MalformedResponse,
    OutcomeUnknown,
    RecordTooLarge,
)
from kreplica.client_core.options import ClientOptions
from kreplica.client_core.partition_queue import BatchT, PartitionQueue
from kreplica.errors import ErrorCode
from kreplica.wire.batches import NO_SEQUENCE

REQUESTS_MAX = 5
"""Maximum number of Produce requests in flight on one connection."""

REQUEST_SIZE_MAX = 8 << 20
"""Maximum size of the batches in one request; a larger batch is the only one in its request."""

CLIENT_ADDS_PARTITIONS_VERSION_MAX = 11
"""Last version of Produce for which the client itself adds partitions to transactions (KIP-890)."""

_SEQUENCE_ERRORS = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_EPOCH,
)
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


class QueuedBatch(NamedTuple, Generic[BatchT]):
    """A batch to send, and its queue."""

    queue: PartitionQueue[BatchT]
    batch: BatchT


def produce_body(
    batches: Iterable[QueuedBatch[BatchT]], transactional_id: str | None, acks: int, timeout_ms: int
) -> dict[str, Any]:
    """Build a Produce request with at most one batch per partition."""
    rows = sorted(batches, key=lambda each: each.queue.partition)
    return {
        "transactional_id": transactional_id,
        "acks": acks,
        "timeout_ms": timeout_ms,
        "topic_data": [
            {
                "name": topic,
                "partition_data": [{"index": row.queue.partition.partition, "records": row.batch.data} for row in own],
            }
            for topic, own in groupby(rows, key=lambda each: each.queue.partition.topic)
        ],
    }


class BatchOutcomes(Generic[BatchT]):
    """Decides the outcome of batches: written, retried or failed.

    :param random: source of randomness for the jitter of delays.
    :param has_sequences: True if batches have sequence numbers.
    :param on_settled: called with each batch when its outcome has been set.
    """

    def __init__(
        self,
        random: Random,
        options: ClientOptions,
        *,
        has_sequences: bool,
        is_transactional: bool,
        on_settled: Callable[[BatchT], None],
    ) -> None:
        self._random = random
        self._options = options
        self._has_sequences = has_sequences
        self._is_transactional = is_transactional
        self._on_settled = on_settled

    # --- responses ---

    def process_response(self, response: dict[str, Any], batches: Sequence[QueuedBatch[BatchT]], now_s: float) -> bool:
        """Process the response to a request.

        :return: True if all batches were accepted; if not, the metadata may be outdated.
        """
        rows = {
            (topic["name"], row["index"]): row
            for topic in response["responses"]
            for row in topic["partition_responses"]
        }
        accepted = True
        for queue, batch in batches:
            row = rows.get(queue.partition)
            if row is None:
                error: ClientError = MalformedResponse(f"the response does not contain {queue.partition}")
            elif row["error_code"] in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                self._written(queue, batch, row)
                continue
            else:
                text = row.get("error_message") or ""
                error = BrokerRefused(ErrorCode.of(row["error_code"]), f"produce to {queue.partition}", text)
            accepted = False
            self._failed(queue, batch, error, now_s)
        return accepted

    def complete_without_response(self, batches: Iterable[QueuedBatch[BatchT]]) -> None:
        """Complete the batches of a request without a response (acks=0)."""
        for queue, batch in batches:
            queue.remove_in_flight(batch)
            self._settle(batch, None)

    def process_lost_request(self, batches: Iterable[QueuedBatch[BatchT]], error: ClientError, now_s: float) -> None:
        """Process the loss of a request whose response will not arrive."""
        for queue, batch in batches:
            self._failed(queue, batch, error, now_s)

    def _written(self, queue: PartitionQueue[BatchT], batch: BatchT, row: dict[str, Any]) -> None:
        queue.remove_in_flight(batch)
        queue.failures, queue.last_error = 0, None
        batch.outcome.base_offset = row["base_offset"] if row["error_code"] == ErrorCode.NONE else UNKNOWN_OFFSET
        batch.outcome.log_append_time_ms = row.get("log_append_time_ms", -1)
        self._settle(batch, None)

    # --- failures ---

    def _failed(self, queue: PartitionQueue[BatchT], batch: BatchT, error: ClientError, now_s: float) -> None:
        """Retry, split or fail a batch after an attempt that failed or whose outcome is unknown."""
        first = queue.is_first(batch)
        queue.remove_in_flight(batch)
        code = error.code if isinstance(error, BrokerRefused) else None
        if code in _SEQUENCE_ERRORS and self._is_resolvable(code, first=first):
            self._handle_sequence_error(queue, batch, error, now_s, first=first)
        elif code in _TOO_LARGE and not batch.maybe_written:
            self._split(queue, batch, error)
        elif not error.retriable:
            batch.maybe_written = batch.maybe_written or not isinstance(error, BrokerRefused)
            self._fail_batch(queue, batch, error)
        else:
            # NOT_ENOUGH_REPLICAS is the only retriable error that guarantees that the batch is not in the log.
            batch.maybe_written = batch.maybe_written or code is not ErrorCode.NOT_ENOUGH_REPLICAS
            queue.last_error = error
            queue.put_back(batch, self._retry_at_s(queue, now_s))

    def _is_resolvable(self, code: ErrorCode | None, *, first: bool) -> bool:
        """Return True if a retry can resolve a sequence error.

        Batches of a transaction cannot be renumbered, but a batch that overtook an earlier batch can wait for it.
        """
        if not self._is_transactional:
            return self._has_sequences
        return not first and code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def _handle_sequence_error(
        self, queue: PartitionQueue[BatchT], batch: BatchT, error: ClientError, now_s: float, *, first: bool
    ) -> None:
        """Handle a sequence error: an earlier batch failed or has not reached the leader yet."""
        if not first:
            queue.put_back(batch, queue.retry_at_s)
        elif batch.maybe_written:
            self._fail_batch(queue, batch, error)
        else:
            queue.must_restart = True
            queue.put_back(batch, self._retry_at_s(queue, now_s))

    def _split(self, queue: PartitionQueue[BatchT], batch: BatchT, error: ClientError) -> None:
        """Split a batch that is too large for its partition; fail it if it is a single record."""
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
        """Delay the first waiting batch, which cannot be sent, or fail it if the error is final."""
        if error.retriable:
            queue.last_error = error
            queue.retry_at_s = self._retry_at_s(queue, now_s)
        else:
            self._fail_batch(queue, queue.waiting.popleft(), error)

    def fail_undetectable_duplicates(self, queue: PartitionQueue[BatchT]) -> None:
        """Fail batches that may have been written and whose retries the leader would not recognize as duplicates."""
        for batch in queue.undetectable_duplicates():
            queue.waiting.remove(batch)
            self._fail_batch(queue, batch, ClientError(f"{queue.partition}: an earlier batch failed"))

    def expire(self, queue: PartitionQueue[BatchT], now_s: float) -> None:
        """Fail waiting batches whose delivery timeout has passed."""
        while queue.waiting and queue.waiting[0].deadline_s <= now_s:
            timed_out = GaveUp(f"{queue.partition}: not delivered in time: {queue.last_error or 'brokers were busy'}")
            timed_out.__cause__ = queue.last_error
            self._fail_batch(queue, queue.waiting.popleft(), timed_out)

    def drop_waiting(self, queue: PartitionQueue[BatchT], error: ClientError) -> bool:
        """Fail all waiting batches with the given error, even those that may have been written.

        :return: True if any of them had sequence numbers and therefore may have been written.
        """
        possibly_written = False
        while queue.waiting:
            batch = queue.waiting.popleft()
            possibly_written = possibly_written or batch.sequence != NO_SEQUENCE
            queue.must_restart = queue.must_restart or batch.sequence != NO_SEQUENCE
            self._settle(batch, error)
        return possibly_written

    def fail_all(self, queue: PartitionQueue[BatchT], error: ClientError) -> None:
        """Fail all batches, because the producer is being closed or was interrupted."""
        for batch in list(queue.in_flight):
            queue.remove_in_flight(batch)
            batch.maybe_written = True
            self._fail_batch(queue, batch, error)
        while queue.waiting:
            self._fail_batch(queue, queue.waiting.popleft(), error)

    def _retry_at_s(self, queue: PartitionQueue[BatchT], now_s: float) -> float:
        queue.failures += 1
        return now_s + backoff_s(self._random, queue.failures, self._options.backoff_s, self._options.backoff_s_max)

    def _fail_batch(self, queue: PartitionQueue[BatchT], batch: BatchT, error: ClientError) -> None:
        if batch.sequence != NO_SEQUENCE:
            queue.must_restart = True
        if batch.maybe_written:
            unknown = OutcomeUnknown(f"produce to {queue.partition}: the outcome is unknown: {error}")
            unknown.__cause__ = error
            error = unknown
        self._settle(batch, error)

    def _settle(self, batch: BatchT, error: ClientError | None) -> None:
        batch.outcome.error = error
        batch.outcome.is_settled = True
        self._on_settled(batch)


def fit_request(batches: Sequence[QueuedBatch[BatchT]], size_max: int = REQUEST_SIZE_MAX) -> list[QueuedBatch[BatchT]]:
    """Return the first batches that together fit into one request; at least one is returned."""
    fitting: list[QueuedBatch[BatchT]] = []
    size = 0
    for queued in batches:
        size += len(queued.batch.data)
        if fitting and size > size_max:
            break
        fitting.append(queued)
    return fitting
