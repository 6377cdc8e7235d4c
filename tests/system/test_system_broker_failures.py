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


def end(broker, how):
    """Stop a broker with SIGTERM, or kill it with SIGKILL."""
    if how == CLEAN:
        assert broker.stop() == ENDED_IN_ORDER
    else:
        broker.kill()


def bounce(cluster, role, topic, how):
    """Stop or kill a broker, restart it at once, and wait until all replicas are in sync."""
    broker = broker_in_role(cluster, role, topic)
    end(broker, how)
    broker.start()
    cluster.wait_until_in_sync(topic)


def shut_down(cluster, role, topic, how):
    """Stop or kill a broker, and let the load continue without it.

    :return: the longest time without an acknowledgement.
    """
    with load(cluster, topic) as producer:
        broker = broker_in_role(cluster, role, topic)
        producer.longest_silence_s = 0.0
        end(broker, how)
        producer.wait_for_more(SOME)
    return producer.longest_silence_s


@pytest.mark.parametrize("role", [LEADER, CONTROLLER])
def test_hard_shutdown(cluster, topic, role):
    """A broker is killed: others lead after its session's expiry, and no acknowledged record is lost."""
    assert shut_down(cluster, role, topic, HARD) < 10


@pytest.mark.parametrize("role", [LEADER, CONTROLLER])
def test_clean_shutdown(cluster, topic, role):
    """A broker is stopped normally: others lead before its end, and clients wait for less than a session timeout."""
    assert shut_down(cluster, role, topic, CLEAN) < 2


def test_bounces(cluster, topic):
    """The leader, then the controller, is stopped or killed and restarted: all replicas are in sync again each time."""
    with load(cluster, topic):
        bounce(cluster, LEADER, topic, HARD)
        bounce(cluster, CONTROLLER, topic, CLEAN)


def test_another_library(cluster, topic):
    """kafka-python, idempotent with ``acks=all``, while the leader is killed and restarted: all records exist once."""
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
def test_five_bounces(cluster, topic, how, role):
    """Each event happens five times in a row, as in Kafka's own system tests."""
    with load(cluster, topic):
        for _ in range(BOUNCES):
            bounce(cluster, role, topic, how)


@pytest.mark.soak
def test_rolling_restarts(cluster, topic):
    """A rolling restart, three times, without interruption of the load."""
    with load(cluster, topic) as producer:
        producer.longest_silence_s = 0.0
        for broker in 3 * list(cluster.brokers.values()):
            end(broker, CLEAN)
            broker.start()
            cluster.wait_until_in_sync(topic)
    assert producer.longest_silence_s < 5


def test_all_killed_at_once(cluster, topic):
    """The whole cluster is killed at once and recovers by itself, with all acknowledged records."""
    with load(cluster, topic):
        cluster.kill()
        cluster.start()
