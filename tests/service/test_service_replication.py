"""The error that a broker returns for partitions that it does not have."""

from twisted.internet.task import Clock

from kreplica.model import TopicPartition
from kreplica.server.metadata.metadata_cache import MetadataCache
from kreplica.service.broker.replication import may_exist

BROKER = {"id": 1, "endpoints": [{"listener": "PLAINTEXT", "host": "h", "port": 1}], "rack": None}
PARTITION = {"partition_index": 0, "leader": 1, "leader_epoch": 0, "replicas": [1], "isr": [1]}


def test_starting_broker_reports_no_unknown_topic():
    """Before its first metadata update, a broker assumes that any partition may exist, so clients retry."""
    metadata = MetadataCache(Clock())
    assert may_exist(metadata, TopicPartition("orders", 0))
    topic = {"topic_name": "orders", "topic_id": None, "partition_states": [PARTITION]}
    metadata.update({"controller_id": 1, "live_brokers": [BROKER], "topic_states": [topic]})
    assert may_exist(metadata, TopicPartition("orders", 0))
    assert not may_exist(metadata, TopicPartition("orders", 1))
    assert not may_exist(metadata, TopicPartition("bills", 0))
