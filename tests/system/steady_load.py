"""Producers and consumers that run during a fault, and checks afterwards."""

from contextlib import contextmanager

from tests.support.outside_clients import SteadyProducer, TailingReader, check_exactly_once
from tests.support.replica_files import check_replicas_equal

PARTITIONS = 3
SOME = 300


@contextmanager
def clients(servers, topic, *, partitions=PARTITIONS, records_per_second=500, settings=None):
    """Write and read in the block; then every acknowledged record must be read once and in order.

    :param settings: additional settings of both clients.
    :return: the producer, whose acknowledgements the block can wait for, and the reader.
    """
    rate = {"records_per_second": records_per_second}
    with (
        SteadyProducer(servers, topic, partitions, **rate, settings=settings) as producer,
        TailingReader(servers, topic, partitions, settings=settings) as reader,
    ):
        producer.wait_for_more(SOME)
        yield producer, reader
        producer.wait_for_more(SOME)
        producer.finish()
        reader.finish(producer.sent)
    check_exactly_once(producer, reader)


@contextmanager
def load(cluster, topic, *, partitions=PARTITIONS, min_in_sync=2, records_per_second=500):
    """Write and read in the block; then every acknowledged record must be read once, in order, and be on all replicas.

    :return: the producer; the block can wait for its acknowledgements.
    """
    cluster.create_topic(topic, partitions, 3, {"min.insync.replicas": min_in_sync})
    servers = cluster.bootstrap_servers
    with clients(servers, topic, partitions=partitions, records_per_second=records_per_second) as (producer, _):
        yield producer
    check_healthy(cluster, topic, producer)


def check_healthy(cluster, topic, producer):
    """Check that all brokers run, and that all replicas have all acknowledged records."""
    cluster.start()
    cluster.wait_until_in_sync(topic)
    check_replicas_equal(cluster, topic, producer.sent)
    assert cluster.tracebacks() == []
