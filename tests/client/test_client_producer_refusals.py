"""Records that a broker refuses before it writes them have a known outcome."""

from __future__ import annotations

import errno

from producer_scene import Scene

from kreplica.client_core.errors import BrokerRefused, GaveUp, OutcomeUnknown
from kreplica.errors import ErrorCode
from kreplica.model import TopicPartition
from kreplica.testing.simulator.disk import CAPACITY_BYTES
from kreplica.testing.simulator.simulation import DATA_DIRECTORY


def test_too_few_replicas_in_sync() -> None:
    """The leader refuses the record, which fails after its timeout as not written."""
    scene = Scene(brokers=3, overrides=("min.insync.replicas=2",))
    leader = scene.brokers.leader_of("t", 0)
    for number in {1, 2, 3} - {leader}:
        scene.brokers.brokers[number].kill()
    scene.brokers.run(30.0)
    producer = scene.producer(delivery_timeout_s=3.0)
    error = scene.error(producer.send("t", b"v", partition=0))
    assert isinstance(error, GaveUp)
    assert not isinstance(error, OutcomeUnknown)
    assert isinstance(error.__cause__, BrokerRefused)
    assert error.__cause__.code is ErrorCode.NOT_ENOUGH_REPLICAS
    scene.close()


def test_a_full_disk_while_other_batches_wait_for_followers() -> None:
    """After one batch is refused, no later batch is written twice, and the producer keeps its epoch."""
    scene = Scene(brokers=3, overrides=("replica.lag.time.max.ms=60000", "min.insync.replicas=2"))
    leader = scene.brokers.leader_of("t", 0)
    cluster = scene.new_cluster(request_timeout_s=2.0)
    producer = scene.producer(cluster=cluster, batch_size=1)
    for partition in range(4):
        scene.run(producer.send("t", b"first", partition=partition))
    disks = [scene.brokers.brokers[number].host.disk for number in {1, 2, 3} - {leader}]
    for disk in disks:
        total, free = disk.usage(DATA_DIRECTORY)
        disk.capacity_bytes = total - free
    segments = f"{DATA_DIRECTORY}/logs/t-0/*.log"
    full = scene.brokers.brokers[leader].host.disk
    full.fail("write", segments, errno.ENOSPC, times=1)
    sent = [producer.send("t", b"%d" % number, partition=number % 4) for number in range(16)]
    scene.brokers.run(5.0)
    assert not full.is_failing, "no batch was rejected"
    for disk in disks:
        disk.capacity_bytes = CAPACITY_BYTES
    for each in sent:
        scene.run(each)
    for partition in range(4):
        assert scene.values(partition) == [b"first", *(b"%d" % number for number in range(partition, 16, 4))]
    log = scene.brokers.brokers[leader].program.directories.logs[TopicPartition("t", 0)]
    assert [entry.epoch for entry in log.producers.entries] == [0]
    scene.run(producer.close())
    scene.run(cluster.close())
    scene.close()
