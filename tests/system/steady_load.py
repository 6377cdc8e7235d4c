"""A load that goes on while something happens to the cluster, and what must hold afterwards."""

from contextlib import contextmanager

from tests.support.outside_clients import SteadyProducer, TailingReader, check_exactly_once
from tests.support.replica_files import check_replicas_equal

PARTITIONS = 3
SOME = 300


@contextmanager
def load(cluster, topic, *, partitions=PARTITIONS, min_in_sync=2, records_per_second=500):
    """Write and read while the block runs; every acknowledged record is then read once, in order, and on all replicas.

    :return: the producer, by which the block waits until more is acknowledged.
    """
    cluster.create_topic(topic, partitions, 3, {"min.insync.replicas": min_in_sync})
    servers = cluster.bootstrap_servers
    with (
        SteadyProducer(servers, topic, partitions, records_per_second=records_per_second) as producer,
        TailingReader(servers, topic, partitions) as reader,
    ):
        producer.wait_for_more(SOME)
        yield producer
        producer.wait_for_more(SOME)
        producer.finish()
        reader.finish(producer.sent)
    check_exactly_once(producer, reader)
    cluster.start()
    cluster.wait_until_in_sync(topic)
    check_replicas_equal(cluster, topic, producer.sent)
    assert cluster.tracebacks() == []
