"""Leaders and controllers that stop, die and restart under load, as in Kafka's system tests, on real processes."""

import itertools
import signal

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from steady_load import SOME, load

LEADER, CONTROLLER = "leader", "controller"
CLEAN, HARD = "clean", "hard"
BOUNCES = 5

ENDED_IN_ORDER = -signal.SIGTERM
"""``twistd`` sends the signal to itself again after everything has stopped."""


def broker_in_role(cluster, role, topic):
    return cluster.brokers[cluster.leader(topic) if role == LEADER else cluster.controller()]


def stop_or_kill(broker, how):
    """Stop a broker with SIGTERM, or kill it with SIGKILL."""
    if how == CLEAN:
        assert broker.stop() == ENDED_IN_ORDER
    else:
        broker.kill()


def bounce(cluster, role, topic, how):
    """Stop or kill a broker, restart it at once, and wait until all replicas are in sync."""
    broker = broker_in_role(cluster, role, topic)
    stop_or_kill(broker, how)
    broker.start()
    cluster.wait_until_in_sync(topic)


def shut_down(cluster, role, topic, how):
    """Stop or kill a broker, and let the load continue without it.

    :return: the longest time without an acknowledgement.
    """
    with load(cluster, topic) as producer:
        broker = broker_in_role(cluster, role, topic)
        producer.longest_silence_s = 0.0
        stop_or_kill(broker, how)
        producer.wait_for_more(SOME)
    return producer.longest_silence_s


@pytest.mark.parametrize("role", [LEADER, CONTROLLER])
def test_killed_broker(cluster, topic, role):
    """When a broker is killed, others take over after its session expires, and no acknowledged record is lost."""
    assert shut_down(cluster, role, topic, HARD) < 10


@pytest.mark.parametrize("role", [LEADER, CONTROLLER])
def test_stopped_broker(cluster, topic, role):
    """A broker that is stopped normally hands over its roles first: clients wait for less than a session timeout."""
    assert shut_down(cluster, role, topic, CLEAN) < 2


def test_restarted_brokers(cluster, topic):
    """After each restart of the leader and of the controller, stopped or killed, all replicas get in sync again."""
    with load(cluster, topic):
        bounce(cluster, LEADER, topic, HARD)
        bounce(cluster, CONTROLLER, topic, CLEAN)


def test_kafka_python_during_a_restart(cluster, topic):
    """kafka-python, idempotent with ``acks=all``, writes each record once while the leader is killed and restarted."""
    cluster.create_topic(topic, 1, 3, {"min.insync.replicas": 2})
    producer = KafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, acks="all", enable_idempotence=True, retry_backoff_ms=50
    )
    offsets = {}
    for number in range(SOME):
        if number == SOME // 3:
            killed = cluster.brokers[cluster.leader(topic)]
            killed.kill()
        if number == 2 * SOME // 3:
            killed.start()
        offsets[number] = producer.send(topic, b"%d" % number)
        if number % 10 == 0:
            producer.flush(60)
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, enable_auto_commit=False)
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    read = [(record.offset, int(record.value)) for record in itertools.islice(consumer, SOME)]
    consumer.close()
    assert read == [(number, number) for number in range(SOME)]
    assert [offsets[number].get(1).offset for number in range(SOME)] == list(range(SOME))


@pytest.mark.soak
@pytest.mark.parametrize(("how", "role"), list(itertools.product([CLEAN, HARD], [LEADER, CONTROLLER])))
def test_five_restarts(cluster, topic, how, role):
    """Each kind of restart happens five times in a row, as in Kafka's system tests."""
    with load(cluster, topic):
        for _ in range(BOUNCES):
            bounce(cluster, role, topic, how)


@pytest.mark.soak
def test_rolling_restarts(cluster, topic):
    """Three rolling restarts do not interrupt the load."""
    with load(cluster, topic) as producer:
        producer.longest_silence_s = 0.0
        for broker in 3 * list(cluster.brokers.values()):
            stop_or_kill(broker, CLEAN)
            broker.start()
            cluster.wait_until_in_sync(topic)
    assert producer.longest_silence_s < 5


def test_all_killed_at_once(cluster, topic):
    """After all brokers are killed at once and restarted, the cluster has all acknowledged records."""
    with load(cluster, topic):
        cluster.kill()
        cluster.start()
