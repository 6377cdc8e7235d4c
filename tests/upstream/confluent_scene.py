"""Clients of confluent-kafka that are closed at the end of the test."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

TIME_S_MAX = 30.0
PROTOCOLS = ("classic", "consumer")
"""Group protocols: classic, and KIP-848."""


class Scene:
    """Creates the clients of a test; ``close`` closes the consumers that are still open, in reverse order."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._servers = {"bootstrap.servers": bootstrap_servers}
        self._consumers: list[Consumer] = []
        # Referenced here, because an admin client that is garbage collected returns no responses.
        self.admin = AdminClient(self._servers)

    def consumer(self, group: str, protocol: str = "classic", **options: Any) -> Consumer:
        """Create a consumer that reads from the beginning without automatic commits and reports ends of partitions."""
        usual = {"auto.offset.reset": "earliest", "enable.auto.commit": False, "enable.partition.eof": True}
        quick = {"heartbeat.interval.ms": 200} if protocol == "classic" else {}
        names = {"group.id": group, "group.protocol": protocol}
        consumer = Consumer({**self._servers, **usual, **quick, **names, **librdkafka_names(options)})
        self._consumers.append(consumer)
        return consumer

    def producer(self, **options: Any) -> Producer:
        """Create a producer."""
        return Producer({**self._servers, **librdkafka_names(options)})

    def send(self, topic: str, partition: int, values: Sequence[bytes]) -> None:
        """Write values to a partition."""
        producer = self.producer()
        for value in values:
            producer.produce(topic, value, partition=partition)
        assert producer.flush(TIME_S_MAX) == 0

    def end(self, topic: str, partition: int, level: IsolationLevel) -> int:
        """Return the end offset of a partition for an isolation level."""
        asked = {TopicPartition(topic, partition): OffsetSpec.latest()}
        (future,) = self.admin.list_offsets(asked, isolation_level=level, request_timeout=TIME_S_MAX).values()
        return int(future.result(TIME_S_MAX).offset)

    def committed_values(self, topic: str, partition: int = 0) -> list[bytes]:
        """Wait until no transaction is open, and return the partition's committed values."""

        def are_transactions_ended() -> bool:
            # Markers are written after the response to the commit.
            return len({self.end(topic, partition, level) for level in IsolationLevel}) == 1

        wait_until(
            are_transactions_ended, f"an end of the transactions of {topic}-{partition}", lambda: time.sleep(0.05)
        )
        reader = self.consumer(f"{topic}-reader", **{"isolation.level": "read_committed"})
        reader.assign([TopicPartition(topic, partition, 0)])
        values = [message.value() for message in read_to_the_end(reader, 1)]
        reader.close()
        return values

    def close(self) -> None:
        """Close the consumers."""
        for consumer in reversed(self._consumers):
            consumer.close()


def librdkafka_names(options: dict[str, Any]) -> dict[str, Any]:
    """Convert names to librdkafka's: ``max_poll_interval_ms`` is ``max.poll.interval.ms``."""
    return {name.replace("_", "."): value for name, value in options.items()}


def read(consumer: Consumer, count: int) -> list[Message]:
    """Return ``count`` records in the order in which they are received."""
    found: list[Message] = []
    wait_until(lambda: len(found) == count, "enough records", lambda: found.extend(_poll(consumer)))
    return found


def read_to_the_end(consumer: Consumer, partitions: int) -> list[Message]:
    """Return all records below the ends of all partitions."""
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


def wait_until_shared(consumers: Sequence[Consumer], partitions: int) -> None:
    """Poll until the partitions are assigned, each to one consumer, and each consumer has one."""

    def are_shared() -> bool:
        assigned = [(tp.topic, tp.partition) for consumer in consumers for tp in consumer.assignment()]
        return len(assigned) == len(set(assigned)) == partitions and all(each.assignment() for each in consumers)

    def poll() -> None:
        for consumer in consumers:
            message = consumer.poll(0.05)
            assert message is None or message.error() is not None, "the topic should still be empty"

    wait_until(are_shared, f"{partitions} partitions spread over {len(consumers)} consumers", poll)


def wait_until(condition: Callable[[], bool], what: str, meanwhile: Callable[[], object]) -> None:
    """Call ``meanwhile`` repeatedly until the condition is true."""
    end = time.monotonic() + TIME_S_MAX
    while not condition():
        assert time.monotonic() < end, f"{what} did not happen within {TIME_S_MAX:g} s"
        meanwhile()


def _poll(consumer: Consumer) -> list[Message]:
    message = consumer.poll(0.1)
    return [message] if message is not None and message.error() is None else []
