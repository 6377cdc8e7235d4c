"""A real ZooKeeper, clusters of real brokers on it, and what they wrote where a test fails."""

import uuid

import pytest

from tests.support.process_cluster import ProcessCluster, direct_places
from tests.support.real_zookeeper import RealZooKeeper


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory):
    """A real ZooKeeper for all tests that leave it as it is."""
    with RealZooKeeper(tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


@pytest.fixture(scope="session")
def shared_cluster(zookeeper, tmp_path_factory):
    """Three brokers for all tests that leave them running, or able to."""
    places = direct_places(f"{zookeeper.connect_string}/shared")
    with ProcessCluster(tmp_path_factory.mktemp("cluster"), places) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster):
    """The same, with every broker running again whatever the last test did to it."""
    shared_cluster.start()
    return shared_cluster


@pytest.fixture
def topic():
    """A name that nobody has used."""
    return f"t-{uuid.uuid4().hex[:8]}"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    """Show what the brokers wrote with the failure of a test that had a cluster."""
    report = (yield).get_result()
    clusters = [value for value in item.funcargs.values() if isinstance(value, ProcessCluster)]
    if report.failed and clusters:
        report.sections.append(("brokers", clusters[0].told()))
