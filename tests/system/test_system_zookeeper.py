"""The coordinator dies and restarts under load: a real ZooKeeper, an ensemble, the embedded coordinator."""

import time

import pytest
from steady_load import SOME, load

from tests.support.coordinator import CoordinatorProcess
from tests.support.process_cluster import QUICK, ProcessCluster, direct_places, wait_until
from tests.support.real_zookeeper import LOOPBACK, RealZooKeeper

SESSION_S = QUICK["zookeeper.session.timeout.ms"] / 1000


def restart(coordinator, after_s):
    time.sleep(after_s)
    coordinator.start()


@pytest.mark.parametrize(
    "absence_s",
    [0.0, pytest.param(3 * SESSION_S, marks=pytest.mark.soak)],
    ids=["at once", "later than any session"],
)
def test_zookeeper_is_killed(tmp_path, topic, absence_s):
    """If ZooKeeper restarts, before or after the sessions expire, all replicas get in sync, and no record is lost."""
    with (
        RealZooKeeper(tmp_path / "zookeeper") as zookeeper,
        ProcessCluster(tmp_path, direct_places(zookeeper.connect_string)) as cluster,
        load(cluster, topic),
    ):
        (server,) = zookeeper.servers
        server.kill()
        restart(server, absence_s)
        zookeeper.wait_until_serving()
        cluster.wait_until_in_sync(topic)


@pytest.mark.soak
def test_an_ensemble_loses_its_leader(tmp_path, topic):
    """With two of three servers left, the load is interrupted at most briefly, and no session expires."""
    with (
        RealZooKeeper(tmp_path / "zookeeper", places=[LOOPBACK] * 3) as zookeeper,
        ProcessCluster(tmp_path, direct_places(zookeeper.connect_string)) as cluster,
        load(cluster, topic) as producer,
    ):
        old = zookeeper.leader
        old.kill()
        producer.wait_for_more(SOME)
        old.start()
        zookeeper.wait_until_serving()
        wait_until(lambda: cluster.controller(), "a controller")


def test_the_embedded_coordinator(tmp_path, topic):
    """With the embedded coordinator, a leader and then the coordinator are killed and restarted: no record is lost."""
    with (
        CoordinatorProcess(tmp_path / "coordinator", tick_time_ms=200) as coordinator,
        ProcessCluster(tmp_path, direct_places(coordinator.address)) as cluster,
        load(cluster, topic) as producer,
    ):
        leader = cluster.brokers[cluster.leader(topic)]
        leader.kill()
        producer.wait_for_more(SOME)
        leader.start()
        cluster.wait_until_in_sync(topic)
        coordinator.kill()
        coordinator.start()
        cluster.wait_until_in_sync(topic)
        producer.wait_for_more(SOME)
