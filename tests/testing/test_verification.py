"""The black-box check of simulated clusters: correct clusters pass despite faults, and faulty ones are detected."""

from __future__ import annotations

import json

import pytest
from twisted.internet.defer import Deferred, succeed

from kreplica.client import connection
from kreplica.errors import ErrorCode, KafkaError
from kreplica.storage.producers.producer_state import ProducerStates
from kreplica.testing.anomalies import Kind
from kreplica.testing.clients.leader_client import LeaderClient
from kreplica.testing.cluster.cluster import BROKER_PORT, SimulatedCluster
from kreplica.testing.verification import cluster_access
from kreplica.testing.verification.cluster_access import Cluster, CouldNotRun
from kreplica.testing.verification.observations import percentile
from kreplica.testing.verification.options import VerificationOptions
from kreplica.testing.verification.verification import Verification
from kreplica.wire import messages

SHORT_INTERVALS = ["zookeeper.session.timeout.ms=3000", "replica.lag.time.max.ms=2000"]
BROKERS = [(f"broker-{number}", BROKER_PORT) for number in (1, 2, 3)]


class Scene:
    """A cluster of three brokers, and a verification that runs against it."""

    def __init__(self, seed=1, overrides=(), **options):
        self.cluster = SimulatedCluster(seed, brokers=3, overrides=[*SHORT_INTERVALS, *overrides])
        self.cluster.start()
        self.network = self.cluster.simulation.network
        self.progress = []
        chosen = {"bootstrap": BROKERS, "partitions": 2, "records_per_s": 100, "seconds": 10.0, "settle_s": 20.0}
        self.options = VerificationOptions(**{**chosen, **options})
        runtime = self.cluster.simulation.host("verify").runtime
        self.verification = Verification(runtime, self.options, self.progress.append)
        self._running = None

    def begin(self):
        self._running = Deferred.fromCoroutine(self.verification.run())

    def write_for(self, seconds):
        """Run for this number of seconds after the first acknowledgement."""
        if self._running is None:
            self.begin()
        self.cluster.run_until(lambda: self.progress and self.progress[-1].acknowledged > 0)
        self.cluster.run(seconds)

    def verdict(self):
        if self._running is None:
            self.begin()
        return self.cluster.run_until(self._running, timeout_s=300.0)

    def leader(self, partition=0):
        (topic,) = self.topics()
        return self.cluster.leader_of(topic, partition)

    def topics(self):
        client = self.cluster.client(broker=2)
        answer = self.cluster.run_until(client.metadata())
        self.cluster.run_until(client.close())
        return [row["name"] for row in answer["topics"]]


# --- correct clusters -------------------------------------------------------------------------------------------------


def test_a_cluster_without_faults():
    """A cluster without faults has no anomalies, and the topic is deleted at the end."""
    scene = Scene()
    verdict = scene.verdict()
    assert verdict.clean
    assert verdict.report.counts == {}
    assert verdict.acknowledged == verdict.sent > 500
    assert verdict.read == 3 * verdict.acknowledged  # from the start, from half-way, and at the end
    assert 0 < verdict.latency_ms["p50"] <= verdict.latency_ms["p99"] <= verdict.latency_ms["max"] < 1000
    assert (verdict.setup.brokers, verdict.setup.replication_factor, verdict.setup.min_in_sync) == (3, 3, 2)
    assert scene.topics() == []


@pytest.mark.parametrize("acks", [-1, 1])
def test_the_leader_is_killed(acks):
    """When the leader is killed, nothing is lost, and the longest time without acknowledgements is reported."""
    scene = Scene(partitions=1, acks=acks, seed=2)
    scene.write_for(2.0)
    machine = scene.cluster.brokers[scene.leader()]
    machine.kill()
    scene.cluster.run(1.0)
    scene.cluster.run_until(machine.start())
    verdict = scene.verdict()
    assert verdict.clean
    assert verdict.acknowledged == verdict.sent
    assert verdict.longest_silence_s > 0.5  # of the second producer, from its first record
    assert verdict.errors["ConnectionLost"] > 0


def test_a_leader_hangs():
    """Clients switch to the next leader when a leader accepts connections but does not respond."""
    scene = Scene(partitions=1, seconds=30.0)
    scene.write_for(2.0)
    host = scene.cluster.brokers[scene.leader()].host
    host.pause()
    scene.cluster.run(15.0)
    host.resume()
    verdict = scene.verdict()
    assert verdict.clean
    assert verdict.errors["RequestTimedOut"] > 0
    assert 3 < verdict.longest_silence_s < 15


def test_brokers_cannot_reach_each_other():
    """Nothing is lost while clients can reach a leader but other brokers cannot."""
    scene = Scene(partitions=1, seconds=20.0)
    scene.write_for(2.0)
    leader = scene.leader()
    for other in {1, 2, 3} - {leader}:
        scene.network.cut(f"broker-{leader}", f"broker-{other}")
    scene.network.cut(f"broker-{leader}", "coordinator")
    scene.cluster.run(10.0)
    scene.network.heal()
    assert scene.verdict().clean


def test_all_brokers_are_down_at_the_end():
    """Unacknowledged records at the end of the run fail it, but they are not an anomaly."""
    scene = Scene(partitions=1)
    scene.write_for(5.0)
    for machine in scene.cluster.brokers.values():
        machine.kill()
    verdict = scene.verdict()
    assert not verdict.clean
    assert not verdict.settled
    assert verdict.report.errors == {}
    assert verdict.deletion_error.startswith(f"cannot delete the topic {verdict.setup.topic}: ConnectionFailed")


def test_stopped_early():
    """An early stop ends the writing, and the records written so far are checked."""
    scene = Scene(seconds=1000.0)
    scene.write_for(3.0)
    scene.verification.stop_early()
    verdict = scene.verdict()
    assert verdict.clean
    assert 3 < verdict.load_s < 10


def test_several_producers_and_a_name():
    """Several producers may share partitions, and the topic may be named and kept."""
    scene = Scene(topic="mine", keep=True, producers=3, seconds=4.0, configs={"segment.bytes": "5000"})
    verdict = scene.verdict()
    assert verdict.clean
    assert {send.producer for send in scene.verification.history.sends} == {
        f"producer-{partition}.{number}" for partition in (0, 1) for number in (0, 1, 2)
    }
    assert scene.topics() == ["mine"]


def test_json():
    """The JSON output has all figures and all kinds of anomaly."""
    result = json.loads(json.dumps(Scene(seconds=1.0).verdict().as_json()))
    assert result["clean"]
    assert result["acks"] == "all"
    assert {row["kind"]: row["count"] for row in result["anomalies"]} == {kind.value: 0 for kind in Kind}


# --- faulty clusters --------------------------------------------------------------------------------------------------


def test_all_machines_lose_power():
    """If all machines lose power at once, unsynced acknowledged records are lost, and the check reports this."""
    scene = Scene(partitions=1, seconds=30.0)
    for _ in range(3):
        scene.write_for(3.0)
        for machine in scene.cluster.brokers.values():
            machine.power_loss()
        for machine in scene.cluster.brokers.values():
            machine.start()
        scene.cluster.run(5.0)
    verdict = scene.verdict()
    assert not verdict.clean
    assert {Kind.LOST_WRITE, Kind.UNSEEN, Kind.INCONSISTENT_OFFSETS} & verdict.report.errors.keys()


def test_retries_are_written_twice(monkeypatch):
    """Duplicates are reported if a broker ignores sequence numbers and appends retries again."""
    monkeypatch.setattr(ProducerStates, "check", lambda self, header, marker, origin: None)
    scene = Scene(partitions=1, records_per_s=500)
    scene.write_for(1.0)
    for _ in range(5):
        leader = f"broker-{scene.leader()}"
        scene.network.cut(leader, "verify", one_way=True)
        scene.cluster.run(0.2)
        scene.network.drop_connections(leader, "verify")
        scene.network.heal()
        scene.cluster.run(0.5)
    verdict = scene.verdict()
    assert not verdict.clean
    assert verdict.report.errors.keys() == {Kind.DUPLICATE}


class SwallowingConnection(connection.Connection):
    """Acknowledges one batch without forwarding it."""

    produced = 0

    def request(self, api, version, body, **how):
        if api is messages.PRODUCE:
            SwallowingConnection.produced += 1
            if SwallowingConnection.produced == 30:
                row = {"error_code": 0, "base_offset": 40}
                return succeed({"responses": [{"partition_responses": [row]}]})
        return super().request(api, version, body, **how)


def test_an_acknowledged_batch_is_swallowed(monkeypatch):
    """A batch that is acknowledged but discarded is reported as lost."""
    monkeypatch.setattr(connection, "Connection", SwallowingConnection)
    monkeypatch.setattr(SwallowingConnection, "produced", 0)
    verdict = Scene(partitions=1).verdict()
    assert verdict.report.errors[Kind.LOST_WRITE] >= 1
    assert verdict.report.errors.keys() <= {
        Kind.LOST_WRITE,
        Kind.INCONSISTENT_ACKNOWLEDGEMENT,
        Kind.NON_MONOTONIC_SEND,
    }
    assert verdict.producer_restarts == 1


def test_a_reader_misses_a_record(monkeypatch):
    """A record that only one reader did not receive is reported as skipped."""
    fetch = LeaderClient.fetch

    async def without_the_first(self, topic, partition, offset, **how):
        records = await fetch(self, topic, partition, offset, **how)
        return records[1:] if self.client_id == "late-reader-0" and len(records) > 1 else records

    monkeypatch.setattr(LeaderClient, "fetch", without_the_first)
    verdict = Scene(partitions=1).verdict()
    assert verdict.report.errors.keys() == {Kind.POLL_SKIP_BETWEEN}
    first = verdict.report.examples[Kind.POLL_SKIP_BETWEEN][0]
    assert first.offsets == (0,)
    assert first.clients[0] == "late-reader-0"


# --- failed starts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"bootstrap": [("nowhere", 9092)]}, "no connection to nowhere:9092"),
        (
            {"bootstrap": [("broker-1", 1), ("broker-2", 2)]},
            "no connection to broker-1:1: .*; no connection to broker-2:2",
        ),
        ({"replication_factor": 4}, "cannot create the topic .*: INVALID_REPLICATION_FACTOR: .* live brokers .3"),
        ({"topic": "no good"}, "cannot create the topic no good: INVALID_TOPIC_EXCEPTION"),
    ],
)
def test_verification_cannot_start(options, text):
    """If the verification cannot start, the reason is reported in one line."""
    with pytest.raises(CouldNotRun, match=text):
        Scene(**options).verdict()


def test_the_topic_exists_already():
    """An existing topic is neither written to nor deleted."""
    scene = Scene(topic="theirs")
    client = scene.cluster.client()
    scene.cluster.run_until(client.create_topic("theirs"))
    with pytest.raises(CouldNotRun, match="cannot create the topic theirs: TOPIC_ALREADY_EXISTS"):
        scene.verdict()
    assert scene.topics() == ["theirs"]


def test_one_of_the_bootstrap_brokers_is_down():
    """One reachable broker is enough."""
    assert Scene(bootstrap=[("broker-1", 1), *BROKERS], seconds=1.0).verdict().clean


def test_unreachable_advertised_listeners(monkeypatch):
    """The error distinguishes a cluster with unreachable advertised listeners from one that does not respond."""
    monkeypatch.setattr(cluster_access, "_metadata", lambda client: succeed(Cluster({7: ("elsewhere", 9092)}, 7)))
    with pytest.raises(CouldNotRun, match=r"broker-1:9092 responds, but no broker .*: broker 7 at elsewhere:9092: "):
        Scene().verdict()


def test_a_broker_that_does_not_know_the_controller_yet(monkeypatch):
    """The request is retried while a broker that has just started does not know the controller."""
    read_metadata, create_topic = cluster_access._metadata, cluster_access.WireClient.create_topic
    answers, refusals = [], []

    async def empty_after_first(client):
        answers.append(await read_metadata(client))
        return answers[0] if len(answers) == 1 else Cluster({}, -1)

    async def refuse_once(client, *args, **kwargs):
        if not refusals:
            refusals.append(client)
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        await create_topic(client, *args, **kwargs)

    monkeypatch.setattr(cluster_access, "_metadata", empty_after_first)
    monkeypatch.setattr(cluster_access.WireClient, "create_topic", refuse_once)
    assert Scene(seconds=2.0).verdict().clean
    assert refusals
    assert len(answers) > 1


def test_nothing_is_acknowledged():
    """Without acknowledged records there is nothing to check."""
    scene = Scene(seconds=2.0)
    scene.begin()
    scene.cluster.run_until(lambda: bool(scene.progress))
    for name, _ in BROKERS:
        scene.network.cut(name, "verify")
    with pytest.raises(CouldNotRun, match=r"no record was acknowledged in \d+ s; errors: ConnectionFailed \d+ times"):
        scene.verdict()


# --- figures ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [([], 50, 0.0), ([7.0], 99, 7.0), ([4.0, 1.0, 3.0, 2.0], 50, 2.0), ([4.0, 1.0, 3.0, 2.0], 99, 4.0)],
)
def test_percentile(values, percent, expected):
    """A percentile is the smallest value that is not exceeded by the given percentage of values."""
    assert percentile(values, percent) == expected
