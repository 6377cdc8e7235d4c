"""confluent-kafka (librdkafka): default producers, every codec, keys, headers, timestamps, offsets, admin calls."""

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, ResourceType
from interop_records import CODECS, Sent, sample

# librdkafka requires a group ID even without a group.
NO_GROUP = {"group.id": "none", "enable.auto.commit": False}


def produce(broker, topic, records, **config):
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, **config})
    failures = []
    for record in records:
        producer.produce(
            topic,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
            timestamp=record.timestamp_ms,
            partition=0,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(30) == 0
    assert failures == []


def consume(broker, topic, count, offset=OFFSET_BEGINNING, **config):
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, **NO_GROUP, **config})
    consumer.assign([TopicPartition(topic, 0, offset)])
    records, offsets = [], []
    while len(records) < count:
        for message in consumer.consume(count - len(records), 10) or pytest.fail(f"{len(records)} of {count} arrived"):
            assert message.error() is None
            headers = tuple(message.headers() or ())
            records.append(Sent(message.key(), message.value(), headers, message.timestamp()[1]))
            offsets.append(message.offset())
    consumer.close()
    return records, offsets


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("idempotent", [False, True])
def test_records_are_returned_unchanged(broker, topic, codec, idempotent):
    """Key, value, headers and timestamp of every record, once and in order."""
    records = sample()
    produce(broker, topic, records, **{"compression.type": codec, "enable.idempotence": idempotent, "linger.ms": 20})
    received, offsets = consume(broker, topic, len(records))
    assert received == records
    assert offsets == list(range(len(records)))


def test_offsets_for_times_and_watermarks(broker, topic):
    """A timestamp finds its record exactly; the watermarks are the ends of the log."""
    records = sample(50)
    produce(broker, topic, records, **{"linger.ms": 50})
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, **NO_GROUP})
    asked = [TopicPartition(topic, 0, 1_600_000_000_017)]
    assert consumer.offsets_for_times(asked, 10)[0].offset == 17
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), 10) == (0, 50)
    consumer.close()


def test_seek_into_the_middle_of_a_batch(broker, topic):
    """Reading starts at the requested offset, not at the start of its batch."""
    records = sample(100)
    produce(broker, topic, records, **{"linger.ms": 50})
    received, offsets = consume(broker, topic, 20, offset=80)
    assert received == records[80:]
    assert offsets[0] == 80


def test_admin(broker, topic):
    """Create, describe, add partitions, configure, delete."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    new_topic = NewTopic(topic, num_partitions=3, replication_factor=1, config={"retention.ms": "1000000"})
    admin.create_topics([new_topic])[topic].result(10)
    assert len(admin.list_topics(topic, 10).topics[topic].partitions) == 3
    with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
        admin.create_topics([new_topic])[topic].result(10)

    resource = ConfigResource(ResourceType.TOPIC, topic)
    (described,) = [f.result(10) for f in admin.describe_configs([resource]).values()]
    assert described["retention.ms"].value == "1000000"
    assert described["segment.bytes"].is_default
    broker_resource = ConfigResource(ResourceType.BROKER, "1")
    (described,) = [f.result(10) for f in admin.describe_configs([broker_resource]).values()]
    assert described["num.partitions"].value == "1"

    resource.set_config("retention.ms", "2000000")
    admin.alter_configs([resource])[resource].result(10)
    (described,) = [f.result(10) for f in admin.describe_configs([resource]).values()]
    assert described["retention.ms"].value == "2000000"

    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(10)
    assert len(admin.list_topics(topic, 10).topics[topic].partitions) == 5
    cluster = admin.describe_cluster().result(10)
    assert len(cluster.nodes) == 1
    assert cluster.controller.id == cluster.nodes[0].id

    admin.delete_topics([topic])[topic].result(10)
    assert topic not in admin.list_topics(timeout=10).topics


def test_delete_records(broker, topic):
    """Records below the offset are deleted; others are kept."""
    records = sample(100)
    produce(broker, topic, records, **{"batch.num.messages": 10})
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    (deleted,) = [f.result(10) for f in admin.delete_records([TopicPartition(topic, 0, 55)]).values()]
    assert deleted.low_watermark == 55
    received, offsets = consume(broker, topic, 45, offset=55)
    assert offsets[0] == 55
    assert received == records[55:]
