"""A plain transactional producer, of Kafka 3's protocol of transactions or of Kafka 4's (KIP-890, part 2).

It asks again whatever may be asked again.  Where an earlier attempt of a request may still be on its way, and could do
harm to its next transaction, it asks for a new epoch before that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kreplica.client.errors import ClientError, ConnectionFailed
from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import TopicPartition
from kreplica.runtime import Runtime
from kreplica.testing.anomalies.history import NO_OFFSET
from kreplica.testing.clients.coordinator_client import (
    TRY_AGAIN_S_MAX,
    TRY_AGAIN_S_MIN,
    UNSURE,
    Answered,
    CoordinatorClient,
    Refused,
)
from kreplica.testing.clients.group_member import GroupMetadata, offset_rows
from kreplica.testing.clients.leader_client import LeaderClient
from kreplica.testing.clients.wire_client import sleep
from kreplica.testing.histories.transaction_history import TransactionHistory
from kreplica.wire import messages
from kreplica.wire.batch_building import BatchBuilder
from kreplica.wire.messages import Api

FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
"""What a producer is told in whose place, or against whose transaction, somebody has acted."""

ANSWER_TIMEOUT_S = 10.0

CLASSIC_VERSIONS: Mapping[int, int] = {
    messages.PRODUCE.key: 11,
    messages.INIT_PRODUCER_ID.key: 4,
    messages.ADD_PARTITIONS_TO_TXN.key: 3,
    messages.ADD_OFFSETS_TO_TXN.key: 3,
    messages.TXN_OFFSET_COMMIT.key: 4,
    messages.END_TXN.key: 4,
}
"""What a producer speaks at most whose epoch stays from one transaction to the next."""

GROWING_VERSIONS: Mapping[int, int] = {
    messages.PRODUCE.key: 12,
    messages.INIT_PRODUCER_ID.key: 5,
    messages.TXN_OFFSET_COMMIT.key: 5,
    messages.END_TXN.key: 5,
}
"""The same of one whose epoch grows with each."""


class Identity(NamedTuple):
    """What a coordinator has given to a producer."""

    producer_id: int
    epoch: int


NO_IDENTITY = Identity(-1, -1)


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """:param timeout_ms: after so long the coordinator aborts a transaction.
    :param epoch_grows: with every transaction; then partitions are added by what is sent to them (KIP-890, part 2).
    """

    transactional_id: str
    timeout_ms: int = 8000
    epoch_grows: bool = False


class TransactionalProducer:
    """One incarnation of a transactional id: ``start``, then transactions, one after the other.

    A ``Refused`` leaves its transaction open: whoever has the producer aborts it, or, where that is refused too, starts
    anew.

    :param client: that of the transactional id's coordinator, and of nobody else.
    :param leader_client: makes a client of whoever leads a partition.
    :param history: that of the topic to which it writes.
    :ivar identity: what it was given last.
    :ivar transaction: the name of the one that is open; None while none is.
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
        self._versions = GROWING_VERSIONS if settings.epoch_grows else CLASSIC_VERSIONS
        self._client = client
        self._leader_client = leader_client
        self._leaders: dict[TopicPartition, LeaderClient] = {}
        self._history = history
        self.identity = NO_IDENTITY
        self._sequences: dict[TopicPartition, int] = {}
        self._added: dict[TopicPartition | str, None] = {}
        self._is_doubtful = False
        self.transaction: str | None = None

    @property
    def transactional_id(self) -> str:
        return self._settings.transactional_id

    async def start(self) -> None:
        """Be given an identity; whatever an earlier incarnation has not ended is aborted.

        :raise Refused: what no producer can help.
        """
        await self._initialize(NO_IDENTITY)
        self._history.fenced(self.transactional_id)
        self.transaction = None

    async def begin(self) -> None:
        """Begin a transaction.

        :raise Refused: it is fenced.
        """
        if self._is_doubtful and not self._settings.epoch_grows:
            await self._initialize(self.identity)
        self._is_doubtful = False
        self._added.clear()
        self.transaction = self._history.began(self.transactional_id)

    async def add(self, key: TopicPartition) -> None:
        """Add a partition to the transaction, before anything is sent there; not to be done where the epoch grows.

        :raise Refused: it is fenced.
        """
        producer = {f"v3_and_below_{name}": value for name, value in self._as_producer().items()}
        topics = [{"name": key.topic, "partitions": [key.partition]}]
        self._added[key] = None
        await self._ask(messages.ADD_PARTITIONS_TO_TXN, {**producer, "v3_and_below_topics": topics})

    async def send(self, key: TopicPartition, values: Sequence[bytes]) -> None:
        """Send a batch, and wait until it is acknowledged.

        :raise Refused: it is not, and will not be.
        """
        assert self.transaction is not None, "no transaction was begun"
        if not self._settings.epoch_grows and key not in self._added:
            await self.add(key)
        number = self._history.sending_in(self.transaction, key.partition, values)
        base_offset = await self._produce(key, values)
        self._history.acknowledged(key.partition, base_offset, values, number)

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, int], group: GroupMetadata, coordinator: CoordinatorClient
    ) -> None:
        """Have offsets of a group committed with the transaction.

        :param group: in whose name: an old generation is refused (KIP-447).
        :param coordinator: the client of the group's.
        :raise Refused: ILLEGAL_GENERATION and the like, it is no member any more; it is fenced.
        """
        if not self._settings.epoch_grows and group.group_id not in self._added:
            self._added[group.group_id] = None
            await self._ask(messages.ADD_OFFSETS_TO_TXN, {**self._as_producer(), "group_id": group.group_id})
        body = {
            **self._as_producer(),
            "group_id": group.group_id,
            "generation_id": group.generation,
            "member_id": group.member_id,
            "group_instance_id": group.instance_id,
            "topics": offset_rows(offsets),
        }
        await self._ask(messages.TXN_OFFSET_COMMIT, body, of=coordinator)

    async def commit(self) -> None:
        """Commit the transaction.

        :raise Refused: it could not, or nobody can tell (``is_doubtful``).
        """
        await self._end(committed=True)

    async def abort(self) -> None:
        """Abort the transaction, if one was begun.

        :raise Refused: it is fenced, and what it wrote aborted.
        """
        if self.transaction is not None:
            await self._end(committed=False)

    async def close(self) -> None:
        """Close all connections, whatever becomes of the transaction."""
        for client in (self._client, *self._leaders.values()):
            await client.close()

    # --- the coordinator ---------------------------------------------------------------------------------------------

    async def _initialize(self, known: Identity) -> None:
        body = {
            "transactional_id": self.transactional_id,
            "transaction_timeout_ms": self._settings.timeout_ms,
            "producer_id": known.producer_id,
            "producer_epoch": known.epoch,
        }
        answer = (await self._ask(messages.INIT_PRODUCER_ID, body)).body
        self._identified(answer)
        self._is_doubtful = False

    def _identified(self, answer: dict[str, Any]) -> None:
        """Take in an identity; sequences begin anew with it."""
        identity = Identity(answer["producer_id"], answer["producer_epoch"])
        if identity != self.identity:
            self.identity = identity
            self._sequences.clear()

    async def _end(self, *, committed: bool) -> None:
        assert self.transaction is not None, "no transaction was begun"
        self._history.ending(self.transaction, commit=committed)
        if not (self._settings.epoch_grows or self._added):
            self.transaction = None  # the coordinator has not heard of it
            return
        try:
            answer = (await self._ask(messages.END_TXN, {**self._as_producer(), "committed": committed})).body
        except Refused as error:
            if committed and not error.is_doubtful:
                self._history.ended(self.transaction, committed=False)
            raise
        if self._settings.epoch_grows:
            self._identified(answer)
        if committed:
            self._history.ended(self.transaction, committed=True)
        self.transaction = None

    async def _ask(self, api: Api, body: dict[str, Any], *, of: CoordinatorClient | None = None) -> Answered:
        try:
            answered = await (of or self._client).ask(api, body, at_most=self._versions[api.key])
        except Refused as error:
            self._is_doubtful |= error.is_doubtful
            raise
        self._is_doubtful |= answered.is_doubtful
        return answered

    def _as_producer(self) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.identity.producer_id,
            "producer_epoch": self.identity.epoch,
        }

    # --- leaders -----------------------------------------------------------------------------------------------------

    async def _produce(self, key: TopicPartition, values: Sequence[bytes]) -> int:
        """:return: the first offset; -1 where the leader knows that the batch is there, but not where."""
        client = self._leaders.get(key)
        if client is None:
            client = self._leaders[key] = self._leader_client(key)
        sequence = self._sequences.get(key, 0)
        body = self._batch(key, values, sequence)
        wait_s = TRY_AGAIN_S_MIN
        while True:
            try:
                answer = await client.request(messages.PRODUCE, body, at_most=self._versions[messages.PRODUCE.key])
            except (ClientError, KafkaError) as error:
                self._is_doubtful |= isinstance(error, ClientError) and not isinstance(error, ConnectionFailed)
                await client.close()
            else:
                row = answer["responses"][0]["partition_responses"][0]
                code = ErrorCode.of(row["error_code"])
                if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                    self._sequences[key] = sequence + len(values)
                    return NO_OFFSET if code else int(row["base_offset"])
                if not code.retriable:
                    self._is_doubtful = True  # with a new epoch, sequences begin anew
                    raise Refused(code, answer, is_doubtful=True)
                self._is_doubtful |= code in UNSURE
                if code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                    await client.close()
            await sleep(self._reactor, wait_s)
            wait_s = min(wait_s * 2, TRY_AGAIN_S_MAX)

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
            "timeout_ms": int(ANSWER_TIMEOUT_S * 500),
            "topic_data": [{"name": key.topic, "partition_data": [row]}],
        }
