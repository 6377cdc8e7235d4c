"""Brokers that stand still, and ways between them that are cut or slow, in mid-load."""

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
    """Three brokers on those links."""
    with ProcessCluster(tmp_path_factory.mktemp("linked"), links.places, links=links) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster, links):
    """The same, with all ways whole again whatever the last test did to them."""
    yield shared_cluster
    links.heal()
    for broker in shared_cluster.brokers.values():
        if broker.paused:
            broker.resume()


def others_than(cluster, broker_id):
    return cluster.brokers.keys() - {broker_id}


def new_leader(cluster, topic, old):
    """Wait until another than the old leader leads, as the others tell it."""
    teller = min(others_than(cluster, old))

    def found():
        view = cluster.partitions(topic, teller).get(0)
        return view is not None and view.leader not in (old, -1)

    wait_until(found, f"another leader than broker {old}")


def in_sync(cluster, topic, teller):
    """Who is in sync in every partition, as a broker tells it."""
    return set.intersection(*(set(view.in_sync) for view in cluster.partitions(topic, teller).values()))


def test_a_leader_stands_still(cluster, topic):
    """A leader that is stopped for longer than its session and goes on acknowledges nothing that is lost later."""
    with load(cluster, topic) as producer:
        leader = cluster.leader(topic)
        cluster.brokers[leader].pause()
        new_leader(cluster, topic, leader)
        producer.wait_for_more(SOME)
        cluster.brokers[leader].resume()
        cluster.wait_until_in_sync(topic)


def test_a_controller_stands_still(cluster, topic):
    """A controller that wakes up after its session finds another in office, and writes nothing as one."""
    with load(cluster, topic) as producer:
        controller = cluster.controller()
        cluster.brokers[controller].pause()
        new_controller(cluster, controller)
        producer.wait_for_more(SOME)
        cluster.brokers[controller].resume()
        cluster.wait_until_in_sync(topic)


def new_controller(cluster, old):
    teller = min(others_than(cluster, old))
    wait_until(lambda: cluster.metadata(teller)["controller_id"] not in (old, -1), f"another controller than {old}")


def test_a_follower_that_is_cut_off(cluster, links, topic):
    """A follower without its leaders leaves the in-sync replicas after the lag limit, and joins again later."""
    with load(cluster, topic) as producer:
        follower = 1 + cluster.controller() % 3
        others = others_than(cluster, follower)
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


def test_a_leader_dies_far_from_its_followers(cluster, links, topic):
    """What reaches the followers a moment later is acknowledged a moment later: a leader's death loses none of it."""
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
    """A leader that clients reach but ZooKeeper does not: it stops acknowledging before another leads."""
    with load(cluster, topic) as producer:
        leader = cluster.leader(topic)
        cut(links, {leader}, {COORDINATOR})
        new_leader(cluster, topic, leader)
        producer.wait_for_more(SOME)
        links.heal()
        cluster.wait_until_in_sync(topic)


@pytest.mark.soak
@pytest.mark.parametrize("outward", [True, False])
def test_a_leader_that_is_heard_but_hears_nothing(cluster, links, topic, outward):
    """One direction of all ways of a leader is lost, to brokers and ZooKeeper: another leads, nothing is lost."""
    with load(cluster, topic) as producer:
        leader = cluster.leader(topic)
        others = {*others_than(cluster, leader), COORDINATOR}
        links.cut_one_way(*(({leader}, others) if outward else (others, {leader})))
        new_leader(cluster, topic, leader)
        producer.wait_for_more(SOME)
        links.heal()
        cluster.wait_until_in_sync(topic)


@pytest.mark.soak
def test_slow_ways(cluster, links, topic):
    """Everything between brokers takes 150 ms longer, ZooKeeper 50 ms: all stay in sync, and nothing is lost."""
    with load(cluster, topic) as producer:
        links.slow(cluster.brokers, cluster.brokers, 0.15)
        links.slow(cluster.brokers, {COORDINATOR}, 0.05)
        producer.wait_for_more(5 * SOME)
        assert in_sync(cluster, topic, 1) == set(cluster.brokers)
        links.heal()
