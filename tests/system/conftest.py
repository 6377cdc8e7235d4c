"""A real ZooKeeper, clusters of real brokers on it, and the brokers' output in the report of a failed test."""

import uuid

import pytest

from tests.support.process_cluster import ProcessCluster, direct_places
from tests.support.real_zookeeper import RealZooKeeper


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory):
    """A real ZooKeeper, shared by all tests that do not change its state."""
    with RealZooKeeper(tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


@pytest.fixture(scope="session")
def shared_cluster(zookeeper, tmp_path_factory):
    """Three brokers, shared by all tests that leave them able to run."""
    places = direct_places(f"{zookeeper.connect_string}/shared")
    with ProcessCluster(tmp_path_factory.mktemp("cluster"), places) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster):
    """The shared cluster, with all brokers running again after the last test."""
    shared_cluster.start()
    return shared_cluster


@pytest.fixture
def topic():
    """An unused topic name."""
    return f"t-{uuid.uuid4().hex[:8]}"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    """Add the brokers' output to the report of a failed test."""
    report = (yield).get_result()
    clusters = [value for value in item.funcargs.values() if isinstance(value, ProcessCluster)]
    if report.failed and clusters:
        report.sections.append(("brokers", clusters[0].output_ends()))
