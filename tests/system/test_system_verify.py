"""``kreplica verify`` on real brokers that are killed, stopped and disconnected during the run."""

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

RECORDS_COMMITTED = 200
END_OF_LOG = -1


class VerifyCommand:
    """The command ``kreplica verify``, which runs until ``stop`` interrupts it.

    :param words: additional options.
    """

    def __init__(self, cluster, topic, *words):
        self._cluster = cluster
        self._topic = topic
        options = ["--topic", topic, "--partitions", "1", "--seconds", "600", "--json", *words]
        command = [sys.executable, "-m", "kreplica.cli", "verify", "--bootstrap", cluster.bootstrap_servers, *options]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self._seen = 0

    def __enter__(self):
        self.wait_for_more(RECORDS_COMMITTED)
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.communicate()

    @property
    def leader(self):
        return self._cluster.brokers[self._cluster.leader(self._topic)]

    def wait_for_more(self, count, timeout_s=30.0):
        """Wait until ``count`` more records are committed."""
        wanted = self._end() + count
        wait_until(lambda: self._end() >= wanted, f"{wanted} records", timeout_s)

    def _end(self):
        """Return the highest committed offset that a broker has returned; without a leader, no broker returns one."""
        rows = [{"partition_index": 0, "timestamp": END_OF_LOG}]
        body = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": self._topic, "partitions": rows}]}
        answers = [
            self._cluster.request(messages.LIST_OFFSETS, body, of=broker.broker_id)
            for broker in self._cluster.answering
        ]
        offsets = [answer["topics"][0]["partitions"][0]["offset"] for answer in answers]
        self._seen = max(self._seen, *offsets)
        return self._seen

    def stop(self, status=0):
        """Interrupt the command, and return its result."""
        self._process.send_signal(signal.SIGINT)
        out, err = self._process.communicate(timeout=120)
        assert self._process.returncode == status, out + err
        return json.loads(out)


def anomalies_in(result):
    return {row["kind"]: row["count"] for row in result["anomalies"] if row["count"]}


def test_brokers_are_killed_and_paused(cluster, topic):
    """One leader is killed and restarted, the next one paused: no record is lost, and the result is clean."""
    with VerifyCommand(cluster, topic) as verify:
        killed = verify.leader
        killed.kill()
        verify.wait_for_more(RECORDS_COMMITTED)
        killed.start()
        cluster.wait_until_in_sync(topic)
        paused = verify.leader
        paused.pause()
        verify.wait_for_more(RECORDS_COMMITTED)
        paused.resume()
        result = verify.stop()
    assert result["clean"]
    assert anomalies_in(result) == {}
    assert result["records_acknowledged"] == result["records_sent"] > 3 * RECORDS_COMMITTED
    assert 0.5 < result["longest_silence_seconds"] < 15
    assert result["client_errors"]
    assert not cluster.partitions(topic)


def test_a_disk_loses_the_end_of_a_log(cluster, topic):
    """If the only replica loses the second half of its acknowledged records, the exit status is 1."""
    with VerifyCommand(cluster, topic, "--replication-factor", "1") as verify:
        broker = verify.leader
        broker.kill()
        (path,) = (broker.log_directories[0] / f"{topic}-0").glob("*.log")
        os.truncate(path, path.stat().st_size // 2)
        broker.start()
        cluster.wait_until_in_sync(topic)
        verify.wait_for_more(RECORDS_COMMITTED)
        result = verify.stop(status=1)
    assert not result["clean"]
    assert result["settled"]
    assert result["producer_restarts"] == 1
    assert anomalies_in(result).keys() & {"lost write", "inconsistent acknowledgement", "inconsistent offsets"}


@pytest.mark.soak
@pytest.mark.parametrize("acks", ["all", "1"])
def test_repeated_kills_of_all_brokers(cluster, topic, acks):
    """While brokers are killed, ``acks=all`` loses no record; with ``acks=1``, readers still agree with each other."""
    rng = random.Random(acks)
    with VerifyCommand(cluster, topic, "--acks", acks, "--producers", "3") as verify:
        for _ in range(10):
            broker = cluster.brokers[rng.choice(list(cluster.brokers))]
            rng.choice([broker.kill, broker.stop])()
            verify.wait_for_more(RECORDS_COMMITTED)
            broker.start()
            cluster.wait_until_in_sync(topic)
        result = verify.stop()
    assert result["clean"]
    assert acks == "1" or anomalies_in(result) == {}


@pytest.mark.soak
def test_brokers_are_disconnected(tmp_path, topic):
    """Five times, the leader is disconnected from ZooKeeper, and possibly from the other brokers too."""
    rng = random.Random(1)
    with (
        RealZooKeeper(tmp_path / "zookeeper") as zookeeper,
        ProxyLinks(zookeeper.connect_string) as links,
        ProcessCluster(tmp_path, links.places, links=links) as cluster,
        VerifyCommand(cluster, topic) as verify,
    ):
        for _ in range(5):
            leader = verify.leader.broker_id
            others = [each for each in cluster.brokers if each != leader]
            far = rng.choice([[COORDINATOR], [COORDINATOR, *others]])
            cut(links, [leader], far)
            verify.wait_for_more(RECORDS_COMMITTED, 60)
            links.heal()
            cluster.wait_until_in_sync(topic)
        result = verify.stop()
    assert result["clean"]
    assert anomalies_in(result) == {}
