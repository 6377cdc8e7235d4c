"""Clients of confluent-kafka that end with the test."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

TIME_S_MAX = 30.0
PROTOCOLS = ("classic", "consumer")
"""Of groups: that of JoinGroup, and that of KIP-848."""


class Scene:
    """What a test is played with; ``close`` ends every consumer that the test has left open, the last first."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._servers = {"bootstrap.servers": bootstrap_servers}
        self._consumers: list[Consumer] = []
        # Kept: an admin client that nobody has any more gives no answers.
        self.admin = AdminClient(self._servers)

    def consumer(self, group: str, protocol: str = "classic", **options: Any) -> Consumer:
        """A consumer that reads from the beginning, commits nothing by itself and tells of the end of partitions."""
        usual = {"auto.offset.reset": "earliest", "enable.auto.commit": False, "enable.partition.eof": True}
        quick = {"heartbeat.interval.ms": 200} if protocol == "classic" else {}
        names = {"group.id": group, "group.protocol": protocol}
        consumer = Consumer({**self._servers, **usual, **quick, **names, **dotted(options)})
        self._consumers.append(consumer)
        return consumer

    def producer(self, **options: Any) -> Producer:
        """A producer."""
        return Producer({**self._servers, **dotted(options)})

    def send(self, topic: str, partition: int, values: Sequence[bytes]) -> None:
        """Write to a partition."""
        producer = self.producer()
        for value in values:
            producer.produce(topic, value, partition=partition)
        assert producer.flush(TIME_S_MAX) == 0

    def end(self, topic: str, partition: int, level: IsolationLevel) -> int:
        """Where a partition ends for readers of a kind."""
        asked = {TopicPartition(topic, partition): OffsetSpec.latest()}
        (future,) = self.admin.list_offsets(asked, isolation_level=level, request_timeout=TIME_S_MAX).values()
        return int(future.result(TIME_S_MAX).offset)

    def committed(self, topic: str, partition: int = 0) -> list[bytes]:
        """All that a reader of committed records finds in a partition, when no transaction is open there any more."""

        def settled() -> bool:
            # Markers follow the commit of a transaction.
            return len({self.end(topic, partition, level) for level in IsolationLevel}) == 1

        wait_until(settled, f"an end of the transactions of {topic}-{partition}", lambda: time.sleep(0.05))
        reader = self.consumer(f"{topic}-reader", **{"isolation.level": "read_committed"})
        reader.assign([TopicPartition(topic, partition, 0)])
        values = [message.value() for message in read_to_the_end(reader, 1)]
        reader.close()
        return values

    def close(self) -> None:
        """End the consumers."""
        for consumer in reversed(self._consumers):
            consumer.close()


def dotted(options: dict[str, Any]) -> dict[str, Any]:
    """Settings as librdkafka calls them: ``max_poll_interval_ms`` is ``max.poll.interval.ms``."""
    return {name.replace("_", "."): value for name, value in options.items()}


def read(consumer: Consumer, count: int) -> list[Message]:
    """So many records, in the order in which they come."""
    found: list[Message] = []
    wait_until(lambda: len(found) == count, "enough records", lambda: found.extend(_polled(consumer)))
    return found


def read_to_the_end(consumer: Consumer, partitions: int) -> list[Message]:
    """All records up to where each of so many partitions ends."""
    found: list[Message] = []
    ends = set()

    def poll() -> None:
        message = consumer.poll(0.1)
        if message is None:
            return
        error = message.error()
        if error is None:
            found.append(message)
        elif error.code() == KafkaError._PARTITION_EOF:
            ends.add((message.topic(), message.partition()))

    wait_until(lambda: len(ends) == partitions, f"the end of {partitions} partitions", poll)
    return found


def until_shared(consumers: Sequence[Consumer], partitions: int) -> None:
    """Poll until so many partitions are spread over consumers, each to one of them and each of them has some."""

    def shared() -> bool:
        assigned = [(tp.topic, tp.partition) for consumer in consumers for tp in consumer.assignment()]
        return len(assigned) == len(set(assigned)) == partitions and all(each.assignment() for each in consumers)

    def poll() -> None:
        for consumer in consumers:
            message = consumer.poll(0.05)
            assert message is None or message.error() is not None, "the topic should be empty as yet"

    wait_until(shared, f"{partitions} partitions spread over {len(consumers)} consumers", poll)


def wait_until(condition: Callable[[], bool], what: str, meanwhile: Callable[[], object]) -> None:
    """Do something again and again until something is so."""
    end = time.monotonic() + TIME_S_MAX
    while not condition():
        assert time.monotonic() < end, f"{what} did not come about within {TIME_S_MAX:g} s"
        meanwhile()


def _polled(consumer: Consumer) -> list[Message]:
    message = consumer.poll(0.1)
    return [message] if message is not None and message.error() is None else []
