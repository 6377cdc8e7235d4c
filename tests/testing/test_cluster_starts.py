"""Brokers that start while ZooKeeper is slow or loses connections or sessions do not give up."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from twisted.internet.defer import Deferred
from twisted.logger import globalLogPublisher

from kreplica.cluster import documents, znodes
from kreplica.testing.cluster.cluster import SimulatedCluster
from kreplica.zookeeper import OperationTimeout, ZooKeeperClient

pytestmark = pytest.mark.usefixtures("logged_errors")

COORDINATOR, BROKER = "coordinator", "broker-1"
INSTANTS = 24
"""Number of evenly spaced instants during a start at which a fault is injected."""

Fault = Callable[[SimulatedCluster], None]


def lose_connection(cluster: SimulatedCluster) -> None:
    """Break the connection; requests in flight may have taken effect."""
    cluster.simulation.network.drop_connections(BROKER, COORDINATOR)


def lose_responses(cluster: SimulatedCluster) -> None:
    """Drop all responses, but not requests, for longer than the broker's request timeout."""
    network = cluster.simulation.network
    network.cut(COORDINATOR, BROKER, one_way=True)
    cluster.run(5.0)
    network.heal()


def lose_session(cluster: SimulatedCluster) -> None:
    """Expire the session, and delete its ephemeral znodes."""
    session_id = cluster.brokers[1].program.client.session_id
    if session_id:
        serving = cluster.zookeeper.program.serving
        assert serving is not None
        serving.expire(session_id)


def begin_start(fresh: bool) -> tuple[SimulatedCluster, Deferred[None]]:
    """Begin a broker's first start (``fresh``), or its restart with a topic after ``kill -9``."""
    cluster = SimulatedCluster(1, overrides=["zookeeper.session.timeout.ms=6000"])
    cluster.run_until(cluster.zookeeper.start())
    if not fresh:
        cluster.run_until(cluster.brokers[1].start())
        cluster.run_until(cluster.client().create_topic("orders", 3, {}))
        cluster.brokers[1].kill()
    return cluster, cluster.brokers[1].start()


def start_duration_s(fresh: bool) -> float:
    cluster, started = begin_start(fresh)
    started_s = cluster.simulation.now_s
    cluster.run_until(started)
    return cluster.simulation.now_s - started_s


@pytest.mark.parametrize("fresh", [True, False], ids=["first", "killed"])
@pytest.mark.parametrize("inject_fault", [lose_connection, lose_responses, lose_session])
def test_a_fault_at_any_instant_of_a_start(inject_fault: Fault, fresh: bool) -> None:
    """After a fault at any instant of its start, the broker is registered in the end and serves its topics."""
    duration_s = start_duration_s(fresh)
    for instant in range(INSTANTS):
        cluster, started = begin_start(fresh)
        cluster.run(duration_s * (instant + 0.5) / INSTANTS)
        inject_fault(cluster)
        cluster.run_until(started, timeout_s=120.0)
        cluster.run(30)
        broker = cluster.brokers[1].program
        assert broker.membership.registered, instant
        assert broker.not_ready() == [], instant
        assert broker.dynamic_settings._notifications == {}, instant
        if fresh:
            cluster.run_until(cluster.client().create_topic("orders", 3, {}))
        assert cluster.leader_of("orders", 2) == 1, instant
        cluster.stop()


def change_settings(cluster: SimulatedCluster, value: int, *, create: bool = False) -> None:
    """Change a setting of the topic ``orders`` in ZooKeeper as a tool does, with a notification to every broker."""
    runtime = cluster.host("tool").runtime
    tool = ZooKeeperClient(runtime.reactor, "coordinator:2181", random=runtime.random)
    cluster.run_until(tool.start())
    path, data = znodes.config_path("topics", "orders"), documents.encode_config({"min.insync.replicas": str(value)})
    cluster.run_until(tool.create(path, data) if create else tool.set_data(path, data))
    change = f"{znodes.CONFIG_CHANGES}/{znodes.CONFIG_CHANGE_PREFIX}"
    cluster.run_until(tool.create(change, documents.encode_config_change("topics", "orders"), sequence=True))
    cluster.run_until(tool.close())


def test_a_session_that_expires_during_the_start() -> None:
    """A broker whose session expires during its start still applies configuration changes."""
    cluster, started = begin_start(fresh=False)
    broker = cluster.brokers[1].program
    cluster.run_until(lambda: broker._opened)
    lose_session(cluster)
    cluster.run_until(started, timeout_s=120.0)
    change_settings(cluster, 2, create=True)
    cluster.run(5)
    assert broker.dynamic_settings.min_insync_replicas("orders") == 2
    cluster.stop()


def test_old_notifications_of_changed_settings() -> None:
    """A restarted broker deletes notifications older than 15 minutes and processes later ones."""
    cluster, started = begin_start(fresh=False)
    cluster.run_until(started)
    for value in (2, 3, 4):
        change_settings(cluster, value, create=value == 2)
    cluster.brokers[1].kill()
    cluster.run(16 * 60)
    cluster.run_until(cluster.brokers[1].start())
    settings = cluster.brokers[1].program.dynamic_settings
    cluster.run(5)
    assert settings._notifications == {}
    change_settings(cluster, 5)
    cluster.run(5)
    assert settings.min_insync_replicas("orders") == 5
    cluster.stop()


def collect_log_lines(lines: list[str]) -> Callable[[dict], None]:
    def observe(event: dict) -> None:
        lines.append(event["log_format"].format(**event))

    globalLogPublisher.addObserver(observe)
    return observe


def test_a_start_waits_for_a_slow_zookeeper_and_logs_it() -> None:
    """A broker waits beyond the connection timeout for a server that accepts connections but opens no session."""
    cluster = SimulatedCluster(1, overrides=["zookeeper.connection.timeout.ms=6000"])
    cluster.run_until(cluster.zookeeper.start())
    cluster.host("coordinator").pause()
    lines: list[str] = []
    observer = collect_log_lines(lines)
    try:
        started = cluster.brokers[1].start()
        cluster.run(60)
        assert not started.called
        cluster.host("coordinator").resume()
        cluster.run_until(started)
    finally:
        globalLogPublisher.removeObserver(observer)
    assert "connecting to ZooKeeper at coordinator:2181" in lines
    waiting = [line for line in lines if line.startswith("waiting for a session with ZooKeeper for ")]
    assert len(waiting) >= 6
    cluster.stop()


def test_an_unreachable_zookeeper_fails_the_start() -> None:
    """If no server accepts a connection, the start fails after the connection timeout, and the log names the server."""
    cluster = SimulatedCluster(1, overrides=["zookeeper.connection.timeout.ms=12000"])
    lines: list[str] = []
    observer = collect_log_lines(lines)
    try:
        with pytest.raises(OperationTimeout, match="no session within 12 s; last attempt: coordinator:2181"):
            cluster.run_until(cluster.brokers[1].start())
    finally:
        globalLogPublisher.removeObserver(observer)
    waiting = [line for line in lines if line.startswith("waiting for a session with ZooKeeper for ")]
    assert len(waiting) == 2
    assert "coordinator:2181" in waiting[0]


def test_a_start_logs_the_duration_of_each_part() -> None:
    """A start logs one line with the duration of each part, in order."""
    cluster, started = begin_start(fresh=False)
    lines: list[str] = []
    observer = collect_log_lines(lines)
    try:
        cluster.run_until(started)
    finally:
        globalLogPublisher.removeObserver(observer)
    (line,) = [line for line in lines if line.startswith("started in ")]
    parts = [part.strip().rsplit(" ", 1) for part in line.partition(": ")[2].split(",")]
    names = ["session", "previous session", "cluster and settings", "logs", "assignment", "listeners", "registration"]
    assert [name for name, _ in parts] == [*names, "roles"]
    assert abs(sum(float(seconds) for _, seconds in parts) - float(line.split()[2])) < 0.05
    cluster.stop()
