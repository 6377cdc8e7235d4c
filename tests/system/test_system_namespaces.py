"""Hosts that the kernel disconnects from each other: packets are lost silently."""

import pytest
from steady_load import SOME, load

from tests.support.links import COORDINATOR, cut
from tests.support.namespaces import NamespaceLinks, are_permitted
from tests.support.process_cluster import ProcessCluster
from tests.support.real_zookeeper import RealZooKeeper, ServerPlace

pytestmark = pytest.mark.needs_program("ip")


@pytest.fixture(scope="module")
def links():
    """Three brokers and a coordinator, each in its own namespace."""
    if not are_permitted():
        pytest.skip("network namespaces are not permitted here")
    with NamespaceLinks(3) as links:
        yield links


@pytest.fixture(scope="module")
def shared_cluster(links, tmp_path_factory):
    """Brokers and ZooKeeper in the namespaces."""
    directory = tmp_path_factory.mktemp("namespaces")
    place = ServerPlace(links.host(COORDINATOR), links.command_prefix(COORDINATOR))
    with (
        RealZooKeeper(directory / "zookeeper", places=[place]) as zookeeper,
        ProcessCluster(directory, links.places(zookeeper.connect_string), links=links) as cluster,
    ):
        yield cluster


@pytest.fixture
def cluster(shared_cluster, links):
    """The shared cluster, with all links up again after the last test."""
    yield shared_cluster
    links.heal()


def other_brokers(cluster, broker_id):
    return cluster.brokers.keys() - {broker_id}


def test_a_leader_is_disconnected_from_all_except_clients(cluster, links, topic):
    """The leader stops acknowledging; another leads after the session expires; the old one becomes a follower."""
    with load(cluster, topic) as producer:
        leader = cluster.leader(topic)
        cut(links, {leader}, {COORDINATOR, *other_brokers(cluster, leader)})
        cluster.wait_until_out_of_sync(topic, leader)
        producer.wait_for_more(SOME)
        links.heal()
        cluster.wait_until_in_sync(topic)


@pytest.mark.soak
@pytest.mark.parametrize("role", ["leader", "controller"])
@pytest.mark.parametrize("outward", [True, False])
def test_one_direction_is_lost(cluster, links, topic, role, outward):
    """When a broker's links work in one direction only, others take over, and no record is lost."""
    with load(cluster, topic) as producer:
        broker_id = cluster.leader(topic) if role == "leader" else cluster.controller()
        others = {COORDINATOR, *other_brokers(cluster, broker_id)}
        links.cut_one_way(*(({broker_id}, others) if outward else (others, {broker_id})))
        cluster.wait_until_out_of_sync(topic, broker_id)
        producer.wait_for_more(SOME)
        links.heal()
        cluster.wait_until_in_sync(topic)


@pytest.mark.soak
def test_a_controller_without_zookeeper(cluster, links, topic):
    """Another broker becomes controller, and brokers reject commands from the old controller."""
    with load(cluster, topic) as producer:
        old = cluster.controller()
        cut(links, {old}, {COORDINATOR})
        cluster.wait_until_out_of_sync(topic, old)
        producer.wait_for_more(SOME)
        links.heal()
        cluster.wait_until_in_sync(topic)
