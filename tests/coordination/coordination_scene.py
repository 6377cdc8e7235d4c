"""A cluster whose brokers coordinate the only partition of a test topic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from kreplica.coordination import Shards, StateLog, StateLogConfig
from kreplica.errors import ErrorCode, KafkaError, ProtocolError
from kreplica.model import TopicPartition
from kreplica.runtime import Runtime
from kreplica.service.composition.broker import Broker
from kreplica.testing.cluster.cluster import SimulatedCluster, broker_settings
from kreplica.wire.batches import BatchHeader

TOPIC = "state"
KEY = TopicPartition(TOPIC, 0)
POISON = b"poison"


class KeyValueShard:
    """A shard that stores the last value of each key."""

    def __init__(self, state_log: StateLog) -> None:
        self.log = state_log
        self.values: dict[bytes, bytes | None] = {}
        self.pending: dict[int, dict[bytes, bytes | None]] = {}
        self.is_loaded = False
        self.is_unloaded = False

    def replay(self, key: bytes, value: bytes | None, batch: BatchHeader) -> None:
        if key == POISON:
            raise ProtocolError("Note", "poison")
        if batch.is_transactional:
            self.pending.setdefault(batch.producer_id, {})[key] = value
        else:
            self.values[key] = value

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        pending = self.pending.pop(producer_id, {})
        if committed:
            self.values.update(pending)

    def loaded(self) -> None:
        self.is_loaded = True

    def unload(self) -> None:
        self.is_unloaded = True

    def put(self, key: bytes, value: bytes, answers: list[tuple[bytes, ErrorCode]]) -> None:
        self.log.append([(key, value)], partial(self.values.__setitem__, key, value), on_result(key, answers))


def on_result(key: bytes, answers: list[tuple[bytes, ErrorCode]]) -> Callable[[ErrorCode], None]:
    return lambda code: answers.append((key, code))


class Scene:
    def __init__(self, cluster: SimulatedCluster, shards: dict[int, list[Shards[KeyValueShard]]]) -> None:
        self.cluster = cluster
        self._shards = shards

    def shards(self, broker: int) -> Shards[KeyValueShard]:
        return self._shards[broker][-1]

    @property
    def leader(self) -> int:
        return self.cluster.leader_of(*KEY)

    def loaded_shard(self) -> KeyValueShard:
        """Return the leader's shard once it is loaded."""

        def is_loaded() -> bool:
            leader = self.leader
            return leader > 0 and self.cluster.brokers[leader].running and self.error_of(leader) is ErrorCode.NONE

        self.cluster.run_until(is_loaded)
        return self.shards(self.leader).shard_of("any")

    def cut_followers(self) -> None:
        """Disconnect the followers from the leader."""
        for number in self.cluster.brokers:
            if number != self.leader:
                self.cluster.simulation.network.cut(f"broker-{self.leader}", f"broker-{number}")

    def error_of(self, broker: int) -> ErrorCode:
        try:
            self.shards(broker).shard_of("any")
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE


@contextmanager
def running_scene(*, brokers: int = 3, timeout_s: float = 5.0, seed: int = 1) -> Iterator[Scene]:
    """Yield a cluster in which one broker leads the only partition; restarted brokers coordinate it again."""
    cluster = SimulatedCluster(seed, brokers=brokers, overrides=["controlled.shutdown.enable=false"])
    shards: dict[int, list[Shards[KeyValueShard]]] = {number: [] for number in cluster.brokers}

    def build(number: int, runtime: Runtime) -> Broker:
        broker = Broker(runtime, broker_settings(number))
        shards[number].append(
            Shards(
                runtime,
                broker.partitions,
                TOPIC,
                KeyValueShard,
                lambda: broker.coordinators.view.partition_count(TOPIC),
                broker.flush_scope.at_end,
                StateLogConfig(timeout_s=timeout_s),
            )
        )
        return broker

    for number, machine in cluster.brokers.items():
        machine._build = partial(build, number)
    cluster.start()
    client = cluster.client()
    configs = {"min.insync.replicas": str(min(2, brokers)), "max.message.bytes": "2000"}
    cluster.run_until(client.create_topic(TOPIC, 1, configs, replication_factor=brokers))
    cluster.wait_in_sync(TOPIC, [0])
    yield Scene(cluster, shards)
    cluster.simulation.network.heal()
    cluster.stop()
