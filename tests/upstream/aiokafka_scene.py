"""Producers and consumers of aiokafka that are closed at the end of the test."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from functools import wraps
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from tests.support.process_cluster import ProcessCluster

TIME_S_MAX = 60.0

Scenario = Callable[["Scene", str], Awaitable[None]]


class Scene:
    """The clients of a scenario, which are closed in reverse order at its end."""

    def __init__(self, bootstrap_servers: str, stack: AsyncExitStack) -> None:
        self.bootstrap_servers = bootstrap_servers
        self._stack = stack

    async def consumer(self, *topics: str, **options: Any) -> AIOKafkaConsumer:
        """Start a consumer that reads from the beginning without automatic commits."""
        usual = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
        consumer = AIOKafkaConsumer(*topics, bootstrap_servers=self.bootstrap_servers, **{**usual, **options})
        await consumer.start()
        self._stack.push_async_callback(consumer.stop)
        return consumer

    async def producer(self, **options: Any) -> AIOKafkaProducer:
        """Start a producer."""
        producer = AIOKafkaProducer(bootstrap_servers=self.bootstrap_servers, **options)
        await producer.start()
        self._stack.push_async_callback(producer.stop)
        return producer

    async def admin(self) -> AIOKafkaAdminClient:
        """Start an admin client."""
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap_servers)
        await admin.start()
        self._stack.push_async_callback(admin.close)
        return admin

    async def send(self, topic: str, partition: int, values: Iterable[int]) -> list[bytes]:
        """Write numbers to a partition, and return them as the consumer reads them."""
        sent = [b"%d" % value for value in values]
        producer = await self.producer()
        for value in sent:
            await producer.send_and_wait(topic, value, partition=partition)
        return sent


async def read(consumer: AIOKafkaConsumer, count: int, *partitions: TopicPartition) -> list[bytes]:
    """Return the values of ``count`` records in the order in which they are received."""
    return [(await asyncio.wait_for(consumer.getone(*partitions), 20)).value for _ in range(count)]


async def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = 20.0) -> None:
    """Wait until the condition is true."""
    for _ in range(int(timeout_s / 0.05)):
        if condition():
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"{what} did not happen within {timeout_s:g} s")


async def wait_until_shared(consumers: Sequence[AIOKafkaConsumer], topic: str, partitions: int) -> None:
    """Wait until a topic's partitions are assigned, each to one consumer, and each consumer has one."""

    def are_shared() -> bool:
        assigned = [tp for consumer in consumers for tp in consumer.assignment() if tp.topic == topic]
        return len(assigned) == len(set(assigned)) == partitions and all(each.assignment() for each in consumers)

    await wait_until(are_shared, f"{topic} spread over {len(consumers)} consumers")


async def check_no_record_arrives(consumer: AIOKafkaConsumer, for_s: float = 0.5) -> None:
    """Check that no record arrives for a while."""
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(consumer.getone(), for_s)


def scenario(test: Scenario) -> Callable[[ProcessCluster, str], None]:
    """Turn a coroutine function, which takes a scene and a topic with two partitions, into a test."""

    @wraps(test)
    def run(cluster: ProcessCluster, topic: str) -> None:
        async def run_in_scene() -> None:
            async with AsyncExitStack() as stack:
                await asyncio.wait_for(test(Scene(cluster.bootstrap_servers, stack), topic), TIME_S_MAX)

        asyncio.run(run_in_scene())

    del run.__wrapped__  # type: ignore[attr-defined]  # pytest is to see the parameters of `run`
    return run
