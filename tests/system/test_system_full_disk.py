"""A broker whose disk is full under load."""

import subprocess

import pytest
from steady_load import SOME, load

from tests.support.process_cluster import ProcessCluster, direct_places, wait_until

DISK_SIZE = 24 << 20


@pytest.fixture
def small_disk(tmp_path):
    """Mount a separate file system in memory; the test is skipped if that is not permitted."""
    path = tmp_path / "disk"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_SIZE}", "tmpfs", str(path)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True)


@pytest.fixture
def cluster(zookeeper, tmp_path, small_disk):
    """Three brokers, the first one on the small disk."""
    with ProcessCluster(tmp_path, direct_places(f"{zookeeper.connect_string}/{tmp_path.name}")) as cluster:
        broker = cluster.brokers[1]
        broker.stop()
        broker.settings["log.dirs"] = small_disk / "logs"
        broker.start()
        yield cluster


def fill(disk):
    """Fill the disk.

    :return: the file that fills it.
    """
    path = disk / "filling"
    with open(path, "wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            pass
    return path


def test_a_full_disk(cluster, topic, small_disk):
    """A broker with a full disk leaves the ISRs of other leaders, and rejoins them when space is free."""
    with load(cluster, topic) as producer:
        filler = fill(small_disk)
        wait_until(lambda: is_in_no_other_isr(cluster, topic, 1), "broker 1 to follow nothing")
        producer.wait_for_more(SOME)
        filler.unlink()
        cluster.wait_until_in_sync(topic)


def is_in_no_other_isr(cluster, topic, broker_id):
    """Return True if a broker is in sync only in partitions that it leads."""
    views = cluster.partitions(topic, broker_id % 3 + 1).values()
    return all(view.leader == broker_id or broker_id not in view.in_sync for view in views)
