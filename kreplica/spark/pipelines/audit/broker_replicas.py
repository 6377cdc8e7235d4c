"""Replicas fetched from their brokers as a debug consumer (replica ID -2), for the audit.

A debug consumer can fetch from any replica, leader or not, and beyond the high watermark.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from typing import Any, NamedTuple

from kreplica.blocking.blocking_runtime import default_runtime
from kreplica.blocking.connection import Connection, PendingRequest
from kreplica.client_core.addresses import Address
from kreplica.client_core.errors import BrokerRefused, ClientError, check
from kreplica.client_core.fetch_requests import TOPIC_NAMES_VERSION_MAX, FetchLimits, fetch_body
from kreplica.client_core.fetched_batches import Isolation
from kreplica.client_core.offsets import EARLIEST, list_offsets_body, parse_list_offsets
from kreplica.client_core.options import ClientOptions
from kreplica.client_core.retries import RetrySchedule
from kreplica.errors import ErrorCode, ProtocolError
from kreplica.model import TopicPartition
from kreplica.spark.connection_security import PLAINTEXT, ConnectionSecurity
from kreplica.spark.pipelines.audit.replica_comparison import Batch, Gap, LogStartMoved
from kreplica.storage.formats.leader_epochs import EpochEntry
from kreplica.wire.batches import iter_headers, verify_crc
from kreplica.wire.messages import FETCH, LIST_OFFSETS

DEBUG_CONSUMER_ID = -2
FETCH_SIZE = 8 << 20
FETCH_WAIT_MS = 100


class BrokerReplica(NamedTuple):
    """A ``Replica`` fetched from its broker; sent to executors.

    :param size_bytes: approximate; 0 if unknown.
    """

    broker: int
    address: Address
    partition: TopicPartition
    size_bytes: int
    required_end: int
    client: ClientOptions
    security: ConnectionSecurity = PLAINTEXT
    epochs: tuple[EpochEntry, ...] = ()

    def first_offset(self) -> int:
        """Return the current log start offset.

        :raise BrokerRefused: the broker does not have the replica.
        :raise ClientError: the broker does not respond.
        """
        body = list_offsets_body({self.partition: EARLIEST}, Isolation.READ_UNCOMMITTED)
        body |= {"replica_id": DEBUG_CONSUMER_ID}
        schedule = self._retry_schedule()
        while True:
            try:
                with self._connect() as connection:
                    earliest = parse_list_offsets(connection.request(LIST_OFFSETS, body))[self.partition]
                if isinstance(earliest, ClientError):
                    raise earliest
                return earliest.offset
            except ClientError as error:
                self._wait(error, schedule)

    def cleaned_end(self) -> int:
        """Return 0: brokers do not report how far they compacted the log."""
        return 0

    def batches(self, start: int, end: int) -> Iterator[Batch | Gap]:
        """Yield the batches whose last offset is in a range."""
        offset = start
        schedule = self._retry_schedule()
        while offset < end:
            try:
                with closing(self._fetch_rows(offset, end)) as rows:
                    for row in rows:
                        check(row, f"fetch of {self.partition} from broker {self.broker}")
                        data = memoryview(row["records"] or b"")
                        if not len(data):
                            return  # the log ends here
                        schedule = self._retry_schedule()
                        for item in _items(data, offset, end):
                            offset = item.header.next_offset if isinstance(item, Batch) else item.next_offset
                            yield item
                        offset = max(offset, _next_offset(data))
                return
            except BrokerRefused as error:
                if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                    if self.first_offset() > offset:
                        text = f"{self.partition} starts after {offset} on broker {self.broker}"
                        raise LogStartMoved(text) from error
                    return
                if error.code is ErrorCode.CORRUPT_MESSAGE:
                    yield Gap(offset, end, f"the broker responded with {error}; offsets up to {end} were not read")
                    return
                self._wait(error, schedule)
            except ClientError as error:
                self._wait(error, schedule)

    def _fetch_rows(self, offset: int, end: int) -> Generator[dict[str, Any], None, None]:
        """Yield the broker's responses for the partition; the next fetch runs while a response is processed."""
        with self._connect() as connection:
            pending: PendingRequest | None = self._send_fetch(connection, offset)
            while pending is not None:
                while pending.response is None:
                    connection.receive(self.client.request_timeout_s)
                response, pending = pending.response, None
                code = ErrorCode.of(response.get("error_code", 0))
                if code is not ErrorCode.NONE:
                    raise BrokerRefused(code, f"fetch of {self.partition} from broker {self.broker}")
                row = response["responses"][0]["partitions"][0]
                if row["error_code"] == 0 and row["records"]:
                    next_offset = _next_offset(memoryview(row["records"]))
                    if offset < next_offset < end:
                        offset = next_offset
                        pending = self._send_fetch(connection, offset)
                yield row

    def _send_fetch(self, connection: Connection, offset: int) -> PendingRequest:
        limits = FetchLimits(
            isolation=Isolation.READ_UNCOMMITTED,
            wait_ms=FETCH_WAIT_MS,
            size_min=1,
            size_max=FETCH_SIZE,
            partition_size_max=FETCH_SIZE,
        )
        body = fetch_body({self.partition: offset}, limits) | {"replica_id": DEBUG_CONSUMER_ID}
        version = connection.version(FETCH, TOPIC_NAMES_VERSION_MAX)
        return connection.send(FETCH, body, version=version, timeout_s=self.client.request_timeout_s)

    def _connect(self) -> Connection:
        return Connection.open(self.address, self.client, self.security.runtime())

    def _retry_schedule(self) -> RetrySchedule:
        runtime = default_runtime()
        return RetrySchedule(self.client, runtime.random, runtime.clock())

    @staticmethod
    def _wait(error: ClientError, schedule: RetrySchedule) -> None:
        """Wait before the next attempt.

        :raise ClientError: the error is not retriable, or the retry timeout has expired.
        """
        if not error.retriable:
            raise error
        runtime = default_runtime()
        runtime.sleep(schedule.delay_s(error, runtime.clock()))


def _items(data: memoryview, offset: int, end: int) -> Iterator[Batch | Gap]:
    """Yield those batches of a response whose last offset is after ``offset`` and before ``end``."""
    try:
        for position, header in iter_headers(data, incomplete_last=True):
            if header.next_offset > end:
                return
            if header.next_offset > offset:
                batch = data[position : position + header.size]
                yield Batch(header, batch, verify_crc(batch, header))
                offset = header.next_offset
    except ProtocolError as error:
        yield Gap(offset, end, f"invalid batch: {error}; offsets up to {end} were not read")


def _next_offset(data: memoryview) -> int:
    """Return the offset after the last complete batch; 0 if there is none."""
    next_offset = 0
    try:
        for _, header in iter_headers(data, incomplete_last=True):
            next_offset = max(next_offset, header.next_offset)
    except ProtocolError:
        pass
    return next_offset
