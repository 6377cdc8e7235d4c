"""A load during an event, and the checks after it."""

from contextlib import contextmanager

from tests.support.outside_clients import SteadyProducer, TailingReader, check_exactly_once
from tests.support.replica_files import check_replicas_equal

PARTITIONS = 3
SOME = 300


@contextmanager
def load(cluster, topic, *, partitions=PARTITIONS, min_in_sync=2, records_per_second=500):
    """Write and read in the block; then every acknowledged record must be read once, in order, and be on all replicas.

    :return: the producer; the block can wait for its acknowledgements.
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
