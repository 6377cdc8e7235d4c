"""Minimal client that sends single requests to one broker over one connection."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any
from uuid import UUID

from twisted.internet.defer import CancelledError, Deferred

from kreplica.client.client_runtime import EndpointMaker, tcp_endpoint
from kreplica.client.connection import Connection, connect
from kreplica.errors import ErrorCode, KafkaError, KreplicaError
from kreplica.model import NO_BROKER_EPOCH, NO_EPOCH, ZERO_UUID
from kreplica.replication import READ_COMMITTED, READ_UNCOMMITTED
from kreplica.runtime import Reactor
from kreplica.testing.clients.fetched_records import records_of, visible_records
from kreplica.wire import messages
from kreplica.wire.messages import Api
from kreplica.wire.records import Record

FETCH_BY_NAME_MAX = 12
"""Later versions of Fetch identify topics by ID."""

DELETE_BY_NAME_MAX = 5
FETCH_SIZE_MAX = 1 << 20
RESPONSE_SIZE_MAX = 2**31 - 1

TOPIC_RESOURCE = 2
SET_SETTING, DELETE_SETTING = 0, 1
CONNECT_TIMEOUT_S = 10.0
REQUEST_TIMEOUT_S = 30.0


class WireClient:
    """Connects when the first request is sent, and reconnects if the connection was lost; never retries a request.

    Every method raises ``ClientError`` if there is no response, and ``KafkaError`` if the response contains an error.

    :param endpoint: function that creates the endpoint of a connection, for example with TLS and SASL.
    :param request_timeout_s: response timeout, in addition to the wait time that the request allows the broker.
    """

    def __init__(
        self,
        reactor: Reactor,
        host: str,
        port: int,
        *,
        client_id: str,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        endpoint: EndpointMaker = tcp_endpoint,
    ) -> None:
        self.reactor = reactor
        self._address = host, port
        self.client_id = client_id
        self._endpoint = endpoint
        self.request_timeout_s = request_timeout_s
        self._connection: Connection | None = None

    async def connection(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self._connection = await self._connect(self._address)
        return self._connection

    async def _connect(self, address: tuple[str, int], timeout_s: float = CONNECT_TIMEOUT_S) -> Connection:
        connection = await connect(
            self.reactor, *address, client_id=self.client_id, connect_timeout_s=timeout_s, endpoint=self._endpoint
        )
        try:
            await connection.negotiate(self.request_timeout_s)
        except BaseException:
            connection.abort()
            raise
        return connection

    async def request(
        self, api: Api, body: dict[str, Any], *, at_most: int | None = None, timeout_s: float | None = None
    ) -> dict[str, Any]:
        """Send a request in the highest version that both sides support.

        :param at_most: highest version to use.
        :param timeout_s: response timeout; ``request_timeout_s`` by default.
        """
        connection = await self.connection()
        if timeout_s is None:
            timeout_s = self.request_timeout_s
        return await connection.request(api, connection.version(api, at_most), body, timeout_s=timeout_s)

    async def close(self) -> None:
        """Close the connection; the next request opens a new one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    def abort_connection(self) -> None:
        """Close the connection at once; the next request opens a new one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()

    # --- topics ---

    async def create_topic(
        self,
        name: str,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
        *,
        replication_factor: int = 1,
        assignment: Sequence[Sequence[int]] = (),
    ) -> None:
        """Create a topic, and wait until it can be used.

        :param assignment: the replicas of each partition; overrides ``partitions`` and ``replication_factor``.
        """
        rows = [{"partition_index": index, "broker_ids": list(ids)} for index, ids in enumerate(assignment)]
        topic = {
            "name": name,
            "num_partitions": -1 if rows else partitions,
            "replication_factor": -1 if rows else replication_factor,
            "assignments": rows,
            "configs": [{"name": key, "value": value} for key, value in (configs or {}).items()],
        }
        body = {"topics": [topic], "timeout_ms": 20_000, "validate_only": False}
        response = await self.request(messages.CREATE_TOPICS, body)
        _check(response["topics"][0])

    async def delete_topic(self, name: str) -> None:
        body = {"topic_names": [name], "timeout_ms": 20_000}
        response = await self.request(messages.DELETE_TOPICS, body, at_most=DELETE_BY_NAME_MAX)
        _check(response["responses"][0])

    async def create_partitions(self, topic: str, count: int) -> None:
        """Increase a topic's number of partitions; sent to the controller."""
        body = {
            "topics": [{"name": topic, "count": count, "assignments": None}],
            "timeout_ms": 10_000,
            "validate_only": False,
        }
        response = await self.request(messages.CREATE_PARTITIONS, body)
        _check(response["results"][0])

    async def change_settings(self, topic: str, changes: Mapping[str, str | None]) -> None:
        """Change settings of a topic; None resets a setting to its default (KIP-339)."""
        configs = [
            {"name": name, "config_operation": DELETE_SETTING if value is None else SET_SETTING, "value": value}
            for name, value in changes.items()
        ]
        await self._alter(messages.INCREMENTAL_ALTER_CONFIGS, topic, configs)

    async def replace_settings(self, topic: str, settings: Mapping[str, str]) -> None:
        configs = [{"name": name, "value": value} for name, value in settings.items()]
        await self._alter(messages.ALTER_CONFIGS, topic, configs)

    async def _alter(self, api: Api, topic: str, configs: list[dict[str, Any]]) -> None:
        resource = {"resource_type": TOPIC_RESOURCE, "resource_name": topic, "configs": configs}
        response = await self.request(api, {"resources": [resource], "validate_only": False})
        _check(response["responses"][0])

    async def reassign(self, topic: str, partition: int, replicas: Sequence[int] | None) -> None:
        """Reassign a partition's replicas, or cancel the reassignment with None; sent to the controller."""
        rows = [{"partition_index": partition, "replicas": None if replicas is None else list(replicas)}]
        body = {"timeout_ms": 10_000, "topics": [{"name": topic, "partitions": rows}]}
        response = await self.request(messages.ALTER_PARTITION_REASSIGNMENTS, body)
        _check(response)
        _check(response["responses"][0]["partitions"][0])

    async def elect_preferred(self, topic: str, partition: int) -> None:
        """Elect a partition's preferred leader; sent to the controller."""
        rows = [{"topic": topic, "partitions": [partition]}]
        body = {"election_type": 0, "topic_partitions": rows, "timeout_ms": 10_000}
        response = await self.request(messages.ELECT_LEADERS, body)
        _check(response)
        _check(response["replica_election_results"][0]["partition_result"][0])

    async def metadata(self) -> dict[str, Any]:
        return await self.request(messages.METADATA, {"topics": None, "allow_auto_topic_creation": False})

    # --- records ---

    async def produce(self, topic: str, partition: int, batch: bytes, *, acks: int = -1) -> int:
        """Append one batch.

        :return: its base offset; -1 with ``acks=0``, which has no response.
        """
        body = {
            "transactional_id": None,
            "acks": acks,
            "timeout_ms": 10_000,
            "topic_data": [{"name": topic, "partition_data": [{"index": partition, "records": batch}]}],
        }
        connection = await self.connection()
        version = connection.version(messages.PRODUCE)
        response = await connection.request(messages.PRODUCE, version, body, expects_response=acks != 0)
        if acks == 0:
            return -1
        row = response["responses"][0]["partition_responses"][0]
        _check(row)
        return int(row["base_offset"])

    async def fetch(
        self, topic: str, partition: int, offset: int, *, wait_ms: int = 0, size_max: int = FETCH_SIZE_MAX
    ) -> list[Record]:
        """Return as many committed records, starting at an offset, as fit into one response.

        :param wait_ms: time for which the broker may wait for the first record.
        """
        return records_of(await self.fetch_row(topic, partition, offset, wait_ms=wait_ms, size_max=size_max), offset)

    async def fetch_row(
        self,
        topic: str | UUID,
        partition: int,
        offset: int,
        *,
        wait_ms: int = 0,
        size_max: int = FETCH_SIZE_MAX,
        leader_epoch: int = NO_EPOCH,
        rack: str = "",
        isolation: int = READ_UNCOMMITTED,
    ) -> dict[str, Any]:
        """Return the response for one partition, which may contain an error code.

        :param topic: name or ID.
        :param leader_epoch: expected leader epoch; the broker rejects any other (KIP-320).
        :param isolation: ``READ_COMMITTED`` limits the records to the last stable offset and adds the list of
            aborted transactions.
        :param rack: the client's rack, so that the broker can name a nearer replica (KIP-392).
        """
        # All fields are present, including those with defaults: a complete body is serialized twice as fast.
        row = {
            "partition": partition,
            "current_leader_epoch": leader_epoch,
            "fetch_offset": offset,
            "last_fetched_epoch": NO_EPOCH,
            "log_start_offset": -1,
            "partition_max_bytes": size_max,
            "replica_directory_id": ZERO_UUID,
        }
        body = {
            "cluster_id": None,
            "replica_id": -1,
            "replica_state": {"replica_id": -1, "replica_epoch": NO_BROKER_EPOCH},
            "max_wait_ms": wait_ms,
            "min_bytes": 1,
            "max_bytes": RESPONSE_SIZE_MAX,
            "isolation_level": isolation,
            "session_id": 0,
            "session_epoch": -1,
            "topics": [{"topic_id" if isinstance(topic, UUID) else "topic": topic, "partitions": [row]}],
            "forgotten_topics_data": [],
            "rack_id": rack,
        }
        at_most = None if isinstance(topic, UUID) else FETCH_BY_NAME_MAX
        timeout_s = wait_ms / 1000 + self.request_timeout_s
        response = await self.request(messages.FETCH, body, at_most=at_most, timeout_s=timeout_s)
        while not response["responses"]:
            # A quota is exceeded: the connection delays the next request for the throttle time.
            response = await self.request(messages.FETCH, body, at_most=at_most, timeout_s=timeout_s)
        partition_row: dict[str, Any] = response["responses"][0]["partitions"][0]
        return partition_row

    async def list_offset(
        self,
        topic: str,
        partition: int,
        timestamp_ms: int,
        *,
        leader_epoch: int = NO_EPOCH,
        isolation: int = READ_UNCOMMITTED,
    ) -> int:
        """Return the offset for a timestamp (-1: end of the committed records, -2: log start), or -1 if there is none.

        ``leader_epoch`` and ``isolation`` are as in ``fetch_row``.
        """
        rows = [{"partition_index": partition, "timestamp": timestamp_ms, "current_leader_epoch": leader_epoch}]
        body = {"replica_id": -1, "isolation_level": isolation, "topics": [{"name": topic, "partitions": rows}]}
        response = await self.request(messages.LIST_OFFSETS, body)
        row = response["topics"][0]["partitions"][0]
        _check(row)
        return int(row["offset"])

    async def read_all(self, topic: str, partition: int) -> list[Record]:
        """Return all committed records, starting at the log start offset."""
        offset = await self.list_offset(topic, partition, -2)
        end = await self.list_offset(topic, partition, -1)
        all_records: list[Record] = []
        while offset < end:
            records = await self.fetch(topic, partition, offset)
            assert records, f"{topic}-{partition} is committed up to {end}, but the fetch from {offset} is empty"
            all_records += records
            offset = records[-1].offset + 1
        return all_records

    async def read_visible(self, topic: str, partition: int) -> list[Record]:
        """Return all records that a read_committed consumer sees now."""
        offset = await self.list_offset(topic, partition, -2)
        all_records: list[Record] = []
        while True:
            row = await self.fetch_row(topic, partition, offset, isolation=READ_COMMITTED)
            records, next_offset = visible_records(row, offset)
            if next_offset == offset:
                return all_records
            all_records += records
            offset = next_offset


async def run_and_close(client: WireClient, work: Awaitable[None]) -> None:
    """Await ``work``, and close the client even if the work fails."""
    try:
        await work
    except GeneratorExit:
        raise  # the simulated process has ended: the client cannot wait for anything
    except BaseException:
        await client.close()
        raise
    await client.close()


async def cancel(running: Deferred[None]) -> None:
    """Cancel a coroutine and await it; an exception that it raised before is raised again."""
    running.cancel()
    try:
        await running
    except CancelledError:
        pass


def name_of(error: KreplicaError) -> str:
    """Return the name of a Kafka error code, or of the exception's class."""
    return error.code.name if isinstance(error, KafkaError) else type(error).__name__


def _check(row: dict[str, Any]) -> None:
    if row["error_code"]:
        raise KafkaError(ErrorCode(row["error_code"]), row.get("error_message") or "")
