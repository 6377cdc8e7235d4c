"""Client that never authenticates again, and writes and reads even without permission."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from twisted.internet.defer import Deferred

from kreplica.client.client_runtime import EndpointMaker
from kreplica.client.connection import Connection
from kreplica.client.errors import ClientError, ConnectionFailed
from kreplica.client.producer import Written
from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import TopicPartition
from kreplica.runtime.pause import pause
from kreplica.testing.clients.leader_client import LeaderClient
from kreplica.testing.clients.wire_client import cancel
from kreplica.testing.simulator.simulation import Host
from kreplica.testing.storms.applications.history import ApplicationHistory, Sent
from kreplica.wire.batch_building import BatchBuilder

INTERVAL_S = 0.4
REQUEST_TIMEOUT_S = 5.0
WRITE_CHANCE = 0.5
VALUE_SIZE_MAX = 100


class _Connections(LeaderClient):
    """Connections whose sessions are not renewed."""

    async def _connect(self, address: tuple[str, int], timeout_s: float = REQUEST_TIMEOUT_S) -> Connection:
        connection = await super()._connect(address, timeout_s)
        connection.session.end()
        return connection


class LazyClient:
    """Writes to and reads from random partitions until ``finish``.

    :param history: outcomes of the records.
    """

    def __init__(
        self,
        host: Host,
        name: str,
        brokers: Sequence[tuple[str, int]],
        partitions: Sequence[TopicPartition],
        endpoint: EndpointMaker,
        history: ApplicationHistory,
    ) -> None:
        self.name = name
        self.host = host
        self._random = Random(f"{host.runtime.random.random()}/{name}")
        self._history = history
        self._count = 0
        self._offsets = dict.fromkeys(partitions, 0)
        self._clients = [
            _Connections(
                host.reactor, brokers, *key, client_id=name, request_timeout_s=REQUEST_TIMEOUT_S, endpoint=endpoint
            )
            for key in partitions
        ]
        self._running = Deferred.fromCoroutine(self._work())

    async def finish(self) -> None:
        """Stop, and close all connections."""
        await cancel(self._running)
        for client in self._clients:
            await client.close()

    async def _work(self) -> None:
        while True:
            await pause(self.host.reactor, self._random.expovariate(1 / INTERVAL_S))
            index = self._random.randrange(len(self._clients))
            client, key = self._clients[index], list(self._offsets)[index]
            try:
                if self._random.random() < WRITE_CHANCE:
                    await self._write(client, key)
                else:
                    await self._read(client, key)
            except ClientError:
                await client.close()
            except KafkaError as error:
                if error.code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    await client.close()  # look up the leader again; a client without permissions keeps its connection

    async def _write(self, client: LeaderClient, key: TopicPartition) -> None:
        sent = self._new_record()
        builder = BatchBuilder()
        timestamp_ms = self.host.runtime.wall_clock_ms()
        builder.append(timestamp_ms, None, sent.value)
        try:
            await client.connection()
        except (ClientError, KafkaError) as error:
            sent.error, sent.is_lost = type(error).__name__, True
            raise
        try:
            offset = await client.produce(*key, builder.build())
            sent.written = Written(key, offset, timestamp_ms)
        except ConnectionFailed as error:
            sent.error, sent.is_lost = type(error).__name__, True
            raise
        except KafkaError as error:
            sent.error, sent.is_lost = error.code.name, error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
            raise

    def _new_record(self) -> Sent:
        self._count += 1
        # The order of records whose outcome is unknown is not determined, so each record has its own producer.
        size = self._random.randint(1, VALUE_SIZE_MAX)
        return self._history.sending(f"{self.name}-{self._count}", self._count, size, None)

    async def _read(self, client: LeaderClient, key: TopicPartition) -> None:
        records = await client.fetch(*key, self._offsets[key])
        self._offsets[key] = records[-1].offset + 1 if records else 0
