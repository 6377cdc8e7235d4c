"""Admin calls of confluent-kafka on topics, and its asyncio clients: scenarios equivalent to its own tests."""

from __future__ import annotations

import asyncio

import pytest
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, OffsetSpec, ResourceType
from confluent_kafka.aio import AIOConsumer, AIOProducer
from confluent_scene import TIME_S_MAX, Scene, wait_until

from tests.support.process_cluster import ProcessCluster


@pytest.mark.parametrize("level", list(IsolationLevel), ids=lambda level: level.name)
def test_offsets_are_found_by_specification(scene: Scene, topic: str, level: IsolationLevel) -> None:
    """Offsets are returned for earliest, latest, a timestamp and the maximum timestamp."""
    producer = scene.producer()
    for time_ms in (1_000_000_100, 1_000_000_400, 1_000_000_200):
        producer.produce(topic, b"x", partition=0, timestamp=time_ms)
    assert producer.flush(TIME_S_MAX) == 0

    def offset(spec: OffsetSpec) -> int:
        (future,) = scene.admin.list_offsets({TopicPartition(topic, 0): spec}, isolation_level=level).values()
        return int(future.result(TIME_S_MAX).offset)

    assert (offset(OffsetSpec.earliest()), offset(OffsetSpec.latest())) == (0, 3)
    assert offset(OffsetSpec.max_timestamp()) == 1
    assert offset(OffsetSpec.for_timestamp(1_000_000_150)) == 1


def test_records_are_deleted_up_to_an_offset(scene: Scene, topic: str) -> None:
    """The log starts at the requested offset after the deletion."""
    scene.send(topic, 0, [b"a", b"b", b"c"])
    (future,) = scene.admin.delete_records([TopicPartition(topic, 0, 2)]).values()
    assert future.result(TIME_S_MAX).low_watermark == 2
    assert scene.committed_values(topic) == [b"c"]


def settings(scene: Scene, topic: str) -> dict[str, str]:
    """Return the configurations of the topic itself."""
    (future,) = scene.admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    return {name: entry.value for name, entry in future.result(TIME_S_MAX).items() if not entry.is_default}


def change(scene: Scene, topic: str, *changes: tuple[str, str | None, AlterConfigOpType]) -> None:
    """Change some configurations of a topic."""
    entries = [ConfigEntry(name, value, incremental_operation=operation) for name, value, operation in changes]
    asked = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    (future,) = scene.admin.incremental_alter_configs([asked]).values()
    assert future.result(TIME_S_MAX) is None


def test_incremental_changes_of_configurations(scene: Scene, topic: str) -> None:
    """Values are appended to a list and subtracted; other configurations are set and deleted."""
    kinds = AlterConfigOpType
    before = settings(scene, topic)
    change(scene, topic, ("cleanup.policy", "compact", kinds.APPEND), ("retention.ms", "10000", kinds.SET))
    grown = before | {"cleanup.policy": "delete,compact", "retention.ms": "10000"}
    wait_until(lambda: settings(scene, topic) == grown, f"{grown}", lambda: None)
    policies = [("cleanup.policy", value, kinds.SUBTRACT) for value in ("delete", "compact")]
    change(scene, topic, policies[0], ("retention.ms", None, kinds.DELETE))
    change(scene, topic, policies[1])
    shrunk = before | {"cleanup.policy": ""}
    wait_until(lambda: settings(scene, topic) == shrunk, f"{shrunk}", lambda: None)


def test_asyncio_clients_write_and_read(cluster: ProcessCluster, topic: str) -> None:
    """An asyncio producer sends batches; its record for a missing partition fails; a consumer reads in a group."""

    async def run() -> None:
        servers = {"bootstrap.servers": cluster.bootstrap_servers}
        producer = AIOProducer({**servers, "message.timeout.ms": 5000})
        sent = [await producer.produce(topic, value=b"%d" % number, partition=0) for number in range(50)]
        lost = await producer.produce(topic, value=b"nowhere", partition=5)
        await producer.flush()
        assert [message.offset() for message in await asyncio.gather(*sent)] == list(range(50))
        with pytest.raises(KafkaException) as raised:
            await lost
        assert raised.value.args[0].code() == KafkaError._UNKNOWN_PARTITION
        await producer.close()
        consumer = AIOConsumer({**servers, "group.id": topic, "auto.offset.reset": "earliest"})
        assigned = []

        async def assign(consumer, partitions):
            assigned.append(len(partitions))
            await consumer.assign(partitions)

        await consumer.subscribe([topic], on_assign=assign)
        found = []
        while len(found) < 50:
            message = await consumer.poll(TIME_S_MAX)
            assert message is not None
            found.append(message.value())
        assert found == [b"%d" % number for number in range(50)]
        assert assigned == [2]
        await consumer.commit(asynchronous=False)
        await consumer.close()

    asyncio.run(asyncio.wait_for(run(), 2 * TIME_S_MAX))
