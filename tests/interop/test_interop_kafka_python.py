"""kafka-python: default producers, every codec, keys, headers, timestamps, admin calls."""

import pytest
from interop_records import CODECS, Sent, sample
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic


def consume(broker, topic, count, **config):
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, consumer_timeout_ms=10_000, **config)
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    received = []
    for message in consumer:
        received.append(Sent(message.key, message.value, tuple(message.headers), message.timestamp))
        if len(received) == count:
            break
    consumer.close()
    return received


@pytest.mark.parametrize("codec", CODECS)
def test_records_are_returned_unchanged(broker, topic, codec):
    """Every record once and in order; the default producer of this client is idempotent."""
    records = sample()
    compression = None if codec == "none" else codec
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, compression_type=compression, linger_ms=20)
    sent = [
        producer.send(topic, r.value, r.key, list(r.headers), partition=0, timestamp_ms=r.timestamp_ms) for r in records
    ]
    assert [future.get(20).offset for future in sent] == list(range(len(records)))
    producer.close()
    assert consume(broker, topic, len(records)) == records


def test_read_committed_and_times(broker, topic):
    """A consumer of committed records reads all records, and finds offsets by timestamp."""
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    for i in range(10):
        producer.send(topic, b"v%d" % i, partition=0, timestamp_ms=1000 * i)
    producer.flush(20)
    producer.close()
    assert len(consume(broker, topic, 10, isolation_level="read_committed")) == 10
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers)
    partition = TopicPartition(topic, 0)
    assert consumer.offsets_for_times({partition: 4500})[partition].offset == 5
    assert consumer.beginning_offsets([partition]) == {partition: 0}
    assert consumer.end_offsets([partition]) == {partition: 10}
    consumer.close()


def test_admin(broker, topic):
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    admin.create_topics([NewTopic(topic, num_partitions=2, replication_factor=1)])
    assert topic in admin.list_topics()
    assert len(admin.describe_topics([topic])[0]["partitions"]) == 2
    assert len(admin.describe_cluster()["brokers"]) == 1
    admin.delete_topics([topic])
    assert topic not in admin.list_topics()
    admin.close()
