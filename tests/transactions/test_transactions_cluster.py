"""Three simulated brokers: one is killed at each step of a transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from kreplica.cluster.topic_names import TRANSACTION_STATE
from kreplica.coordination import partition_of
from kreplica.errors import KafkaError
from kreplica.model import TopicPartition
from kreplica.replication import READ_COMMITTED
from kreplica.testing.clients.coordinator_client import TRANSACTION, CoordinatorClient, RequestRejected
from kreplica.testing.clients.fetched_records import visible_records
from kreplica.testing.clients.transactional_producer import TransactionalProducer, TransactionSettings
from kreplica.testing.cluster.cluster import BROKER_PORT, SimulatedCluster
from kreplica.testing.histories.transaction_history import TransactionHistory
from kreplica.transactions.shard import Entry
from kreplica.wire import messages
from kreplica.wire.batch_building import BatchBuilder

ID = "tx"
TOPIC = "t"
PARTITIONS = 3
SETTINGS = (
    "transaction.state.log.num.partitions=3",
    "offsets.topic.num.partitions=3",
    "transaction.two.phase.commit.enable=true",
    "zookeeper.session.timeout.ms=6000",
)


class Scene:
    """A cluster with a topic of three partitions and a transactional producer."""

    def __init__(self, seed: int, *, grows: bool) -> None:
        self.cluster = SimulatedCluster(seed, brokers=3, overrides=SETTINGS)
        self.cluster.start()
        self._grows = grows
        self.history = TransactionHistory(PARTITIONS)
        self._count = 0
        client = self.cluster.client()
        self.cluster.run_until(client.create_topic(TOPIC, PARTITIONS, replication_factor=3))
        self.cluster.wait_in_sync(TOPIC, range(PARTITIONS))
        self.producer = self.new_producer()

    def new_producer(self) -> TransactionalProducer:
        """Return a new incarnation of the producer, on a new host."""
        self._count += 1
        name = f"producer-{self._count}"
        return TransactionalProducer(
            self.cluster.host(name).runtime,
            TransactionSettings(ID, timeout_ms=20_000, bumps_epoch=self._grows),
            self.coordinator_client(name),
            lambda key: self.cluster.leader_client(key.topic, key.partition, name=name),
            self.history,
        )

    def coordinator_client(self, name: str) -> CoordinatorClient:
        """Return a client of the current coordinator."""
        brokers = [(f"broker-{number}", BROKER_PORT) for number in self.cluster.brokers]
        return CoordinatorClient(self.cluster.host(name).reactor, brokers, ID, TRANSACTION, client_id=name)

    @property
    def coordinator(self) -> int:
        """Return the current coordinator according to ZooKeeper."""
        return self.cluster.leader_of(TRANSACTION_STATE, partition_of(ID, 3))

    def entry(self) -> Entry | None:
        """Return the coordinator's entry for the transactional ID."""
        leader = self.coordinator
        if leader < 0 or not self.cluster.brokers[leader].running:
            return None
        try:
            return self.cluster.brokers[leader].program.coordinators.transactions.shards.shard_of(ID).get(ID)
        except KafkaError:
            return None

    async def run_transaction(self, text: bytes) -> bool:
        """Write to all partitions and commit.

        :return: True if the commit was acknowledged.
        """
        try:
            await self.producer.begin()
            for number in range(PARTITIONS):
                await self.producer.send(TopicPartition(TOPIC, number), [text])
            await self.producer.commit()
        except RequestRejected:
            return False
        return True

    def read(self, partition: int) -> list[bytes]:
        """Return the committed records of a partition.

        :raise AssertionError: a transaction is still open.
        """
        return self.cluster.run_until(self._read(partition), 120.0)

    async def _read(self, partition: int) -> list[bytes]:
        client = self.cluster.leader_client(TOPIC, partition, name="reader")
        values: list[bytes] = []
        position = 0
        end = await client.list_offset(TOPIC, partition, -1)
        assert await client.list_offset(TOPIC, partition, -1, isolation=READ_COMMITTED) == end, "a transaction is open"
        while position < end:
            row = await client.fetch_row(TOPIC, partition, position, isolation=READ_COMMITTED)
            fetched = visible_records(row, position)
            values += [record.value or b"" for record in fetched.records]
            position = fetched.position
        await client.close()
        return values


def is_pending(title: str) -> Callable[[Entry | None], bool]:
    return lambda entry: entry is not None and entry.pending is not None and entry.pending.state.title == title


def is_in_state(title: str) -> Callable[[Entry | None], bool]:
    return lambda entry: entry is not None and entry.transaction is not None and entry.transaction.state.title == title


STEPS = {
    "Empty is pending": is_pending("Empty"),
    "Empty is committed": is_in_state("Empty"),
    "Ongoing is pending": is_pending("Ongoing"),
    "Ongoing is committed": is_in_state("Ongoing"),
    "PrepareCommit is pending": is_pending("PrepareCommit"),
    "PrepareCommit is committed": is_in_state("PrepareCommit"),
    "CompleteCommit is pending": is_pending("CompleteCommit"),
    "CompleteCommit is committed": is_in_state("CompleteCommit"),
}


@pytest.mark.parametrize("grows", [False, True])
@pytest.mark.parametrize("victim", ["the coordinator", "another broker"])
@pytest.mark.parametrize("step", STEPS)
def test_broker_dies_at_each_step(step: str, victim: str, grows: bool) -> None:
    """All partitions have the acknowledged outcome, and the next transaction succeeds."""
    scene = Scene(100 + list(STEPS).index(step), grows=grows)
    cluster = scene.cluster

    async def first() -> bool:
        await scene.producer.start()
        return await scene.run_transaction(b"first")

    outcomes: list[Any] = []
    Deferred.fromCoroutine(first()).addBoth(outcomes.append)
    cluster.run_until(lambda: STEPS[step](scene.entry()))
    coordinator = scene.coordinator
    number = coordinator if victim == "the coordinator" else 1 + coordinator % 3
    cluster.brokers[number].kill()
    cluster.run_until(lambda: bool(outcomes), 120.0)
    assert outcomes[0] in (True, False), outcomes
    cluster.run_until(lambda: scene.coordinator not in (-1, number), 120.0)
    cluster.run_until(cluster.brokers[number].start(), 120.0)
    cluster.wait_in_sync(TOPIC, range(PARTITIONS))

    async def second() -> bool:
        await scene.producer.close()
        scene.producer = scene.new_producer()
        await scene.producer.start()
        return await scene.run_transaction(b"second")

    assert cluster.run_until(second(), 120.0)
    cluster.run_until(lambda: is_in_state("CompleteCommit")(scene.entry()))
    found = [scene.read(partition) for partition in range(PARTITIONS)]
    assert found == [[b"first", b"second"] if outcomes[0] else [b"second"]] * PARTITIONS
    cluster.run_until(scene.producer.close())
    cluster.stop()


@pytest.mark.parametrize("commits", [True, False])
def test_prepared_transaction_survives_its_producer_and_its_coordinator(commits: bool) -> None:
    """After its timeout, a prepared transaction is taken over and ended in all partitions (KIP-939)."""
    scene = Scene(1, grows=True)
    cluster = scene.cluster
    client = scene.coordinator_client("two-phase")

    async def begin(*, keeps: bool) -> dict[str, Any]:
        body = {"transactional_id": ID, "transaction_timeout_ms": 1, "enable_2pc": True, "keep_prepared_txn": keeps}
        return (await client.request_with_retries(messages.INIT_PRODUCER_ID, body)).body

    async def prepare() -> tuple[int, int]:
        answer = await begin(keeps=False)
        identity = answer["producer_id"], answer["producer_epoch"]
        for number in range(PARTITIONS):
            leader = cluster.leader_client(TOPIC, number, name="two-phase")
            producer_id, epoch = identity
            builder = BatchBuilder(producer_id=producer_id, producer_epoch=epoch, base_sequence=0, transactional=True)
            builder.append(cluster.host("two-phase").runtime.wall_clock_ms(), None, b"prepared")
            row = {"index": number, "records": builder.build()}
            data = [{"name": TOPIC, "partition_data": [row]}]
            body = {"transactional_id": ID, "acks": -1, "timeout_ms": 5000, "topic_data": data}
            answer = await leader.request(messages.PRODUCE, body)
            assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0
            await leader.close()
        return identity

    async def end(producer_id: int, epoch: int) -> dict[str, Any]:
        body = {"transactional_id": ID, "producer_id": producer_id, "producer_epoch": epoch, "committed": commits}
        return (await client.request_with_retries(messages.END_TXN, body)).body

    prepared = cluster.run_until(prepare())
    coordinator = scene.coordinator
    cluster.run(60.0)
    cluster.brokers[coordinator].kill()
    cluster.run_until(lambda: scene.coordinator not in (-1, coordinator), 120.0)
    cluster.run_until(cluster.brokers[coordinator].start(), 120.0)
    takeover = cluster.run_until(begin(keeps=True))
    assert (takeover["ongoing_txn_producer_id"], takeover["ongoing_txn_producer_epoch"]) == prepared
    with pytest.raises(RequestRejected, match="PRODUCER_FENCED"):
        cluster.run_until(end(*prepared))
    ended = cluster.run_until(end(takeover["producer_id"], takeover["producer_epoch"]))
    assert ended["producer_epoch"] == takeover["producer_epoch"] + 1
    cluster.run_until(lambda: is_in_state("CompleteCommit" if commits else "CompleteAbort")(scene.entry()))
    found = [scene.read(partition) for partition in range(PARTITIONS)]
    assert found == [[b"prepared"] if commits else []] * PARTITIONS
    cluster.run_until(client.close())
    cluster.stop()
