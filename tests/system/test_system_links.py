"""Brokers that hang, and links between them that are cut or slow, under load."""

import pytest
from steady_load import SOME, load

from tests.support.links import COORDINATOR, cut
from tests.support.process_cluster import ProcessCluster, wait_until
from tests.support.proxy import ProxyLinks

FAR_S = 0.1


@pytest.fixture(scope="module")
def links(zookeeper):
    """Three brokers that reach each other and ZooKeeper through proxies."""
    with ProxyLinks(f"{zookeeper.connect_string}/linked", 3) as links:
        yield links


@pytest.fixture(scope="module")
def shared_cluster(links, tmp_path_factory):
    """Three brokers on these links."""
    with ProcessCluster(tmp_path_factory.mktemp("linked"), links.places, links=links) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster, links):
    """The shared cluster, with all links up again after the last test."""
    yield shared_cluster
    links.heal()
    for broker in shared_cluster.brokers.values():
        if broker.paused:
            broker.resume()


def other_brokers(cluster, broker_id):
    return cluster.brokers.keys() - {broker_id}


def wait_for_new_leader(cluster, topic, old):
    """Wait until another broker leads, in the metadata of the other brokers."""
    broker_id = min(other_brokers(cluster, old))

    def has_new_leader():
        view = cluster.partitions(topic, broker_id).get(0)
        return view is not None and view.leader not in (old, -1)

    wait_until(has_new_leader, f"another leader than broker {old}")


def in_sync(cluster, topic, broker_id):
    """Return the in-sync replicas of every partition in a broker's metadata."""
    return set.intersection(*(set(view.in_sync) for view in cluster.partitions(topic, broker_id).values()))


def test_a_leader_hangs(cluster, topic):
    """A leader that is paused for longer than its session timeout acknowledges no record that is lost later."""
    with load(cluster, topic) as producer:
        leader = cluster.leader(topic)
        cluster.brokers[leader].pause()
        wait_for_new_leader(cluster, topic, leader)
        producer.wait_for_more(SOME)
        cluster.brokers[leader].resume()
        cluster.wait_until_in_sync(topic)


def test_a_controller_hangs(cluster, topic):
    """A controller that resumes after its session expired finds another controller, and writes nothing itself."""
    with load(cluster, topic) as producer:
        controller = cluster.controller()
        cluster.brokers[controller].pause()
        wait_for_new_controller(cluster, controller)
        producer.wait_for_more(SOME)
        cluster.brokers[controller].resume()
        cluster.wait_until_in_sync(topic)


def wait_for_new_controller(cluster, old):
    broker_id = min(other_brokers(cluster, old))
    wait_until(lambda: cluster.metadata(broker_id)["controller_id"] not in (old, -1), f"another controller than {old}")


def test_a_disconnected_follower(cluster, links, topic):
    """A follower that is disconnected from its leaders leaves the ISR after the lag limit, and rejoins later."""
    with load(cluster, topic) as producer:
        follower = 1 + cluster.controller() % 3
        others = other_brokers(cluster, follower)
        cut(links, {follower}, others)
        wait_until(
            lambda: all(
                follower not in view.in_sync or view.leader == follower
                for view in cluster.partitions(topic, min(others)).values()
            ),
            f"broker {follower} to be out of sync",
        )
        links.heal()
        cluster.wait_until_in_sync(topic)
        producer.wait_for_more(SOME)


def test_a_leader_with_slow_links_dies(cluster, links, topic):
    """With slow links to followers, records are acknowledged late, so that none is lost when the leader dies."""
    with load(cluster, topic) as producer:
        links.slow(cluster.brokers, cluster.brokers, FAR_S)
        producer.wait_for_more(SOME)
        leader = cluster.leader(topic)
        cluster.brokers[leader].kill()
        cluster.wait_until_out_of_sync(topic, leader)
        links.heal()
        producer.wait_for_more(SOME)
        cluster.brokers[leader].start()


def test_a_leader_without_zookeeper(cluster, links, topic):
    """A leader that only clients can reach stops acknowledging before another one leads."""
    with load(cluster, topic) as producer:
        leader = cluster.leader(topic)
        cut(links, {leader}, {COORDINATOR})
        wait_for_new_leader(cluster, topic, leader)
        producer.wait_for_more(SOME)
        links.heal()
        cluster.wait_until_in_sync(topic)


@pytest.mark.soak
@pytest.mark.parametrize("outward", [True, False])
def test_a_leader_with_one_way_links(cluster, links, topic, outward):
    """When a leader's links to brokers and ZooKeeper are cut in one direction, another leads, and no record is lost."""
    with load(cluster, topic) as producer:
        leader = cluster.leader(topic)
        others = {*other_brokers(cluster, leader), COORDINATOR}
        links.cut_one_way(*(({leader}, others) if outward else (others, {leader})))
        wait_for_new_leader(cluster, topic, leader)
        producer.wait_for_more(SOME)
        links.heal()
        cluster.wait_until_in_sync(topic)


@pytest.mark.soak
def test_slow_links(cluster, links, topic):
    """With delays of 150 ms between brokers and 50 ms to ZooKeeper, all replicas stay in sync; no record is lost."""
    with load(cluster, topic) as producer:
        links.slow(cluster.brokers, cluster.brokers, 0.15)
        links.slow(cluster.brokers, {COORDINATOR}, 0.05)
        producer.wait_for_more(5 * SOME)
        assert in_sync(cluster, topic, 1) == set(cluster.brokers)
        links.heal()
