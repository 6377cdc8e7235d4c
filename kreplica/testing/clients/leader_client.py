"""A client that speaks to whoever leads one partition, and looks for the leader anew after every loss."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar
from uuid import UUID

from kreplica.client.connection import Connection
from kreplica.client.errors import ClientError
from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import NO_EPOCH, ZERO_UUID
from kreplica.runtime import Reactor
from kreplica.testing.clients.wire_client import ANSWER_TIMEOUT_S, WireClient, sleep
from kreplica.wire import messages
from kreplica.wire.records import Record

CONNECT_TIMEOUT_S = 2.0
METADATA_TIMEOUT_S = 2.0
TRIES_MAX = 20
TRY_AGAIN_S = 0.5

T = TypeVar("T")


class LeaderClient(WireClient):
    """A ``WireClient`` whose connection leads to a partition's leader, as one broker after the other has it.

    It never goes back to the leader of an earlier epoch, whoever still takes that one for the leader (KIP-320).

    :param brokers: host and port of those that are asked who leads, each time the next one.
    :ivar leader_epoch: of the leader that was found last; -1 before.
    """

    def __init__(
        self,
        reactor: Reactor,
        brokers: Sequence[tuple[str, int]],
        topic: str,
        partition: int,
        *,
        client_id: str,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> None:
        super().__init__(reactor, *brokers[0], client_id=client_id, answer_timeout_s=answer_timeout_s)
        self.leader_epoch = NO_EPOCH
        self._topic_id = ZERO_UUID
        self._brokers = brokers
        self._asked_count = partition
        self._topic = topic
        self._partition = partition

    async def connection(self) -> Connection:
        if self._connection is None or self._connection.closed:
            leader = await self._find_leader()
            self._connection = await self._connect(leader, CONNECT_TIMEOUT_S)
        return self._connection

    async def read_all(self, topic: str, partition: int) -> list[Record]:
        """As any client does; where the leader changes meanwhile, from the beginning again.

        :raise KafkaError: not even the last of many tries came to an end.
        """
        read = super().read_all
        return await self._again(lambda: read(topic, partition))

    async def find_offset(self, topic: str, partition: int, timestamp_ms: int) -> int:
        """``list_offset``, asked again where the leader changes meanwhile.

        :raise KafkaError: not even the last of many tries was answered.
        """
        return await self._again(lambda: self.list_offset(topic, partition, timestamp_ms))

    async def _again(self, ask: Callable[[], Awaitable[T]]) -> T:
        for _ in range(TRIES_MAX - 1):
            try:
                return await ask()
            except (ClientError, KafkaError) as error:
                if isinstance(error, KafkaError) and not error.code.retriable:
                    raise
                await self.close()
                await sleep(self.reactor, TRY_AGAIN_S)
        return await ask()

    async def _find_leader(self) -> tuple[str, int]:
        asked = self._brokers[self._asked_count % len(self._brokers)]
        self._asked_count += 1
        connection = await self._connect(asked, CONNECT_TIMEOUT_S)
        try:
            body = {"topics": [{"name": self._topic}], "allow_auto_topic_creation": False}
            version = connection.version(messages.METADATA, 12)
            answer = await connection.request(messages.METADATA, version, body, timeout_s=METADATA_TIMEOUT_S)
        finally:
            await connection.close()
        host, port, topic_id, epoch = _leader(answer, self._partition)
        if topic_id == self._topic_id and epoch < self.leader_epoch:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "who was asked has yet to hear of the leader known here")
        self._topic_id, self.leader_epoch = topic_id, epoch
        return host, port


def _leader(metadata: dict[str, Any], partition: int) -> tuple[str, int, UUID, int]:
    """The leader's host and port, the topic's id, and the leader epoch, which counts from 0 in every topic."""
    addresses = {row["node_id"]: (row["host"], row["port"]) for row in metadata["brokers"]}
    for topic in metadata["topics"]:
        for row in topic["partitions"]:
            if row["partition_index"] == partition and row["leader_id"] in addresses:
                host, port = addresses[row["leader_id"]]
                return host, port, topic["topic_id"], row["leader_epoch"]
    raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)
