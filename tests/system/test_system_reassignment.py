"""Replicas move while brokers restart and clients write: 20 partitions on 4 brokers, at least 3 in sync."""

import pytest
from steady_load import SOME, load

from kreplica.errors import ErrorCode
from kreplica.wire import messages
from tests.support.process_cluster import ProcessCluster, direct_places, wait_until

BROKERS = 4
PARTITIONS = 20
REASSIGNMENT_S_MAX = 40


@pytest.fixture(scope="module")
def shared_cluster(zookeeper, tmp_path_factory):
    """Four brokers."""
    places = direct_places(f"{zookeeper.connect_string}/four", BROKERS)
    with ProcessCluster(tmp_path_factory.mktemp("four"), places) as cluster:
        yield cluster


def rotated_replicas(replicas):
    """Return a different assignment: broker n becomes n + 1, in reverse order."""
    return [replica % BROKERS + 1 for replica in reversed(replicas)]


def reassign(cluster, topic, targets):
    """Request new replicas; the target None cancels a reassignment.

    :return: the error of each partition.
    """
    rows = [{"partition_index": partition, "replicas": replicas} for partition, replicas in targets.items()]
    body = {"timeout_ms": 20_000, "topics": [{"name": topic, "partitions": rows}]}
    answer = cluster.request(messages.ALTER_PARTITION_REASSIGNMENTS, body, of=cluster.controller())
    assert answer["error_code"] == 0, answer
    return {row["partition_index"]: ErrorCode.of(row["error_code"]) for row in answer["responses"][0]["partitions"]}


def reassignments_in_progress(cluster):
    """Return the reassignments in progress: partition -> row of the response."""
    body = {"timeout_ms": 20_000, "topics": None}
    answer = cluster.request(messages.LIST_PARTITION_REASSIGNMENTS, body, of=cluster.controller())
    assert answer["error_code"] == 0, answer
    return {row["partition_index"]: row for topic in answer["topics"] for row in topic["partitions"]}


def wait_until_moved(cluster, topic, targets):
    """Wait until every broker reports the wanted replicas, and no reassignment is in progress."""

    def replicas_by_partition(broker):
        return {p: list(view.replicas) for p, view in cluster.partitions(topic, broker.broker_id).items()}

    wait_until(
        lambda: (
            not reassignments_in_progress(cluster)
            and all(replicas_by_partition(broker) == targets for broker in cluster.answering)
        ),
        f"the replicas to be {targets}",
        REASSIGNMENT_S_MAX,
        lambda: [reassignments_in_progress(cluster), *map(replicas_by_partition, cluster.answering)],
    )


def brokers_with_files(cluster, topic, partition):
    """Return the brokers that have files of a partition."""
    return {
        broker.broker_id
        for broker in cluster.brokers.values()
        if any((root / f"{topic}-{partition}").is_dir() for root in broker.log_directories)
    }


def bounce(cluster, broker, clean):
    if clean:
        broker.stop()
    else:
        broker.kill()
    broker.start()


@pytest.mark.parametrize("bounces", [2, pytest.param(10, marks=pytest.mark.soak)])
def test_reassignment_while_brokers_bounce(cluster, topic, bounces):
    """Every partition gets the requested replicas, the old files are deleted, and nothing is lost."""
    with load(cluster, topic, partitions=PARTITIONS, min_in_sync=3) as producer:
        targets = {p: rotated_replicas(view.replicas) for p, view in cluster.partitions(topic).items()}
        assert set(reassign(cluster, topic, targets).values()) == {ErrorCode.NONE}
        for count in range(bounces):
            bounce(cluster, cluster.brokers[count % BROKERS + 1], clean=count % 2 == 0)
        wait_until_moved(cluster, topic, targets)
        cluster.wait_until_in_sync(topic)
        producer.wait_for_more(SOME)
    for partition, replicas in targets.items():
        wait_until(
            lambda partition=partition, replicas=replicas: (
                brokers_with_files(cluster, topic, partition) == set(replicas)
            ),
            f"only {replicas} to have {topic}-{partition}",
        )


def test_a_reassignment_that_cannot_finish_is_cancelled(cluster, topic):
    """A reassignment to a broker that is down cannot finish; a cancellation deletes the new replica's files."""
    with load(cluster, topic, partitions=BROKERS) as producer:
        before = {p: list(view.replicas) for p, view in cluster.partitions(topic).items()}
        # A target that the controller knows to be down would be rejected.
        absent = next(broker_id for broker_id in cluster.brokers if broker_id != cluster.controller())
        partition = next(p for p, replicas in before.items() if absent not in replicas)
        cluster.brokers[absent].pause()
        assert reassign(cluster, topic, {partition: [absent, *before[partition][1:]]}) == {partition: ErrorCode.NONE}
        producer.wait_for_more(SOME)
        assert reassignments_in_progress(cluster)[partition]["adding_replicas"] == [absent]
        assert reassign(cluster, topic, {partition: None}) == {partition: ErrorCode.NONE}
        assert reassign(cluster, topic, {partition: None}) == {partition: ErrorCode.NO_REASSIGNMENT_IN_PROGRESS}
        cluster.brokers[absent].resume()
        # As in Kafka, the replica to remove is then the last one.
        wait_until_moved(cluster, topic, {**before, partition: before[partition][1:] + before[partition][:1]})
        wait_until(
            lambda: brokers_with_files(cluster, topic, partition) == set(before[partition]),
            "the new replica's files to be deleted",
        )
