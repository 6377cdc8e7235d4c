"""``kreplica verify`` on real brokers that are killed, stopped and cut off while it runs."""

import json
import os
import random
import signal
import subprocess
import sys

import pytest

from kreplica.wire import messages
from tests.support.links import COORDINATOR, cut
from tests.support.process_cluster import ProcessCluster, wait_until
from tests.support.proxy import ProxyLinks
from tests.support.real_zookeeper import RealZooKeeper

SOME = 200
END_OF_LOG = -1


class Verify:
    """The command, running until ``outcome`` interrupts it.

    :param words: more options.
    """

    def __init__(self, cluster, topic, *words):
        self._cluster = cluster
        self._topic = topic
        options = ["--topic", topic, "--partitions", "1", "--seconds", "600", "--json", *words]
        command = [sys.executable, "-m", "kreplica.cli", "verify", "--bootstrap", cluster.bootstrap_servers, *options]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self._seen = 0

    def __enter__(self):
        self.wait_for_more(SOME)
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.communicate()

    @property
    def leader(self):
        return self._cluster.brokers[self._cluster.leader(self._topic)]

    def wait_for_more(self, count, timeout_s=30.0):
        """Until so many more records are committed."""
        wanted = self._end() + count
        wait_until(lambda: self._end() >= wanted, f"{wanted} records", timeout_s)

    def _end(self):
        """The highest committed offset that any broker has named: without a leader none names one."""
        rows = [{"partition_index": 0, "timestamp": END_OF_LOG}]
        body = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": self._topic, "partitions": rows}]}
        answers = [
            self._cluster.request(messages.LIST_OFFSETS, body, of=broker.broker_id)
            for broker in self._cluster.answering
        ]
        offsets = [answer["topics"][0]["partitions"][0]["offset"] for answer in answers]
        self._seen = max(self._seen, *offsets)
        return self._seen

    def outcome(self, status=0):
        """Interrupt the writing, and give what it says once all is settled."""
        self._process.send_signal(signal.SIGINT)
        out, err = self._process.communicate(timeout=120)
        assert self._process.returncode == status, out + err
        return json.loads(out)


def found(told):
    return {row["kind"]: row["count"] for row in told["anomalies"] if row["count"]}


def test_brokers_are_killed_and_stopped(cluster, topic):
    """The leader is killed and comes back, the next one stands still for a while: nothing is lost, and it is clean."""
    with Verify(cluster, topic) as verify:
        killed = verify.leader
        killed.kill()
        verify.wait_for_more(SOME)
        killed.start()
        cluster.wait_until_in_sync(topic)
        stopped = verify.leader
        stopped.pause()
        verify.wait_for_more(SOME)
        stopped.resume()
        told = verify.outcome()
    assert told["clean"]
    assert found(told) == {}
    assert told["records_acknowledged"] == told["records_sent"] > 3 * SOME
    assert 0.5 < told["longest_silence_seconds"] < 15
    assert told["client_errors"]
    assert not cluster.partitions(topic)


def test_a_disk_loses_the_end_of_a_log(cluster, topic):
    """The only replica comes back without the last half of what it had acknowledged: that is told, with status 1."""
    with Verify(cluster, topic, "--replication-factor", "1") as verify:
        broker = verify.leader
        broker.kill()
        (path,) = (broker.log_directories[0] / f"{topic}-0").glob("*.log")
        os.truncate(path, path.stat().st_size // 2)
        broker.start()
        cluster.wait_until_in_sync(topic)
        verify.wait_for_more(SOME)
        told = verify.outcome(status=1)
    assert not told["clean"]
    assert told["settled"]
    assert told["producer_restarts"] == 1
    assert found(told).keys() & {"lost write", "inconsistent acknowledgement", "inconsistent offsets"}


@pytest.mark.soak
@pytest.mark.parametrize("acks", ["all", "1"])
def test_every_broker_is_killed_again_and_again(cluster, topic, acks):
    """Kills of any broker: with ``acks=all`` nothing is lost; with ``acks=1`` readers are still told one story."""
    rng = random.Random(acks)
    with Verify(cluster, topic, "--acks", acks, "--producers", "3") as verify:
        for _ in range(10):
            broker = cluster.brokers[rng.choice(list(cluster.brokers))]
            rng.choice([broker.kill, broker.stop])()
            verify.wait_for_more(SOME)
            broker.start()
            cluster.wait_until_in_sync(topic)
        told = verify.outcome()
    assert told["clean"]
    assert acks == "1" or found(told) == {}


@pytest.mark.soak
def test_brokers_are_cut_off(tmp_path, topic):
    """The leader is cut off from ZooKeeper, and maybe from the other brokers too, five times."""
    rng = random.Random(1)
    with (
        RealZooKeeper(tmp_path / "zookeeper") as zookeeper,
        ProxyLinks(zookeeper.connect_string) as links,
        ProcessCluster(tmp_path, links.places, links=links) as cluster,
        Verify(cluster, topic) as verify,
    ):
        for _ in range(5):
            leader = verify.leader.broker_id
            others = [each for each in cluster.brokers if each != leader]
            far = rng.choice([[COORDINATOR], [COORDINATOR, *others]])
            cut(links, [leader], far)
            verify.wait_for_more(SOME, 60)
            links.heal()
            cluster.wait_until_in_sync(topic)
        told = verify.outcome()
    assert told["clean"]
    assert found(told) == {}
