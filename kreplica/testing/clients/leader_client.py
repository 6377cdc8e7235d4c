"""Client of the leader of one partition, which it looks up again after each lost connection."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar
from uuid import UUID

from kreplica.client.client_runtime import EndpointMaker, tcp_endpoint
from kreplica.client.connection import Connection
from kreplica.client.errors import ClientError
from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import NO_EPOCH, ZERO_UUID
from kreplica.runtime import Reactor
from kreplica.runtime.pause import pause
from kreplica.testing.clients.wire_client import REQUEST_TIMEOUT_S, WireClient
from kreplica.wire import messages
from kreplica.wire.records import Record

CONNECT_TIMEOUT_S = 2.0
METADATA_TIMEOUT_S = 2.0
TRIES_MAX = 20
RETRY_S = 0.5

T = TypeVar("T")


class LeaderClient(WireClient):
    """A ``WireClient`` of a partition's leader, which it finds by asking one broker after another.

    It never connects to the leader of an earlier epoch, even if a broker's metadata is stale (KIP-320).

    :param brokers: hosts and ports of the brokers to ask.
    :ivar leader_epoch: epoch of the last leader found; -1 before the first look-up.
    """

    def __init__(
        self,
        reactor: Reactor,
        brokers: Sequence[tuple[str, int]],
        topic: str,
        partition: int,
        *,
        client_id: str,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        endpoint: EndpointMaker = tcp_endpoint,
    ) -> None:
        super().__init__(
            reactor, *brokers[0], client_id=client_id, request_timeout_s=request_timeout_s, endpoint=endpoint
        )
        self.leader_epoch = NO_EPOCH
        self._topic_id = ZERO_UUID
        self._brokers = brokers
        self._lookup_count = partition
        self._topic = topic
        self._partition = partition

    async def connection(self) -> Connection:
        if self._connection is None or self._connection.closed:
            leader = await self._find_leader()
            self._connection = await self._connect(leader, CONNECT_TIMEOUT_S)
        return self._connection

    async def read_all(self, topic: str, partition: int) -> list[Record]:
        """Read all records; start again if the leader changes in the meantime.

        :raise KafkaError: the last of ``TRIES_MAX`` attempts failed.
        """
        read = super().read_all
        return await self._retry(lambda: read(topic, partition))

    async def find_offset(self, topic: str, partition: int, timestamp_ms: int) -> int:
        """Call ``list_offset``; retry if the leader changes in the meantime.

        :raise KafkaError: the last of ``TRIES_MAX`` attempts failed.
        """
        return await self._retry(lambda: self.list_offset(topic, partition, timestamp_ms))

    async def _retry(self, request: Callable[[], Awaitable[T]]) -> T:
        for _ in range(TRIES_MAX - 1):
            try:
                return await request()
            except (ClientError, KafkaError) as error:
                if isinstance(error, KafkaError) and not error.code.retriable:
                    raise
                await self.close()
                await pause(self.reactor, RETRY_S)
        return await request()

    async def _find_leader(self) -> tuple[str, int]:
        broker = self._brokers[self._lookup_count % len(self._brokers)]
        self._lookup_count += 1
        connection = await self._connect(broker, CONNECT_TIMEOUT_S)
        try:
            body = {"topics": [{"name": self._topic}], "allow_auto_topic_creation": False}
            version = connection.version(messages.METADATA, 12)
            response = await connection.request(messages.METADATA, version, body, timeout_s=METADATA_TIMEOUT_S)
        finally:
            await connection.close()
        host, port, topic_id, epoch = _leader(response, self._partition)
        if topic_id == self._topic_id and epoch < self.leader_epoch:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "the broker's metadata is older than the known leader")
        self._topic_id, self.leader_epoch = topic_id, epoch
        return host, port


def _leader(metadata: dict[str, Any], partition: int) -> tuple[str, int, UUID, int]:
    """Return the leader's host and port, the topic ID and the leader epoch, which starts at 0 for each topic ID."""
    addresses = {row["node_id"]: (row["host"], row["port"]) for row in metadata["brokers"]}
    for topic in metadata["topics"]:
        for row in topic["partitions"]:
            if row["partition_index"] == partition and row["leader_id"] in addresses:
                host, port = addresses[row["leader_id"]]
                return host, port, topic["topic_id"], row["leader_epoch"]
    raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)
