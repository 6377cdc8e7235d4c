"""Validation of produced batches whose records have to be read: small ones at once, large ones off the reactor.

A compressed batch is decompressed and its records are walked, as Kafka's brokers do (LogValidator).  The records of an
uncompressed batch are walked if its topic is compacted, has a ``compression.type`` or limits timestamps.  Work of more
than about a millisecond runs in the offload; meanwhile the connection is held, so that no later request overtakes this
one.  ``storage/segments/batch_validation.py`` validates every batch, including its CRC, when it is appended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from kreplica.cluster.topic_names import INTERNAL_TOPICS
from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import TopicPartition
from kreplica.replication import Partition, Partitions
from kreplica.runtime.offload import Offload, release_gil
from kreplica.server.protocol.connection import Connection
from kreplica.storage.log_config import LogConfig
from kreplica.storage.segments.batch_validation import ValidatedBatch, validate
from kreplica.wire.batches import ATTRIBUTES_POSITION, CODEC_MASK, HEADER_SIZE, MAGIC, MAGIC_POSITION, Bytes
from kreplica.wire.compression import DecompressedTooLarge
from kreplica.wire.message_sets import is_message_set
from kreplica.wire.records import DECOMPRESSED_SIZE_MAX

log = Logger()

PACKED_SIZE_MAX = 32 * 1024
"""Maximum bytes of batches, as sent, that are validated on the reactor for one request."""

DECOMPRESSED_ON_REACTOR_MAX = 64 * 1024
"""Maximum bytes of decompressed records that are validated on the reactor for one request."""

RECORDS_MAX = 1000
"""Maximum number of records that are validated on the reactor for one request."""

RUNNING_MAX = 2
"""Maximum number of concurrent validations in the thread pool, which leaves threads for disks and bounds memory."""

PORTION_SIZE = 256 * 1024
"""Maximum bytes of one request's batches, as sent, that are validated before another request has its turn."""

WAITING_BYTES_MAX = 256 * 1024 * 1024
"""Maximum bytes of batches, as sent, that may wait; beyond that, requests are rejected with a retriable error."""

_RECORD_COUNT = Struct(">i")
_RECORD_COUNT_POSITION = HEADER_SIZE - _RECORD_COUNT.size


class Unvalidated(NamedTuple):
    """Location of a batch, where its ``ValidatedBatch`` replaces it after validation.

    :param container: a partition's row of a request, or the records of a run.
    :param key: key or index of the batch in its container.
    """

    config: LogConfig
    container: Any
    key: Any

    @property
    def records(self) -> Bytes:
        """The batch."""
        records: Bytes = self.container[self.key]
        return records


def must_be_read(partition: Partition, records: Bytes) -> bool:
    """Return whether the records of the batch must be read before it can be appended."""
    if not can_append_here(partition, records) or len(records) < HEADER_SIZE or records[MAGIC_POSITION] != MAGIC:
        return False
    return bool(records[ATTRIBUTES_POSITION] & CODEC_MASK or partition.log.config.reads_all_records)


def can_append_here(partition: Partition, records: Bytes) -> bool:
    """Return whether this broker can append the batch, judged by its role, the topic and the size."""
    if not partition.role.is_leader or partition.topic_partition.topic in INTERNAL_TOPICS:
        return False
    return len(records) <= partition.log.config.append_size_max


def to_validate(
    partitions: Partitions, topics: Sequence[dict[str, Any]], *, is_large: bool, formats_before_2: bool
) -> list[Unvalidated]:
    """Return the batches of a Produce request whose records must be read before anything is appended.

    :param is_large: include uncompressed batches; those of a small request are read when they are appended.
    :param formats_before_2: message sets of formats 0 and 1 are converted; otherwise the log rejects them.
    """
    batches = []
    for topic in topics:
        for data in topic["partition_data"]:
            records = data["records"]
            if records is None:
                continue
            if is_message_set(records):
                partition = partitions.get(TopicPartition(topic["name"], data["index"]))
                if formats_before_2 and partition is not None and can_append_here(partition, records):
                    batches.append(Unvalidated(partition.log.config, data, "records"))
            elif len(records) < HEADER_SIZE:
                continue
            elif is_large or records[ATTRIBUTES_POSITION] & CODEC_MASK:
                partition = partitions.get(TopicPartition(topic["name"], data["index"]))
                if partition is not None and must_be_read(partition, records):
                    batches.append(Unvalidated(partition.log.config, data, "records"))
    return batches


class BatchValidation:
    """Validates batches for one broker.

    :param size_max: maximum decompressed size of one batch's records in bytes.
    """

    def __init__(
        self, offload: Offload, wall_clock_ms: Callable[[], int], size_max: int = DECOMPRESSED_SIZE_MAX
    ) -> None:
        self.waiting_bytes = 0
        self.running = 0
        self._offload = offload
        self._wall_clock_ms = wall_clock_ms
        self._size_max = size_max
        self._waiting: deque[_Job] = deque()

    def validate_now(self, batches: list[Unvalidated]) -> bool:
        """Validate the batches of one request on the reactor if they are small.

        :return: false if they are not; some of them may have been validated.
        """
        if sum(len(batch.records) for batch in batches) > PACKED_SIZE_MAX:
            return False
        if any(is_message_set(batch.records) for batch in batches):
            return False  # message sets are too rare for a fast path
        counts = [_RECORD_COUNT.unpack_from(batch.records, _RECORD_COUNT_POSITION)[0] for batch in batches]
        if sum(max(count, 0) for count in counts) > RECORDS_MAX:
            return False
        now_ms = self._wall_clock_ms()
        size_left = min(DECOMPRESSED_ON_REACTOR_MAX, self._size_max)
        for config, container, key in batches:
            try:
                validated = validate(container[key], config, now_ms, size_left)
            except DecompressedTooLarge:
                return False
            size_left -= validated.decompressed_size
            container[key] = validated
        return True

    def validate_later(
        self, connection: Connection, batches: list[Unvalidated], done: Callable[[], None], *, needed: bool = True
    ) -> None:
        """Validate the batches of one request off the reactor; its connection is held meanwhile.

        :param batches: the caller has copied their records.
        :param done: called when all are validated; if the connection closes first, called only if not ``needed``.
        :param needed: True if the client needs the response, so the request ends when its connection closes.
        """
        size = sum(len(batch.records) for batch in batches)
        if self.waiting_bytes and self.waiting_bytes + size > WAITING_BYTES_MAX:
            rejection = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "too many batches are waiting to be validated")
            for config, container, key in batches:
                container[key] = ValidatedBatch.rejected(container[key], config, rejection)
            done()
            return
        job = _Job(connection, deque(batches), size, done, needed)
        self.waiting_bytes += size
        connection.hold()
        self._waiting.append(job)
        self._start()

    def _start(self) -> None:
        while self._waiting and self.running < RUNNING_MAX:
            job = self._waiting.popleft()
            if job.is_needed:
                self.running += 1
                self._run(job)
            else:
                self._end(job)

    def _run(self, job: _Job) -> None:
        portion = job.next_portion()
        # Another thread reads the batches; nothing in this thread can change them in the meantime.
        work = [(batch.records, batch.config) for batch in portion]
        deferred: Deferred[list[ValidatedBatch]] = self._offload.run(
            _validate_all, work, self._wall_clock_ms(), self._size_max
        )
        deferred.addCallbacks(self._validated, self._failed, callbackArgs=(job, portion), errbackArgs=(job, portion))
        deferred.addErrback(lambda failure: log.failure("handling validated batches failed", failure))

    def _validated(self, validated: list[ValidatedBatch], job: _Job, portion: list[Unvalidated]) -> None:
        for (_, container, key), batch in zip(portion, validated, strict=True):
            container[key] = batch
        self._next(job)

    def _failed(self, failure: Failure, job: _Job, portion: list[Unvalidated]) -> None:
        log.failure("validating batches failed", failure)
        rejection = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the batch could not be validated")
        for config, container, key in portion:
            container[key] = ValidatedBatch.rejected(container[key], config, rejection)
        self._next(job)

    def _next(self, job: _Job) -> None:
        self.running -= 1
        if job.batches and job.is_needed:
            self._waiting.append(job)
            self._start()
        else:
            self._start()
            self._end(job)

    def _end(self, job: _Job) -> None:
        self.waiting_bytes -= job.size
        if job.is_needed:
            job.connection.release(job.finish)


class _Job:
    """Request with batches that are not validated yet.

    :ivar size: bytes of all its batches as sent.
    """

    __slots__ = ("_needed", "batches", "connection", "done", "size")

    def __init__(
        self, connection: Connection, batches: deque[Unvalidated], size: int, done: Callable[[], None], needed: bool
    ) -> None:
        self.connection = connection
        self.batches = batches
        self.size = size
        self.done = done
        self._needed = needed

    @property
    def is_needed(self) -> bool:
        """False if the request must end because its connection has closed; see ``validate_later``."""
        return not (self.connection.closed and self._needed)

    def finish(self) -> None:
        """Continue handling the request."""
        try:
            self.done()
        except Exception:
            log.failure("a request failed after its batches were validated")
            self.connection.abort("Produce failed")

    def next_portion(self) -> list[Unvalidated]:
        """Remove and return the next batches, at least one and up to ``PORTION_SIZE`` bytes."""
        portion = [self.batches.popleft()]
        size = len(portion[0].records)
        while self.batches and size + len(self.batches[0].records) <= PORTION_SIZE:
            portion.append(self.batches.popleft())
            size += len(portion[-1].records)
        return portion


def _validate_all(batches: list[tuple[Bytes, LogConfig]], now_ms: int, size_max: int) -> list[ValidatedBatch]:
    """Validate batches one after another; runs in a thread of the offload."""
    validated = []
    for records, config in batches:
        try:
            validated.append(validate(records, config, now_ms, size_max, release_gil))
        except DecompressedTooLarge as error:
            rejection = KafkaError(ErrorCode.INVALID_RECORD, f"{error} (kreplica.decompressed.batch.max.bytes)")
            validated.append(ValidatedBatch.rejected(records, config, rejection))
    return validated
