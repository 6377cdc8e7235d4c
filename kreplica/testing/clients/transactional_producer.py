"""Transactional producer, with the transaction protocol of Kafka 3 or of Kafka 4 (KIP-890, part 2).

It retries all retriable errors.  If an earlier attempt of a request may still arrive and affect the next transaction,
it requests a new epoch first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kreplica.client.errors import ClientError, ConnectionFailed
from kreplica.client_core.offsets import GroupIdentity, offset_rows
from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import TopicPartition
from kreplica.runtime import Runtime
from kreplica.runtime.pause import pause
from kreplica.testing.anomalies.history import NO_OFFSET
from kreplica.testing.clients.coordinator_client import (
    RETRY_S_MAX,
    RETRY_S_MIN,
    UNKNOWN_RESULT,
    CoordinatorClient,
    RequestRejected,
    Response,
)
from kreplica.testing.clients.leader_client import LeaderClient
from kreplica.testing.histories.transaction_history import TransactionHistory
from kreplica.wire import messages
from kreplica.wire.batch_building import BatchBuilder
from kreplica.wire.messages import Api

FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
"""Errors after another producer took over the transactional ID, or after the coordinator aborted the transaction."""

REQUEST_TIMEOUT_S = 10.0

CLASSIC_VERSIONS: Mapping[int, int] = {
    messages.PRODUCE.key: 11,
    messages.INIT_PRODUCER_ID.key: 4,
    messages.ADD_PARTITIONS_TO_TXN.key: 3,
    messages.ADD_OFFSETS_TO_TXN.key: 3,
    messages.TXN_OFFSET_COMMIT.key: 4,
    messages.END_TXN.key: 4,
}
"""Highest request versions for a producer that keeps its epoch between transactions."""

BUMPED_EPOCH_VERSIONS: Mapping[int, int] = {
    messages.PRODUCE.key: 12,
    messages.INIT_PRODUCER_ID.key: 5,
    messages.TXN_OFFSET_COMMIT.key: 5,
    messages.END_TXN.key: 5,
}
"""Highest request versions for a producer whose epoch is bumped with every transaction."""


class Identity(NamedTuple):
    producer_id: int
    epoch: int


NO_IDENTITY = Identity(-1, -1)


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """Settings of a transactional producer.

    :param timeout_ms: transaction timeout.
    :param bumps_epoch: true to bump the epoch with every transaction and to add partitions implicitly with
        Produce (KIP-890, part 2).
    """

    transactional_id: str
    timeout_ms: int = 8000
    bumps_epoch: bool = False


class TransactionalProducer:
    """Producer of one transactional ID: call ``start``, then run transactions one after another.

    After ``RequestRejected``, the transaction is still open: the caller aborts it, or calls ``start`` if that fails.

    :param client: client of the transactional ID's coordinator, not shared with other producers.
    :param leader_client: function that creates a client of a partition's leader.
    :param history: history of the target topic.
    :ivar identity: current producer ID and epoch.
    :ivar transaction: name of the open transaction, or None.
    """

    def __init__(
        self,
        runtime: Runtime,
        settings: TransactionSettings,
        client: CoordinatorClient,
        leader_client: Callable[[TopicPartition], LeaderClient],
        history: TransactionHistory,
    ) -> None:
        self._reactor = runtime.reactor
        self._wall_clock_ms = runtime.wall_clock_ms
        self._settings = settings
        self._versions = BUMPED_EPOCH_VERSIONS if settings.bumps_epoch else CLASSIC_VERSIONS
        self._client = client
        self._leader_client = leader_client
        self._leaders: dict[TopicPartition, LeaderClient] = {}
        self._history = history
        self.identity = NO_IDENTITY
        self._sequences: dict[TopicPartition, int] = {}
        self._added: dict[TopicPartition | str, None] = {}
        self._has_pending_attempt = False
        self.transaction: str | None = None

    @property
    def transactional_id(self) -> str:
        return self._settings.transactional_id

    async def start(self) -> None:
        """Request a producer ID and epoch, which aborts the open transaction of an earlier producer.

        :raise RequestRejected: the coordinator rejected the request.
        """
        await self._initialize(NO_IDENTITY)
        self._history.fenced(self.transactional_id)
        self.transaction = None

    async def begin(self) -> None:
        """Start a transaction.

        :raise RequestRejected: the producer is fenced.
        """
        if self._has_pending_attempt and not self._settings.bumps_epoch:
            await self._initialize(self.identity)
        self._has_pending_attempt = False
        self._added.clear()
        self.transaction = self._history.begin(self.transactional_id)

    async def add(self, key: TopicPartition) -> None:
        """Add a partition to the transaction before the first send to it; not used with ``bumps_epoch``.

        :raise RequestRejected: the producer is fenced.
        """
        producer = {f"v3_and_below_{name}": value for name, value in self._producer_fields().items()}
        topics = [{"name": key.topic, "partitions": [key.partition]}]
        self._added[key] = None
        await self._request(messages.ADD_PARTITIONS_TO_TXN, {**producer, "v3_and_below_topics": topics})

    async def send(self, key: TopicPartition, values: Sequence[bytes]) -> None:
        """Send a batch, and wait until it is acknowledged.

        :raise RequestRejected: the batch was rejected.
        """
        assert self.transaction is not None, "no transaction is open"
        if not self._settings.bumps_epoch and key not in self._added:
            await self.add(key)
        number = self._history.sending_in(self.transaction, key.partition, values)
        base_offset = await self._produce(key, values)
        self._history.acknowledged(key.partition, base_offset, values, number)

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, int], group: GroupIdentity, coordinator: CoordinatorClient
    ) -> None:
        """Commit offsets of a group with the transaction.

        :param group: the member's identity; an old generation is rejected (KIP-447).
        :param coordinator: client of the group's coordinator.
        :raise RequestRejected: the member's generation is outdated (ILLEGAL_GENERATION), or the producer is fenced.
        """
        if not self._settings.bumps_epoch and group.group_id not in self._added:
            self._added[group.group_id] = None
            await self._request(messages.ADD_OFFSETS_TO_TXN, {**self._producer_fields(), "group_id": group.group_id})
        body = {
            **self._producer_fields(),
            "group_id": group.group_id,
            "generation_id": group.generation,
            "member_id": group.member_id,
            "group_instance_id": group.instance_id,
            "topics": offset_rows(offsets),
        }
        await self._request(messages.TXN_OFFSET_COMMIT, body, coordinator=coordinator)

    async def commit(self) -> None:
        """Commit the transaction.

        :raise RequestRejected: the commit failed, or its result is unknown (``has_pending_attempt``).
        """
        await self._end(committed=True)

    async def abort(self) -> None:
        """Abort the open transaction, if any.

        :raise RequestRejected: the producer is fenced; the coordinator has aborted its transaction.
        """
        if self.transaction is not None:
            await self._end(committed=False)

    async def close(self) -> None:
        for client in (self._client, *self._leaders.values()):
            await client.close()

    def abort_connections(self) -> None:
        """Close all connections at once."""
        for client in (self._client, *self._leaders.values()):
            client.abort_connection()

    # --- the coordinator ---------------------------------------------------------------------------------------------

    async def _initialize(self, identity: Identity) -> None:
        body = {
            "transactional_id": self.transactional_id,
            "transaction_timeout_ms": self._settings.timeout_ms,
            "producer_id": identity.producer_id,
            "producer_epoch": identity.epoch,
        }
        response = (await self._request(messages.INIT_PRODUCER_ID, body)).body
        self._set_identity(response)
        self._has_pending_attempt = False

    def _set_identity(self, response: dict[str, Any]) -> None:
        """Store the producer ID and epoch; if they are new, restart sequences at 0."""
        identity = Identity(response["producer_id"], response["producer_epoch"])
        if identity != self.identity:
            self.identity = identity
            self._sequences.clear()

    async def _end(self, *, committed: bool) -> None:
        assert self.transaction is not None, "no transaction is open"
        self._history.ending(self.transaction, commit=committed)
        if not (self._settings.bumps_epoch or self._added):
            self.transaction = None  # nothing was added, so the coordinator does not know the transaction
            return
        try:
            response = (await self._request(messages.END_TXN, {**self._producer_fields(), "committed": committed})).body
        except RequestRejected as error:
            if committed and not error.has_pending_attempt:
                self._history.ended(self.transaction, committed=False)
            raise
        if self._settings.bumps_epoch:
            self._set_identity(response)
        if committed:
            self._history.ended(self.transaction, committed=True)
        self.transaction = None

    async def _request(
        self, api: Api, body: dict[str, Any], *, coordinator: CoordinatorClient | None = None
    ) -> Response:
        try:
            response = await (coordinator or self._client).request_with_retries(
                api, body, at_most=self._versions[api.key]
            )
        except RequestRejected as error:
            self._has_pending_attempt |= error.has_pending_attempt
            raise
        self._has_pending_attempt |= response.has_pending_attempt
        return response

    def _producer_fields(self) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.identity.producer_id,
            "producer_epoch": self.identity.epoch,
        }

    # --- leaders -----------------------------------------------------------------------------------------------------

    async def _produce(self, key: TopicPartition, values: Sequence[bytes]) -> int:
        """Send a batch, and retry until it is acknowledged.

        :return: the base offset; -1 for a duplicate whose offset the leader no longer knows.
        """
        client = self._leaders.get(key)
        if client is None:
            client = self._leaders[key] = self._leader_client(key)
        sequence = self._sequences.get(key, 0)
        body = self._batch(key, values, sequence)
        wait_s = RETRY_S_MIN
        while True:
            try:
                response = await client.request(messages.PRODUCE, body, at_most=self._versions[messages.PRODUCE.key])
            except (ClientError, KafkaError) as error:
                self._has_pending_attempt |= isinstance(error, ClientError) and not isinstance(error, ConnectionFailed)
                await client.close()
            else:
                row = response["responses"][0]["partition_responses"][0]
                code = ErrorCode.of(row["error_code"])
                if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                    self._sequences[key] = sequence + len(values)
                    return NO_OFFSET if code else int(row["base_offset"])
                if not code.retriable:
                    self._has_pending_attempt = True  # request a new epoch, which restarts sequences at 0
                    raise RequestRejected(code, response, has_pending_attempt=True)
                self._has_pending_attempt |= code in UNKNOWN_RESULT
                if code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                    await client.close()
            await pause(self._reactor, wait_s)
            wait_s = min(wait_s * 2, RETRY_S_MAX)

    def _batch(self, key: TopicPartition, values: Sequence[bytes], sequence: int) -> dict[str, Any]:
        builder = BatchBuilder(
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        for value in values:
            builder.append(self._wall_clock_ms(), None, value)
        row = {"index": key.partition, "records": builder.build()}
        return {
            "transactional_id": self.transactional_id,
            "acks": -1,
            "timeout_ms": int(REQUEST_TIMEOUT_S * 500),
            "topic_data": [{"name": key.topic, "partition_data": [row]}],
        }
