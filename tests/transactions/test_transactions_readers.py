"""read_committed consumers read from leaders and followers while leaders die during transactions."""

from __future__ import annotations

from typing import Any

import pytest

from kreplica.client.errors import ClientError
from kreplica.errors import KafkaError
from kreplica.model import TopicPartition
from kreplica.replication import READ_COMMITTED
from kreplica.testing.clients.coordinator_client import TRANSACTION, CoordinatorClient
from kreplica.testing.clients.fetched_records import visible_records
from kreplica.testing.clients.transactional_producer import TransactionalProducer, TransactionSettings
from kreplica.testing.clients.wire_client import WireClient
from kreplica.testing.cluster.cluster import BROKER_PORT, SimulatedCluster
from kreplica.testing.histories.transaction_history import TransactionHistory

KEY = TopicPartition("t", 0)
BROKERS = (1, 2, 3)
SETTINGS = (
    "transaction.state.log.num.partitions=1",
    "offsets.topic.num.partitions=1",
    "zookeeper.session.timeout.ms=6000",
)


class Scene:
    """A partition on three brokers and two transactional producers."""

    def __init__(self, seed: int, *, grows: bool, **configs: str) -> None:
        self.cluster = SimulatedCluster(seed, brokers=3, overrides=SETTINGS)
        self.cluster.start()
        self._sent: list[bytes] = []
        self._ended: dict[bytes, bool] = {}
        topic_config = {name.replace("_", "."): value for name, value in configs.items()}
        created = self.cluster.client().create_topic(KEY.topic, 1, topic_config, replication_factor=3)
        self.cluster.run_until(created)
        self.cluster.wait_in_sync(KEY.topic, [0])
        self.producers = [self._producer(f"tx-{number}", grows) for number in range(2)]
        for producer in self.producers:
            self.cluster.run_until(producer.start(), 120.0)

    def _producer(self, name: str, grows: bool) -> TransactionalProducer:
        brokers = [(f"broker-{number}", BROKER_PORT) for number in BROKERS]
        host = self.cluster.host(name)
        return TransactionalProducer(
            host.runtime,
            TransactionSettings(name, timeout_ms=60_000, bumps_epoch=grows),
            CoordinatorClient(host.reactor, brokers, name, TRANSACTION, client_id=name),
            lambda key: self.cluster.leader_client(key.topic, key.partition, name=name),
            TransactionHistory(1),
        )

    @property
    def leader(self) -> int:
        return self.cluster.leader_of(*KEY)

    async def write(self, number: int, *texts: bytes) -> None:
        """Write in the producer's transaction, beginning one if needed."""
        producer = self.producers[number]
        if producer.transaction is None:
            await producer.begin()
        await producer.send(KEY, list(texts))
        self._sent += texts

    async def end(self, number: int, *texts: bytes, committed: bool) -> None:
        """End the transaction that contains these records."""
        producer = self.producers[number]
        await (producer.commit() if committed else producer.abort())
        self._ended |= dict.fromkeys(texts, committed)

    @property
    def committed(self) -> list[bytes]:
        """Return the records that readers must see, in log order."""
        return [text for text in self._sent if self._ended.get(text)]

    def run(self, work: Any) -> Any:
        return self.cluster.run_until(work, 120.0)

    def kill_leader(self, *, power: bool) -> int:
        """Kill the leader, losing unsynced data if ``power`` is set, and wait for the next leader."""
        dead = self.leader
        machine = self.cluster.brokers[dead]
        if power:
            machine.power_loss()
        else:
            machine.kill()
        self.cluster.run_until(lambda: self.leader not in (-1, dead), 120.0)
        return dead

    def restart(self, broker: int) -> None:
        self.run(self.cluster.brokers[broker].start())
        self.cluster.wait_in_sync(KEY.topic, [0])

    # --- reading -----------------------------------------------------------------------------------------------------

    def read(self, broker: int) -> list[bytes]:
        """Return the records that a read_committed consumer reads from a broker, leader or follower (KIP-392)."""
        return self.run(self._read(self.cluster.client(broker=broker)))

    async def _read(self, client: WireClient) -> list[bytes]:
        values: list[bytes] = []
        position = 0
        while True:
            row = await client.fetch_row(KEY.topic, KEY.partition, position, isolation=READ_COMMITTED, size_max=200)
            fetched = visible_records(row, position)
            values += [record.value or b"" for record in fetched.records]
            if fetched.position == position:
                await client.close()
                return values
            position = fetched.position

    def check(self) -> None:
        """Check that every live broker returns a prefix of the committed records."""
        for broker, machine in self.cluster.brokers.items():
            if machine.running:
                try:
                    found = self.read(broker)
                except (KafkaError, ClientError):
                    continue  # the broker does not know its role in the partition yet
                assert found == self.committed[: len(found)], broker

    def settle(self) -> None:
        """Wait until all transactions have ended, and check that every replica returns all committed records."""
        self.cluster.run_until(lambda: all(self._stable(broker) for broker in BROKERS), 120.0)
        for broker in BROKERS:
            assert self.read(broker) == self.committed, broker

    def _stable(self, broker: int) -> bool:
        partition = self.cluster.brokers[broker].program.partitions.get(KEY)
        if partition is None:
            return False
        end_offset = self.cluster.brokers[self.leader].program.partitions.led_partition(KEY).log.log_end_offset
        return bool(partition.visible_end(READ_COMMITTED) == end_offset)


@pytest.mark.parametrize("grows", [False, True])
@pytest.mark.parametrize("seed", [1, 2])
def test_leaders_die_in_the_middle_of_transactions(seed: int, grows: bool) -> None:
    """The next leader and all followers return the same committed records."""
    scene = Scene(seed, grows=grows)
    for turn in range(5):
        commits = turn % 2 == seed % 2
        own = [b"%d/%d" % (turn, number) for number in range(3)]
        other = [b"other %d" % turn]
        scene.run(scene.write(0, own[0]))
        scene.run(scene.write(1, *other))
        scene.run(scene.write(0, own[1]))
        dead = scene.kill_leader(power=turn == 3)
        scene.check()
        scene.run(scene.end(1, *other, committed=True))
        scene.run(scene.write(0, own[2]))
        scene.check()
        scene.run(scene.end(0, *own, committed=commits))
        scene.check()
        scene.restart(dead)
        scene.settle()
    scene.cluster.stop()
