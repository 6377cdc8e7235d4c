"""Repeated ``kill -9`` under load: no acknowledged record is lost, and none is duplicated."""

import random
import threading
import time

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from tests.support.standalone import StandaloneProcess

PARTITIONS = 3

# confluent-kafka's consumers require a group, even if they do not use it.
NO_GROUP = {"group.id": "none", "enable.auto.commit": False}


class Load:
    """An idempotent producer that runs continuously, and its acknowledged records: (partition, offset) -> value."""

    def __init__(self, bootstrap_servers):
        self.acknowledged = {}
        self.failed = []
        self.sent = 0
        self._stop = threading.Event()
        self._acked_condition = threading.Condition()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "enable.idempotence": True,
                "linger.ms": 2,
                "reconnect.backoff.max.ms": 200,
                "delivery.timeout.ms": 120_000,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _delivered(self, error, message):
        with self._acked_condition:
            if error:
                self.failed.append(error)
            else:
                self.acknowledged[message.partition(), message.offset()] = message.value()
            self._acked_condition.notify_all()

    def _run(self):
        while not self._stop.is_set():
            value = b"%d " % self.sent + b"x" * (self.sent % 700)
            try:
                self._producer.produce("load", value, partition=self.sent % PARTITIONS, on_delivery=self._delivered)
                self.sent += 1
            except BufferError:
                self._producer.poll(0.05)
            self._producer.poll(0)

    def wait_for_more(self, count, timeout_s=30):
        """Wait until the given number of further records is acknowledged."""
        with self._acked_condition:
            target = len(self.acknowledged) + count
            assert self._acked_condition.wait_for(lambda: len(self.acknowledged) >= target, timeout_s), (
                "too few records were acknowledged"
            )

    def finish(self):
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(60) == 0


def read_all(bootstrap_servers):
    """Return all records of the topic: (partition, offset, value)."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, **NO_GROUP, "enable.partition.eof": True})
    ends = {p: consumer.get_watermark_offsets(TopicPartition("load", p), 20)[1] for p in range(PARTITIONS)}
    consumer.assign([TopicPartition("load", p, OFFSET_BEGINNING) for p in range(PARTITIONS)])
    found, finished = [], set()
    deadline = time.monotonic() + 120
    while len(finished) < PARTITIONS:
        assert time.monotonic() < deadline
        for message in consumer.consume(10_000, 1):
            if message.error():
                finished.add(message.partition())
            else:
                found.append((message.partition(), message.offset(), message.value()))
    consumer.close()
    assert {p: max(o for q, o, _ in found if q == p) + 1 for p in range(PARTITIONS)} == ends
    return found


def kill_and_restart(directory, kills):
    rng = random.Random(7)
    process = StandaloneProcess(directory).start()
    try:
        # A topic with several partitions, created with the initial settings.
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": process.bootstrap_servers})
        admin.create_topics([NewTopic("load", PARTITIONS, 1, config={"segment.bytes": "2000000"})])["load"].result(20)
        load = Load(process.bootstrap_servers)
        try:
            for _ in range(kills):
                load.wait_for_more(rng.randrange(200, 20_000))
                process.kill()
                process.start()
            load.wait_for_more(1000)
        finally:
            load.finish()
        found = read_all(process.bootstrap_servers)
    finally:
        process.kill()
    assert load.failed == []
    assert len(load.acknowledged) == load.sent
    by_position = {(partition, offset): value for partition, offset, value in found}
    assert len(by_position) == len(found)
    assert {position: by_position.get(position) for position in load.acknowledged} == load.acknowledged
    values = [value for _, _, value in found]
    assert len(set(values)) == len(values), "a record is duplicated"
    for partition in range(PARTITIONS):
        numbers = [int(value.split()[0]) for p, _, value in found if p == partition]
        assert numbers == sorted(numbers), "out of order"


def test_kill_three_times(tmp_path):
    """The load comes from a third-party idempotent producer."""
    kill_and_restart(tmp_path, 3)


@pytest.mark.soak
def test_kill_twenty_times(tmp_path):
    kill_and_restart(tmp_path, 20)
