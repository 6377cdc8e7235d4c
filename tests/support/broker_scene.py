"""A broker with its embedded coordinator in the test's process, and a client that can send any version of any API."""

from __future__ import annotations

import gc
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from twisted.internet.task import deferLater
from twisted.logger import ILogObserver, LogLevel, globalLogPublisher
from zope.interface import implementer

from kreplica.client.connection import Connection, connect
from kreplica.model import ZERO_UUID as NO_ID
from kreplica.runtime import real_runtime
from kreplica.service.composition.broker import Broker
from kreplica.service.standalone.standalone import Standalone, StandaloneConfig
from kreplica.wire.batch_building import NEXT_OFFSET, build_batch
from kreplica.wire.messages import CREATE_TOPICS, FETCH, METADATA, PRODUCE, Api
from kreplica.wire.records import Record
from kreplica.zookeeper import ZooKeeperClient
from tests.support.real_reactor import run

T = TypeVar("T")
Row = dict[str, Any]

NOW_MS = 1_700_000_000_000
TIMEOUT_S = 20.0
STORY_SECONDS_MAX = 90.0
"""Time limit of a test, including start and stop; stopping syncs every log, which is slow on a busy disk."""


class Scene:
    """A started broker and one negotiated connection to it."""

    def __init__(self, standalone: Standalone, connection: Connection, reactor: Any, logged: list[Row]) -> None:
        self.standalone = standalone
        self.connection = connection
        self.reactor = reactor
        self.logged = logged
        self._opened = [connection]

    @property
    def broker(self) -> Broker:
        return self.standalone.brokers[0]

    @property
    def zookeeper(self) -> ZooKeeperClient:
        """The broker's ZooKeeper client, for reading and changing znodes."""
        return self.broker.client

    async def connect(self, broker: Broker | None = None) -> Connection:
        """Open another connection, which is closed with the scene."""
        connection = await connect(self.reactor, "127.0.0.1", (broker or self.broker).port, client_id="another")
        await connection.negotiate()
        self._opened.append(connection)
        return connection

    async def ask(self, api: Api, body: Row, version: int | None = None, connection: Connection | None = None) -> Row:
        """Return the response to a request, by default in the newest version that the broker advertises."""
        connection = connection or self.connection
        chosen = connection.version(api) if version is None else version
        return await connection.request(api, chosen, body, timeout_s=TIMEOUT_S)

    def versions(self, api: Api) -> range:
        """Return all versions of an API that the broker advertises."""
        low, high = self.connection.versions[api.key]
        return range(low, high + 1)

    async def make_topic(self, name: str, partitions: int = 1, **configs: str) -> Row:
        """Create a topic and return its row in the response.  Setting names have underscores instead of dots."""
        answer = await self.ask(CREATE_TOPICS, create_body(name, partitions, configs=configs))
        row: Row = answer["topics"][0]
        assert row["error_code"] == 0, row
        return row

    async def produce(
        self, topic: str, records: bytes | None, *, partition: int = 0, acks: int = -1, version: int | None = None
    ) -> Row:
        """Produce one batch and return the partition's row in the response."""
        answer = await self.ask(PRODUCE, produce_body(topic, records, partition=partition, acks=acks), version)
        row: Row = answer["responses"][0]["partition_responses"][0]
        return row

    async def fetch(self, topic: str, offset: int, **changes: Any) -> Row:
        """Fetch one partition by topic name (version 12) and return its row in the response."""
        answer = await self.ask(FETCH, fetch_body(topic, offset, **changes), 12)
        row: Row = answer["responses"][0]["partitions"][0]
        return row

    async def metadata(self, *names: str, create: bool = False) -> dict[str, Row]:
        """Return the metadata of these topics by name, or of all topics if none is given."""
        rows = [{"topic_id": NO_ID, "name": name} for name in names] or None
        answer = await self.ask(METADATA, {"topics": rows, "allow_auto_topic_creation": create})
        return {row["name"]: row for row in answer["topics"]}

    async def sleep(self, seconds: float) -> None:
        await deferLater(self.reactor, seconds)

    async def until(self, condition: Callable[[], bool], what: str, timeout_s: float = 10.0) -> None:
        """Run the reactor until the condition is true.

        :param what: the condition, for the error message.
        """
        end = self.reactor.seconds() + timeout_s
        while not condition():
            assert self.reactor.seconds() < end, f"{what}: not within {timeout_s} s"
            await self.sleep(0.002)

    async def close(self) -> None:
        for connection in self._opened:
            await connection.close()


def on_broker(
    directory: Path,
    story: Callable[[Scene], Coroutine[Any, Any, T]],
    *overrides: str,
    brokers: int = 1,
    errors_logged: bool = False,
) -> T:
    """Start a broker in this directory, run a test coroutine with it, and stop the broker.

    Every error that the broker logs, including an unhandled failure of a Deferred, fails the test.

    :param errors_logged: True if the test makes the broker log errors.
    """
    logged: list[Row] = []

    @implementer(ILogObserver)
    def observe(event: Any) -> None:
        if event.get("log_level", LogLevel.info) >= LogLevel.warn:
            logged.append(event)

    async def whole() -> T:
        from twisted.internet import reactor as global_reactor

        reactor: Any = global_reactor
        config = StandaloneConfig(str(directory), brokers, 0, 0, 0, overrides=overrides)
        standalone = Standalone(real_runtime(reactor), config)
        await standalone.start()
        try:
            connection = await connect(reactor, "127.0.0.1", standalone.brokers[0].port, client_id="scene")
            await connection.negotiate()
            scene = Scene(standalone, connection, reactor, logged)
            try:
                return await story(scene)
            finally:
                await scene.close()
        finally:
            await standalone.stop()

    # Coroutines of brokers that were killed by earlier tests log errors when they are garbage-collected.
    gc.collect()
    globalLogPublisher.addObserver(observe)
    try:
        result = run(whole(), STORY_SECONDS_MAX)
        gc.collect()
    finally:
        globalLogPublisher.removeObserver(observe)
    errors = [event for event in logged if event["log_level"] >= LogLevel.error]
    assert errors_logged or not errors, [str(event.get("log_failure") or event) for event in errors]
    return result


def batch(*values: bytes | None, key: bytes | None = None, timestamp_ms: int = NOW_MS, **options: Any) -> bytes:
    """Encode a batch of records with these values, whose timestamps are one millisecond apart."""
    records = [Record(NEXT_OFFSET, timestamp_ms + i, key, value, ()) for i, value in enumerate(values)]
    return build_batch(records, **options)


def produce_body(topic: str, records: bytes | None, *, partition: int = 0, acks: int = -1) -> Row:
    return {
        "acks": acks,
        "timeout_ms": 5000,
        "topic_data": [{"name": topic, "partition_data": [{"index": partition, "records": records}]}],
    }


def fetch_body(
    topic: str | None,
    offset: int,
    *,
    partition: int = 0,
    topic_id: Any = NO_ID,
    wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
    epoch: int = -1,
    isolation: int = 0,
    **more: Any,
) -> Row:
    row = {
        "partition": partition,
        "current_leader_epoch": epoch,
        "fetch_offset": offset,
        "partition_max_bytes": partition_max_bytes,
    }
    if "last_fetched_epoch" in more:
        row["last_fetched_epoch"] = more.pop("last_fetched_epoch")
    return {
        "max_wait_ms": wait_ms,
        "min_bytes": min_bytes,
        "max_bytes": max_bytes,
        "isolation_level": isolation,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": topic, "topic_id": topic_id, "partitions": [row]}],
        "forgotten_topics_data": [],
        "rack_id": "",
        **more,
    }


def create_body(
    name: str,
    partitions: int = 1,
    *,
    factor: int = 1,
    timeout_ms: int = 10_000,
    configs: Mapping[str, str] = MappingProxyType({}),
) -> Row:
    return {
        "topics": [
            {
                "name": name,
                "num_partitions": partitions,
                "replication_factor": factor,
                "assignments": [],
                "configs": [{"name": k.replace("_", "."), "value": v} for k, v in configs.items()],
            }
        ],
        "timeout_ms": timeout_ms,
        "validate_only": False,
    }
