"""Real brokers that are killed and stopped under load: replays of their controllers' journals match the recordings."""

from steady_load import SOME, load

from kreplica.runtime.os_disk import OsDisk
from kreplica.testing.replay.reading import read_journals
from kreplica.testing.replay.replay import replay_all
from tests.support.process_cluster import ProcessCluster, direct_places


def test_journals_of_killed_brokers(zookeeper, tmp_path, topic):
    """After ``kill -9`` of a leader, the controller and all brokers, replays of all journals match the recordings."""
    places = direct_places(f"{zookeeper.connect_string}/journal")
    with ProcessCluster(tmp_path, places) as cluster:
        with load(cluster, topic) as producer:
            for find in (lambda: cluster.leader(topic), cluster.controller):
                broker = cluster.brokers[find()]
                broker.kill()
                producer.wait_for_more(SOME)
                broker.start()
                cluster.wait_until_in_sync(topic)
        cluster.kill()
    directories = sorted({path.parent for path in tmp_path.rglob("controller-journal-*.jsonl")})
    assert len(directories) == len(places)
    outcomes = [each for directory in directories for each in replay_all(read_journals(OsDisk(), str(directory)))]
    assert [outcome.difference for outcome in outcomes] == [None] * len(outcomes)
    assert [outcome.entries for outcome in outcomes] == [len(outcome.file.lines) for outcome in outcomes]
    assert len(outcomes) == len(places) + 2
    assert sum(outcome.decisions for outcome in outcomes) > 30
    lines = [line for outcome in outcomes for line in outcome.file.lines]
    assert sum(line.get("out") == "took_office" for line in lines) >= 2
