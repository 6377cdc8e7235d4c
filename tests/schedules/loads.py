"""Clients that run during faults: transactions, an exactly-once pipeline, and a consumer group."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

PARTITIONS = 3
CLIENT_TIMEOUT_S = 30.0
ABORTED_SHARE = 0.15
WORKER = Path(__file__).parents[1] / "system" / "exactly_once_worker.py"

COMMITTED, ABORTED, UNKNOWN = "committed", "aborted", "unknown"

RECONNECT: dict[str, Any] = {"reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 500, "log_level": 0}


class BackgroundWork:
    """Work in a thread until ``finish`` is called, which raises any unexpected error of the thread."""

    def __init__(self, name: str) -> None:
        self.finishing = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run_and_keep_error, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        """Stop, wait for the end of the thread, and raise the error that ended it early."""
        self.finishing.set()
        self._thread.join(180)
        assert not self._thread.is_alive(), f"the thread {self._thread.name} does not end"
        if self._error is not None:
            raise self._error

    def _run_and_keep_error(self) -> None:
        try:
            self.run()
        except BaseException as error:
            self._error = error

    def run(self) -> None:
        """Do the work; must return soon after ``finishing`` is set."""
        raise NotImplementedError


class Transactions(BackgroundWork):
    """Transactions of one record per partition; some are aborted deliberately.

    :ivar outcomes: number of each transaction -> its outcome as the client knows it.
    """

    def __init__(self, bootstrap_servers: str, topic: str, seed: int) -> None:
        super().__init__("transactions")
        self.outcomes: dict[int, str] = {}
        self.errors: Counter[str] = Counter()
        self._random = Random(seed)
        self._topic = topic
        self._settings = {
            "bootstrap.servers": bootstrap_servers,
            "transactional.id": f"writer-of-{topic}",
            "transaction.timeout.ms": 20_000,
            "linger.ms": 2,
            **RECONNECT,
        }

    @property
    def committed(self) -> int:
        """Number of transactions that are known to be committed."""
        return sum(outcome == COMMITTED for outcome in self.outcomes.values())

    def run(self) -> None:
        number = 0
        while not self.finishing.is_set():
            try:
                producer = Producer(self._settings)
                producer.init_transactions(CLIENT_TIMEOUT_S)
                while not self.finishing.is_set():
                    self._run_transaction(producer, number)
                    number += 1
            except KafkaException as error:
                self.errors[error.args[0].name()] += 1
                number += 1
                time.sleep(0.2)  # the next producer fences this one

    def _run_transaction(self, producer: Producer, number: int) -> None:
        self.outcomes[number] = UNKNOWN
        producer.begin_transaction()
        aborts = self._random.random() < ABORTED_SHARE
        try:
            for partition in range(PARTITIONS):
                producer.produce(self._topic, b"%d" % number, partition=partition)
            if not aborts:
                producer.commit_transaction(CLIENT_TIMEOUT_S)
                self.outcomes[number] = COMMITTED
        except KafkaException as error:
            self.errors[error.args[0].name()] += 1
            if not error.args[0].txn_requires_abort():
                raise  # outcome unknown: the coordinator completes a prepared transaction and aborts any other
            aborts = True
        if aborts:
            producer.abort_transaction(CLIENT_TIMEOUT_S)
            self.outcomes[number] = ABORTED


class Pipeline(BackgroundWork):
    """A process that copies each record of one topic to another exactly once; restarted when it ends."""

    def __init__(self, bootstrap_servers: str, source: str, target: str, log: Path) -> None:
        super().__init__("pipeline")
        self.starts = 0
        self._words = [bootstrap_servers, f"copy-{source}", f"copier-of-{source}", source, target, "200"]
        self._log = log

    def run(self) -> None:
        process: subprocess.Popen[bytes] | None = None
        try:
            while not self.finishing.wait(0.2):
                if process is None or process.poll() is not None:
                    self.starts += 1
                    with open(self._log, "ab") as log:
                        command = [sys.executable, str(WORKER), *self._words, str(self.starts)]
                        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        finally:
            if process is not None:
                process.kill()
                process.wait()


class GroupMember(BackgroundWork):
    """One member of a consumer group that repeatedly commits its position.

    :ivar read: (partition, offset) of each record.
    :ivar jumps: one sentence per assignment that started below the committed offset or above the records read.
    """

    def __init__(self, bootstrap_servers: str, topic: str, shared: GroupPositions) -> None:
        super().__init__("member")
        self.read: set[tuple[int, int]] = set()
        self._shared = shared
        self._topic = topic
        self._settings = {
            "bootstrap.servers": bootstrap_servers,
            "group.id": f"group-of-{topic}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6000,
            "partition.assignment.strategy": "cooperative-sticky",
            **RECONNECT,
        }

    def run(self) -> None:
        consumer = Consumer(self._settings)
        consumer.subscribe([self._topic])
        first: set[int] = set()
        try:
            while not self.finishing.is_set():
                for message in consumer.consume(500, 0.2):
                    if message.error() is None:
                        partition, offset = message.partition(), message.offset()
                        self._shared.was_read(partition, offset, is_first=partition not in first)
                        first.add(partition)
                        self.read.add((partition, offset))
                first &= {row.partition for row in consumer.assignment()}
                self._commit(consumer)
        finally:
            consumer.close()

    def _commit(self, consumer: Consumer) -> None:
        rows = [row for row in consumer.position(consumer.assignment()) if row.offset >= 0]
        if not rows:
            return
        try:
            done = consumer.commit(offsets=rows, asynchronous=False)
        except KafkaException:
            return  # outcome unknown; the next commit is at the same offset or higher
        for row in done or ():
            if row.error is None:
                self._shared.was_committed(row.partition, row.offset)


class GroupPositions:
    """Positions of all members of a group by partition.

    :ivar jumps: one sentence per assignment that started below the committed offset or above the records read.
    """

    def __init__(self) -> None:
        self.committed = [0] * PARTITIONS
        self.jumps: list[str] = []
        self._read_end = [0] * PARTITIONS
        self._lock = threading.Lock()

    def was_committed(self, partition: int, offset: int) -> None:
        """Record a successful commit; commits of earlier generations are rejected."""
        with self._lock:
            self.committed[partition] = max(self.committed[partition], offset)

    def was_read(self, partition: int, offset: int, *, is_first: bool) -> None:
        """Record a record that a member received.

        :param is_first: True for the first record of an assignment, which shows the coordinator's committed offset.
        """
        with self._lock:
            if is_first and offset < self.committed[partition]:
                self.jumps.append(f"partition {partition} resumed at {offset}, committed: {self.committed[partition]}")
            if offset > self._read_end[partition]:
                self.jumps.append(f"partition {partition} skipped {self._read_end[partition]} to {offset}")
            self._read_end[partition] = max(self._read_end[partition], offset + 1)


def read_all(bootstrap_servers: str, topic: str, isolation: str, timeout_s: float = 90.0) -> list[list[Any]]:
    """Read all messages of a topic by partition, from the first offset to the current end offset.

    :param isolation: ``read_committed`` or ``read_uncommitted``.
    :raise AssertionError: a partition could not be read to its end in time.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "none",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            **RECONNECT,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    messages: list[list[Any]] = [[] for _ in range(PARTITIONS)]
    ended: set[int] = set()
    deadline_s = time.monotonic() + timeout_s
    while len(ended) < PARTITIONS:
        assert time.monotonic() < deadline_s, f"{topic}: only {len(ended)} partitions were read to their end"
        for message in consumer.consume(5000, 0.5):
            partition = message.partition()
            if message.error() is not None:
                if message.error().name() == "_PARTITION_EOF":
                    ended.add(partition)
            else:
                messages[partition].append(message)
                ended.discard(partition)
    consumer.close()
    return messages
