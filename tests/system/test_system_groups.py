"""A group of real consumers whose coordinator stops, dies and restarts under load."""

import signal
import threading
import time
from collections import Counter

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from steady_load import PARTITIONS, SOME, load

from kreplica.testing.histories.record_history import number_of
from tests.support.process_cluster import wait_until

CONSUMERS = 2
BOUNCES = 5
BATCH = 200
PROTOCOLS = {
    "classic": {"session.timeout.ms": 10_000},
    "consumer": {"group.protocol": "consumer"},
}
"""Settings of members of a classic group and of a KIP-848 group."""

OFFSETS = "__consumer_offsets"
ENDED_IN_ORDER = -signal.SIGTERM


class Member(threading.Thread):
    """A consumer that reads and commits batch by batch until it leaves.

    :ivar read: number of deliveries of each record, by partition and number.
    """

    def __init__(self, servers, topic, group, protocol):
        super().__init__(daemon=True)
        self.read = Counter()
        self.errors = []
        self.partitions = set()
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
                **PROTOCOLS[protocol],
            }
        )
        self._consumer.subscribe([topic])
        self._leaving = threading.Event()
        self.start()

    def run(self):
        while not self._leaving.is_set():
            messages = [message for message in self._consumer.consume(BATCH, 0.2) if not message.error()]
            self.read.update((each.partition(), number_of(each.value(), each.partition())) for each in messages)
            self.partitions = {row.partition for row in self._consumer.assignment()}
            if self.partitions and self.read:
                self._commit()
        self._consumer.close()

    def _commit(self):
        try:
            self._consumer.commit(asynchronous=False)
        except Exception as error:
            # There are no new records or no coordinator, or the group has rebalanced without this member.
            self.errors.append(error)

    def leave(self):
        self._leaving.set()
        self.join(30)
        assert not self.is_alive()


def are_shared(members):
    return sorted(partition for member in members for partition in member.partitions) == list(range(PARTITIONS))


def coordinator_of(cluster, group):
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    return cluster.brokers[admin.describe_consumer_groups([group])[group].result(30).coordinator.id]


def sent_records(producer):
    return {(partition, number) for partition, count in enumerate(producer.sent) for number in range(count)}


def bounce(cluster, group, hard):
    broker = coordinator_of(cluster, group)
    if hard:
        broker.kill()
    else:
        assert broker.stop() == ENDED_IN_ORDER
    time.sleep(1)
    broker.start()
    cluster.wait_until_in_sync(OFFSETS)


def check_reading(cluster, topic, protocol, restarts):
    """Restart the coordinator of a group: every record is read, and no committed record is read again."""
    group = f"group of {topic}"
    with load(cluster, topic) as producer:
        members = [Member(cluster.bootstrap_servers, topic, group, protocol) for _ in range(CONSUMERS)]
        wait_until(lambda: are_shared(members), "two members that share the partitions")
        for hard in restarts:
            bounce(cluster, group, hard)
            producer.wait_for_more(SOME)
            wait_until(lambda: are_shared(members), "the members to share the partitions again")

    def all_read():
        return sent_records(producer) <= members[0].read.keys() | members[1].read.keys()

    wait_until(all_read, "every record to be read")
    for member in members:
        member.leave()
    checker = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": group})
    committed = checker.committed([TopicPartition(topic, partition) for partition in range(PARTITIONS)], 30)
    ends = [checker.get_watermark_offsets(row, 30)[1] for row in committed]
    assert [row.offset for row in committed] == ends
    checker.close()
    return members[0].read + members[1].read


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_coordinator_bounces(cluster, topic, protocol):
    """The coordinator is killed, later stopped normally, and restarted: members continue, and no commit is lost."""
    times = check_reading(cluster, topic, protocol, [True, False])
    again = sum(count - 1 for count in times.values())
    # Per rebalance, a member rereads at most the one batch that it had read but not committed.
    assert again <= BATCH * CONSUMERS * 4


@pytest.mark.soak
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_repeated_coordinator_bounces(cluster, topic, protocol):
    """The coordinator is killed and stopped normally in turn, five times each."""
    check_reading(cluster, topic, protocol, [True, False] * BOUNCES)
