"""A producer and a consumer that use librdkafka, and a check that their results are consistent.

Values have the form ``PARTITION/NUMBER`` of ``histories``, which reveals losses, duplicates and wrong order.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition

from kreplica.testing.histories.record_history import number_of

TICK_S = 0.01
FLUSH_S_MAX = 120.0
READ_S_MAX = 60.0

RECONNECT = {"reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 500, "log_level": 0}


class SteadyProducer:
    """An idempotent producer with ``acks=all`` that runs in its own thread at a steady rate until ``finish``.

    :ivar sent: partition -> number of records passed to the client.
    :ivar acknowledged: partition -> offset -> number of the record.
    :ivar without_offset: records that are in the log at an unknown offset: the client concluded from a later
        acknowledgement, or from the rejection of a retry, that only the response was lost.
    :ivar failures: delivery errors; a retry in progress is not a failure.
    :ivar longest_silence_s: the longest time without an acknowledgement.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        partitions: int,
        *,
        records_per_second: int = 500,
        size_max: int = 500,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.sent = [0] * partitions
        self.acknowledged: list[dict[int, int]] = [{} for _ in range(partitions)]
        self.without_offset = 0
        self.failures: list[str] = []
        self.longest_silence_s = 0.0
        self._topic = topic
        self._per_second = records_per_second
        self._size_max = size_max
        self._acknowledged_count = 0
        self._acknowledged_s = time.monotonic()
        self._changed = threading.Condition()
        self._finishing = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "delivery.timeout.ms": 120_000,
                "retry.backoff.ms": 50,
                "topic.metadata.refresh.interval.ms": 5000,
                **RECONNECT,
                **(settings or {}),
            }
        )
        self._thread = threading.Thread(target=self._run, name="producer", daemon=True)
        self._thread.start()

    @property
    def sent_count(self) -> int:
        """Number of records passed to the client."""
        return sum(self.sent)

    @property
    def acknowledged_count(self) -> int:
        """Number of records known to be in the log."""
        return self._acknowledged_count

    def wait_for_more(self, count: int, timeout_s: float = 30.0) -> None:
        """Wait until ``count`` more records are acknowledged.

        :raise AssertionError: they were not acknowledged in time.
        """
        with self._changed:
            wanted = self._acknowledged_count + count
            came = self._changed.wait_for(lambda: self._acknowledged_count >= wanted, timeout_s)
            missing = wanted - self._acknowledged_count
        assert came, f"{missing} of {count} records are not acknowledged in {timeout_s:g} s; {self.failures[:3]}"

    def finish(self) -> None:
        """Stop sending, and wait until every record is acknowledged.

        :raise AssertionError: a record was not acknowledged.
        """
        self._finishing.set()
        self._thread.join()
        left = self._producer.flush(FLUSH_S_MAX)
        assert not left, f"{left} records were not acknowledged"
        assert not self.failures, f"{len(self.failures)} records failed: {self.failures[:3]}"
        assert self._acknowledged_count == self.sent_count

    def abandon(self) -> None:
        """Stop sending without waiting, at the end of a failed test; does nothing the second time."""
        self._finishing.set()
        self._thread.join()
        self._producer.purge()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.abandon()

    def _run(self) -> None:
        begin_s = time.monotonic()
        while not self._finishing.wait(TICK_S):
            due = int((time.monotonic() - begin_s) * self._per_second)
            while self.sent_count < due and self._send():
                pass
            self._producer.poll(0)

    def _send(self) -> bool:
        """Send a record; return False if the client's queue is full."""
        partition = self.sent_count % len(self.sent)
        number = self.sent[partition]
        value = (b"%d/%d " % (partition, number)).ljust(number * 7919 % self._size_max, b".")
        try:
            self._producer.produce(self._topic, value, partition=partition, on_delivery=self._delivered)
        except BufferError:
            return False
        self.sent[partition] += 1
        return True

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        partition, offset, value = message.partition(), message.offset(), message.value()
        with self._changed:
            now_s = time.monotonic()
            self.longest_silence_s = max(self.longest_silence_s, now_s - self._acknowledged_s)
            self._acknowledged_s = now_s
            if error is not None:
                self.failures.append(str(error))
                return
            self._acknowledged_count += 1
            if partition is None or value is None or offset is None or offset < 0:
                self.without_offset += 1
            else:
                self.acknowledged[partition][offset] = number_of(bytes(value), partition)
            self._changed.notify_all()


class TailingReader:
    """A consumer of all partitions, from the first record, that runs in its own thread until ``finish``.

    :ivar read: partition -> (offset, number) of each record, in order of arrival.
    """

    def __init__(
        self, bootstrap_servers: str, topic: str, partitions: int, *, settings: Mapping[str, Any] | None = None
    ) -> None:
        self.read: list[list[tuple[int, int]]] = [[] for _ in range(partitions)]
        self._finishing = threading.Event()
        # librdkafka requires a group ID even if no group is used.
        group = {"group.id": "none", "enable.auto.commit": False, "auto.offset.reset": "error"}
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "fetch.error.backoff.ms": 50,
                **group,
                **RECONNECT,
                **(settings or {}),
            }
        )
        self._consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(partitions)])
        self.errors: list[str] = []
        self._thread = threading.Thread(target=self._run, name="reader", daemon=True)
        self._thread.start()

    def finish(self, ends: list[int], timeout_s: float = READ_S_MAX) -> None:
        """Wait until every partition has been read up to its end.

        :param ends: the end offset of each partition, which equals the number of records sent to it.
        :raise AssertionError: the end was not reached in time.
        """
        deadline_s = time.monotonic() + timeout_s
        while any(self.position(p) < end for p, end in enumerate(ends)) and time.monotonic() < deadline_s:
            time.sleep(TICK_S)
        self.abandon()
        positions = [self.position(p) for p in range(len(ends))]
        assert all(at >= end for at, end in zip(positions, ends, strict=True)), (
            f"read up to {positions}, acknowledged up to {ends}; last errors of the reader: {self.errors[-3:]}"
        )

    def position(self, partition: int) -> int:
        """Return the offset after the last record read."""
        read = self.read[partition]
        return read[-1][0] + 1 if read else 0

    def abandon(self) -> None:
        """Stop reading; does nothing the second time."""
        self._finishing.set()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.abandon()

    def _run(self) -> None:
        while not self._finishing.is_set():
            for message in self._consumer.consume(1000, 0.1):
                error = message.error()
                if error is not None:
                    self.errors.append(str(error))
                    continue
                partition, offset, value = message.partition(), message.offset(), message.value()
                assert partition is not None
                assert offset is not None
                assert value is not None
                self.read[partition].append((offset, number_of(bytes(value), partition)))
        self._consumer.close()


def check_exactly_once(producer: SteadyProducer, reader: TailingReader) -> None:
    """Check that every record was read exactly once, in the order of sending and at the acknowledged offset.

    :raise AssertionError: a record was lost, duplicated, reordered or read at another offset.
    """
    for partition, read in enumerate(reader.read):
        offsets = [offset for offset, _ in read]
        assert offsets == list(range(len(offsets))), f"partition {partition} was not read offset by offset"
        numbers = [number for _, number in read]
        assert numbers == list(range(len(numbers))), f"partition {partition}: {_first_break(numbers)}"
        values = dict(read)
        for offset, number in producer.acknowledged[partition].items():
            assert values.get(offset) == number, (
                f"{partition}/{number} was acknowledged at {offset}, where {values.get(offset)} was read"
            )


def _first_break(numbers: list[int]) -> str:
    at = next(i for i, number in enumerate(numbers) if number != i)
    return f"{numbers[max(at - 3, 0) : at]} is followed by {numbers[at : at + 3]}"
