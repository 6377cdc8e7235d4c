"""``Producer``: writes records in batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from kreplica.blocking.cluster import Cluster
from kreplica.blocking.coroutines import run
from kreplica.blocking.producer_options import ProducerOptions
from kreplica.blocking.sender import WAIT_S_MAX, ProducerCallbacks, Sender
from kreplica.client_core.delivery import Delivery
from kreplica.client_core.errors import ClientError, DeliveryFailed, ProducerUnusable, RecordTooLarge, TransactionFailed
from kreplica.client_core.offsets import GroupIdentity, GroupOffsets
from kreplica.client_core.partition_queue import IN_FLIGHT_MAX, OutgoingBatch, PartitionQueue, ProducerIdentity
from kreplica.client_core.partitioning import StickyPartitions
from kreplica.client_core.transaction_coordinator import new_producer_id
from kreplica.client_core.transactions import Phase, TransactionCore
from kreplica.model import TopicPartition
from kreplica.wire.batch_building import BatchBuilder
from kreplica.wire.partitioning import partition_of_key
from kreplica.wire.records import Headers

RECORD_OVERHEAD = 40
"""Maximum overhead of a record in bytes, in addition to its key, value and headers."""

HEADER_OVERHEAD = 10
UTF8_SIZE_MAX = 4


class Producer:
    """Writes records; use it as a context manager, or call ``flush`` and ``close``.

    Records of one partition are written in the order in which they were sent, unless one fails.  If the body of the
    ``with`` statement raises an error, pending records are discarded and an open transaction is aborted.

    :ivar written: number of acknowledged records.
    """

    def __init__(self, cluster: Cluster, options: ProducerOptions | None = None) -> None:
        self._cluster = cluster
        self._options = options = options or ProducerOptions()
        self._runtime = cluster.runtime
        self._queues: dict[TopicPartition, PartitionQueue[OutgoingBatch]] = {}
        self._due_batches: deque[tuple[float, PartitionQueue[OutgoingBatch], OutgoingBatch]] = deque()
        self._sticky = StickyPartitions(cluster.runtime.random)
        self._identity: ProducerIdentity | None = None
        self._transactions: TransactionCore | None = None
        if options.transactional_id is not None:
            self._transactions = TransactionCore(
                cluster.core, options.transactional_id, options.transaction_timeout_s, two_phase=options.two_phase
            )
        self._unusable: ClientError | None = None
        self._failures = self._buffered_bytes = self._batch_count = self.written = 0
        self._first_failure: ClientError | None = None
        self._sender = Sender(
            cluster,
            ProducerCallbacks(
                options.acks,
                options.transactional_id,
                self._get_identity if options.is_idempotent else None,
                self._renew_producer_id,
                self._add_partitions,
                self._on_outcome,
                self._get_transaction_error,
            ),
        )

    # --- records ---

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Send a record; block only while the memory is full.

        :param partition: by default, chosen by key, or a sticky partition if the record has no key.
        :param timestamp_ms: by default, the current time.
        :return: the delivery, whose outcome is set later.
        :raise RecordTooLarge: the record exceeds the producer's memory.
        :raise ClientError: the topic or partition does not exist, or the transaction failed; the record was not
            accepted. If an accepted record fails, its ``Delivery`` contains the error and ``flush`` raises an error.
        """
        if self._unusable is not None or self._transactions is not None:
            self._check_usable()
        queue = None if partition is None else self._queues.get(TopicPartition(topic, partition))
        if queue is None:
            queue = self._choose_queue(topic, key, partition)
        size = RECORD_OVERHEAD + (len(key) if key else 0) + (len(value) if value else 0)
        if headers:
            size += sum(UTF8_SIZE_MAX * len(name) + len(data or b"") + HEADER_OVERHEAD for name, data in headers)
        if size > self._options.memory_size_max:
            limit = self._options.memory_size_max
            raise RecordTooLarge(f"a record of {size:,} bytes exceeds memory_size_max={limit:,}")
        batch = queue.open
        if batch is not None and batch.builder is not None and batch.builder.size + size > self._options.batch_size:
            self._close_batch(queue)
            self.poll()
            batch = None
        if batch is None:
            batch = self._open_batch(queue)
        builder = batch.builder
        assert builder is not None
        before = builder.size
        record_time_ms = self._runtime.wall_clock_ms() if timestamp_ms is None else timestamp_ms
        builder.append(record_time_ms, key, value, headers)
        self._buffered_bytes += builder.size - before
        delivery = Delivery(batch.outcome, builder.record_count - 1)
        if self._buffered_bytes > self._options.memory_size_max or self._runtime.clock() >= self._due_batches[0][0]:
            self._free_memory()
        return delivery

    def send_batch(self, partition: TopicPartition, data: bytearray, count: int) -> Delivery:
        """Send an encoded batch; block only while the memory is full.

        :param data: a record batch without a producer id, which is transactional if this producer is.  The producer
            modifies it.
        :param count: number of records.
        :return: the delivery; its offset is that of the first record.
        :raise RecordTooLarge: the batch exceeds the producer's memory.
        :raise ClientError: see ``send``.
        """
        if self._unusable is not None or self._transactions is not None:
            self._check_usable()
        if len(data) > self._options.memory_size_max:
            limit = self._options.memory_size_max
            raise RecordTooLarge(f"a batch of {len(data):,} bytes exceeds memory_size_max={limit:,}")
        queue = self._queues.get(partition) or self._choose_queue(partition.topic, None, partition.partition)
        self._close_batch(queue)
        now_s = self._runtime.clock()
        self._batch_count += 1
        batch = OutgoingBatch(partition, self._batch_count, None, now_s, now_s + self._options.delivery_timeout_s)
        batch.data, batch.count, batch.size = data, count, len(data)
        self._buffered_bytes += batch.size
        queue.waiting.append(batch)
        self._sender.add(queue)
        self._free_memory()
        return Delivery(batch.outcome, 0)

    def poll(self, timeout_s: float = 0.0) -> None:
        """Send due batches and process responses; wait for responses for at most ``timeout_s``."""
        self._close_due()
        self._sender.step(timeout_s)

    def flush(self) -> None:
        """Wait until each record has been written or has failed.

        :raise DeliveryFailed: records that were sent since the last flush were not written.
        """
        self._check_usable(idle=True)
        for queue in self._queues.values():
            self._close_batch(queue)
        while not self._sender.is_idle:
            self._sender.step(WAIT_S_MAX)
        count, first = self._failures, self._first_failure
        self._failures, self._first_failure = 0, None
        if first is not None:
            raise DeliveryFailed(count, first) from first

    def close(self, *, flush: bool = True) -> None:
        """Flush and close the connections; may be called repeatedly.

        :param flush: if False, pending records are discarded.  An open transaction is aborted in either case.
        :raise DeliveryFailed: see ``flush``.
        """
        if isinstance(self._unusable, _ProducerClosed):
            return
        transactions = self._transactions
        is_usable = transactions is None or transactions.unusable is None
        try:
            if transactions is not None and transactions.phase is Phase.OPEN and is_usable:
                self.abort()
            elif flush and is_usable:
                self.flush()
        finally:
            self._unusable = _ProducerClosed("the producer is closed")
            self._sender.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close(flush=error is None)

    # --- transactions ---

    @property
    def is_transactional(self) -> bool:
        """True if this producer has a transactional id."""
        return self._transactions is not None

    @property
    def identity(self) -> ProducerIdentity | None:
        """Producer id and epoch; None before the first request that needs them."""
        return self._identity if self._transactions is None else self._transactions.identity

    def begin(self) -> None:
        """Begin a transaction; the first one fences earlier producers of the transactional id.

        :raise ValueError: the options have no transactional id, or a transaction is open.
        :raise ProducerUnusable: another producer has started with the transactional id.
        """
        self._restart_sequences(run(self._require_transactions().begin()))

    def commit(self, offsets: GroupOffsets | None = None, group: str = "", metadata: str = "") -> None:
        """Flush and commit the transaction: its records become visible to read_committed consumers.

        :param offsets: offsets to commit for ``group`` with the transaction.
        :raise TransactionFailed: a record was not written; call ``abort`` and begin again.
        :raise OutcomeUnknown: the coordinator did not respond.  This producer is unusable; the next producer with the
            transactional id can begin when the transaction has ended.
        :raise ProducerUnusable: another producer has started with the transactional id.
        """
        with self._ending_transaction() as transactions:
            self._flush_and_add_offsets(transactions, offsets, group, metadata)
            run(transactions.commit())

    def prepare(self, offsets: GroupOffsets | None = None, group: str = "", metadata: str = "") -> ProducerIdentity:
        """Flush, close this producer and leave the transaction open for ``transactions.end_transaction``.

        For parameters and errors, see ``commit``.

        :return: the identity for ``end_transaction``.
        """
        with self._ending_transaction() as transactions:
            self._flush_and_add_offsets(transactions, offsets, group, metadata)
            transactions.phase = Phase.IDLE
        self.close(flush=False)
        assert transactions.identity is not None
        return transactions.identity

    def abort(self) -> None:
        """Abort the transaction: its records never become visible to read_committed consumers."""
        with self._ending_transaction() as transactions:
            error = transactions.broken = transactions.broken or TransactionFailed("the transaction was aborted")
            for queue in self._queues.values():
                self._close_batch(queue)
            is_uncertain = self._sender.drop(error) or any(queue.must_restart for queue in self._queues.values())
            self._restart_sequences(run(transactions.abort(is_uncertain=is_uncertain)))
            self._failures, self._first_failure = 0, None

    def _flush_and_add_offsets(
        self, transactions: TransactionCore, offsets: GroupOffsets | None, group: str, metadata: str
    ) -> None:
        """Flush and add a group's offsets to the transaction."""
        try:
            self.flush()
        except DeliveryFailed as error:
            transactions.fail(error)
        transactions.check()
        if offsets:
            run(transactions.add_offsets(offsets, GroupIdentity(group), metadata))

    @contextmanager
    def _ending_transaction(self) -> Iterator[TransactionCore]:
        """Yield the open transaction; it stays open if the block raises an error."""
        transactions = self._require_transactions()
        transactions.expect(Phase.OPEN)
        try:
            transactions.phase = Phase.ENDING
            yield transactions
        finally:
            if transactions.phase is Phase.ENDING:
                transactions.phase = Phase.OPEN

    def _require_transactions(self) -> TransactionCore:
        if self._unusable is not None:
            raise self._unusable
        if self._transactions is None:
            raise ValueError("the producer's options have no transactional_id")
        return self._transactions

    def _restart_sequences(self, identity: ProducerIdentity | None) -> None:
        if identity is not None:
            for queue in self._queues.values():
                queue.restart_with(identity)

    def _check_usable(self, *, idle: bool = False) -> None:
        """Raise the error that makes this producer unusable, if there is one.

        :param idle: True if the operation requires no open transaction.
        """
        if self._unusable is not None:
            raise self._unusable
        transactions = self._transactions
        if transactions is None:
            return
        if transactions.unusable is not None:
            raise transactions.unusable
        if idle:
            return
        if transactions.phase is not Phase.OPEN:
            raise ValueError("a transactional producer requires an open transaction: call begin() first")
        transactions.check()

    # --- batches ---

    def _choose_queue(self, topic: str, key: bytes | None, partition: int | None) -> PartitionQueue[OutgoingBatch]:
        view = self._cluster.view.topics.get(topic) or self._cluster.find_topic(topic)
        if partition is None:
            partition = self._sticky.partition(view) if key is None else partition_of_key(key, len(view.partitions))
        chosen_partition = TopicPartition(topic, partition)
        queue = self._queues.get(chosen_partition)
        if queue is None:
            if view.partition(partition) is None:
                self._cluster.retrying(lambda: self._cluster.partition(chosen_partition), timeout_s=5.0)
            in_flight_max = IN_FLIGHT_MAX if self._options.is_idempotent else 1
            queue = self._queues[chosen_partition] = PartitionQueue[OutgoingBatch](chosen_partition, in_flight_max)
        return queue

    def _open_batch(self, queue: PartitionQueue[OutgoingBatch]) -> OutgoingBatch:
        now_s, options = self._runtime.clock(), self._options
        builder = BatchBuilder(codec=options.codec, transactional=self._transactions is not None)
        self._batch_count += 1
        due_s = now_s + options.linger_s
        batch = OutgoingBatch(queue.partition, self._batch_count, builder, due_s, now_s + options.delivery_timeout_s)
        self._buffered_bytes += builder.size
        queue.open = batch
        self._due_batches.append((due_s, queue, batch))
        return batch

    def _close_batch(self, queue: PartitionQueue[OutgoingBatch]) -> None:
        batch, queue.open = queue.open, None
        if batch is None:
            return
        assert batch.builder is not None
        if not batch.builder.record_count:  # ``send`` was interrupted
            self._buffered_bytes -= batch.builder.size
            return
        self._sticky.full(*queue.partition)
        batch.close()
        queue.waiting.append(batch)
        self._sender.add(queue)

    def _close_due(self) -> None:
        now_s = self._runtime.clock()
        while self._due_batches:
            due_s, queue, batch = self._due_batches[0]
            if due_s > now_s and queue.open is batch:
                return
            self._due_batches.popleft()
            if queue.open is batch:
                self._close_batch(queue)

    def _free_memory(self) -> None:
        self._close_due()
        self._sender.step()
        while self._buffered_bytes > self._options.memory_size_max:
            for queue in self._queues.values():
                self._close_batch(queue)
            self._sender.step(WAIT_S_MAX)

    def _on_outcome(self, batch: OutgoingBatch) -> None:
        self._buffered_bytes -= batch.size
        batch.data = bytearray()
        error = batch.outcome.error
        if error is None:
            self.written += batch.count
        else:
            self._failures += batch.count
            self._first_failure = self._first_failure or error
            if self._transactions is not None:
                self._transactions.fail(error)

    # --- producer id ---

    def _get_identity(self) -> ProducerIdentity:
        if self._transactions is not None:
            assert self._transactions.identity is not None
            return self._transactions.identity
        if self._identity is None:
            self._identity = run(new_producer_id(self._cluster.core))
        return self._identity

    def _renew_producer_id(self) -> None:
        self._identity = None

    def _get_transaction_error(self) -> ClientError | None:
        return None if self._transactions is None else self._transactions.error

    def _add_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        if self._transactions is not None:
            run(self._transactions.add_partitions(partitions))


class _ProducerClosed(ProducerUnusable):
    """The owner closed the producer."""
