"""Transactional produce: a batch is appended once its partition is known to be part of the transaction (KIP-890).

Only a transaction's first batches wait for this verification; later batches are appended at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred

from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import TopicPartition
from kreplica.replication import Partition, Partitions
from kreplica.runtime.slices import Steps
from kreplica.server.produce.delayed_produce import ALL_IN_SYNC
from kreplica.server.produce.interception import Interception
from kreplica.server.produce.results import ProduceResults, find_partition
from kreplica.server.protocol.principals import principal_of
from kreplica.server.protocol.request import Request
from kreplica.server.protocol.responses import in_slices
from kreplica.storage.formats.batch_scanning import header_at
from kreplica.storage.producers.producer_state import Origin
from kreplica.transactions.admission import Admission, Producer
from kreplica.transactions.verification import rejection_of
from kreplica.wire.batches import TRANSACTIONAL_BIT, BatchHeader, Bytes, check_batch, parse_header

ADDS_FROM = 12
"""First version in which the leader, not the producer, adds the partition to the transaction."""

ABORTABLE_FROM = 11
"""First version whose clients handle TRANSACTION_ABORTABLE."""

KEPT_BYTES_MAX = 64 * 1024 * 1024
"""Maximum bytes of batches that may wait for coordinators; beyond that, batches are rejected with a retriable error."""

ADMITTED_AT_ONCE = 500
"""Number of partitions of a large request per request to the coordinator; each takes a few microseconds."""

READ_PER_STEP, APPENDED_PER_STEP = 8, 2
"""Number of batches of a large request that are read or appended in one step."""

Row = dict[str, Any]


class Batch:
    """Batch that waits to be appended.

    :ivar index: index of the partition in its topic.
    :ivar rows: response rows of its topic; ``rows[number]`` is the row of the batch.
    """

    __slots__ = ("header", "index", "kept_bytes", "number", "origin", "partition", "records", "rows")

    def __init__(
        self,
        partition: Partition,
        header: BatchHeader,
        records: Bytes,
        rows: list[Row],
        origin: Origin = Origin.CLIENT,
    ) -> None:
        self.partition = partition
        self.header = header
        self.kept_bytes = 0
        self.records: Bytes | None = records
        self.rows = rows
        self.number = len(rows)
        self.index = partition.topic_partition.partition
        self.origin = origin


class TransactionalProduces:
    """Transactional produce requests of one broker.

    :param now_ms: wall clock.
    :param interception: changes or rejects batches; None without interceptors.
    """

    def __init__(
        self,
        partitions: Partitions,
        admission: Admission,
        now_ms: Callable[[], int],
        interception: Interception | None = None,
    ) -> None:
        self.partitions = partitions
        self.admission = admission
        self.now_ms = now_ms
        self.interception = interception
        self.kept_bytes = 0

    def begin(self, request: Request, done: Callable[[ProduceResults], None]) -> None:
        """Append the batches of a request.

        :param done: called once, perhaps before this returns, when each batch is appended or rejected.
        """
        _TransactionalRequest(self, request, done).begin(request.body)

    async def append_in_slices(self, request: Request) -> ProduceResults:
        """Append the batches of a large request in slices.

        The caller keeps the memory of the batches, and does not read the connection until this has returned.

        :raise CancelledError: the connection has closed; the remaining batches are not appended.
        """
        return await _TransactionalRequest(self, request, lambda _: None).append_in_slices(request)


class _TransactionalRequest:
    """Request with batches that are neither appended nor rejected yet."""

    __slots__ = ("_done", "_produces", "_request", "_results", "_unfinished_count", "_version")

    def __init__(
        self, produces: TransactionalProduces, request: Request, done: Callable[[ProduceResults], None]
    ) -> None:
        self._produces = produces
        self._request = request
        self._done = done
        self._version = request.version
        self._results = ProduceResults(request.body["acks"])
        self._unfinished_count = 1  # includes ``begin`` itself, so that the request is not complete before it returns

    def begin(self, body: Row) -> None:
        batches: list[Batch] = []
        for _ in self._read(body["topic_data"], batches):
            pass  # few partitions: read without yielding
        rejection = self._rejection(batches)
        if rejection is not None:
            for batch in batches:
                self._reject(batch, rejection)
        elif batches:
            self._unfinished_count += len(batches)
            header = batches[0].header
            self._produces.admission.admit(
                Producer(body["transactional_id"], header.producer_id, header.producer_epoch),
                [(batch.partition, partial(self._admitted, batch)) for batch in batches],
                adds=self._version >= ADDS_FROM,
            )
            self._keep(batches)
        self._one_finished()

    async def append_in_slices(self, request: Request) -> ProduceResults:
        """Request admission of the batches in parts, and append each part in slices."""
        produces, body = self._produces, request.body
        batches: list[Batch] = []
        await in_slices(request, self._read(body["topic_data"], batches))
        rejection = self._rejection(batches)
        size = request.size
        produces.kept_bytes += size
        try:
            for start in range(0, len(batches), ADMITTED_AT_ONCE):
                part = batches[start : start + ADMITTED_AT_ONCE]
                codes = [ErrorCode.NONE] * len(part) if rejection is not None else await self._codes(body, part)
                await in_slices(request, self._append_part(part, codes, rejection))
        finally:
            produces.kept_bytes -= size
        return self._results

    def _codes(self, body: Row, batches: Sequence[Batch]) -> Deferred[list[ErrorCode]]:
        """Verify that the partitions are in the transaction; fires with an error code for each batch."""
        codes = [ErrorCode.NONE] * len(batches)
        pending_count = len(batches)
        is_cancelled = False

        def cancel(_: object) -> None:
            nonlocal is_cancelled
            is_cancelled = True

        verified: Deferred[list[ErrorCode]] = Deferred(cancel)

        def admitted(number: int, code: ErrorCode) -> None:
            nonlocal pending_count
            codes[number] = code
            pending_count -= 1
            if not pending_count and not is_cancelled:
                verified.callback(codes)

        header = batches[0].header
        self._produces.admission.admit(
            Producer(body["transactional_id"], header.producer_id, header.producer_epoch),
            [(batch.partition, partial(admitted, number)) for number, batch in enumerate(batches)],
            adds=self._version >= ADDS_FROM,
        )
        return verified

    def _append_part(
        self, batches: Iterable[Batch], codes: Iterable[ErrorCode], rejection: KafkaError | None
    ) -> Steps[None]:
        """Append admitted batches; ``Partition.append`` rejects them if an end marker was written in the meantime."""
        for number, (batch, code) in enumerate(zip(batches, codes, strict=True), 1):
            records, batch.records = batch.records, None
            assert records is not None
            if rejection is not None or code is not ErrorCode.NONE:
                self._reject(batch, rejection or self._unverified(code))
            else:
                self._append(batch, records)
            if number % APPENDED_PER_STEP == 0:
                yield

    def _read(self, topics: list[Row], batches: list[Batch]) -> Steps[None]:
        """Collect in ``batches`` those that may be appended; the rows of rejected ones contain their error."""
        count = 0
        for topic in topics:
            rows: list[Row] = []
            self._results.responses.append({"name": topic["name"], "partition_responses": rows})
            for data in topic["partition_data"]:
                key = TopicPartition(topic["name"], data["index"])
                try:
                    batches.append(self._batch(key, data["records"], rows))
                    rows.append({})
                except KafkaError as error:
                    rows.append(self._results.row(key.partition, None, error))
                count += 1
                if count % READ_PER_STEP == 0:
                    yield

    def _batch(self, key: TopicPartition, records: Bytes | None, rows: list[Row]) -> Batch:
        produces = self._produces
        partition = find_partition(
            produces.partitions, key, records, self._version, produces.now_ms(), TRANSACTIONAL_BIT
        )
        assert records is not None
        if produces.interception is not None:
            principal = principal_of(self._request.connection, self._request.client_id)
            changed, origin = produces.interception.in_transaction(partition, records, principal, produces.now_ms())
            return Batch(partition, parse_header(changed), changed, rows, origin)
        return Batch(partition, header_at(records, 0) or check_batch(records), records, rows)

    def _rejection(self, batches: list[Batch]) -> KafkaError | None:
        """Return the error that applies to all batches together, or None."""
        producers = {(batch.header.producer_id, batch.header.producer_epoch): None for batch in batches}
        if len(producers) > 1:
            text = f"the batches have {len(producers)} different producer IDs or epochs"
            return KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, text)
        if self._produces.kept_bytes >= KEPT_BYTES_MAX:
            return KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "too many batches await transaction coordinators")
        return None

    def _keep(self, batches: list[Batch]) -> None:
        """Copy the batches that wait, since their frame's memory is reused."""
        for batch in batches:
            if batch.records is not None:
                if type(batch.records) is memoryview:
                    batch.records = bytearray(batch.records)
                batch.kept_bytes = len(batch.records)
                self._produces.kept_bytes += batch.kept_bytes

    # --- one by one --------------------------------------------------------------------------------------------------

    def _admitted(self, batch: Batch, code: ErrorCode) -> None:
        records, batch.records = batch.records, None
        assert records is not None
        self._produces.kept_bytes -= batch.kept_bytes
        if code is ErrorCode.NONE:
            self._append(batch, records)
        else:
            self._reject(batch, self._unverified(code))
        self._one_finished()

    def _unverified(self, code: ErrorCode) -> KafkaError:
        error_code = rejection_of(
            code, adds=self._version >= ADDS_FROM, knows_abortable=self._version >= ABORTABLE_FROM
        )
        return KafkaError(error_code, f"the transaction of the batch could not be verified: {code.name}")

    def _reject(self, batch: Batch, error: KafkaError) -> None:
        batch.partition.log.producers.rejections.note(batch.header, error.code, self._produces.now_ms())
        batch.rows[batch.number] = self._results.row(batch.index, batch.partition, error)

    def _append(self, batch: Batch, records: Bytes) -> None:
        (outcome,) = batch.partition.append(
            (records,),
            self._produces.now_ms(),
            all_in_sync=self._results.acks == ALL_IN_SYNC,
            origin=batch.origin,
            transaction=batch.header,
        )
        batch.rows[batch.number] = self._results.row(batch.index, batch.partition, outcome)

    def _one_finished(self) -> None:
        self._unfinished_count -= 1
        if not self._unfinished_count:
            self._done(self._results)
