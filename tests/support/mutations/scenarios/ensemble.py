"""Brokers whose ZooKeeper server lags behind the others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from twisted.internet.defer import Deferred

from kreplica.testing.ensemble.ensemble import EnsembleOptions
from kreplica.testing.ensemble.machines import EnsembleMachines
from kreplica.testing.storms.replicated_run import ReplicatedRun
from tests.support.mutations.scenarios.scene import CONTROLLER, FOLLOWER, LEADER, OTHER, scene

NEW_TOPIC = "fresh"


@contextmanager
def lagging_scene(seed: int, broker: int) -> Iterator[tuple[ReplicatedRun, int]]:
    """Prepare a cluster whose brokers use a ZooKeeper server without lag, except one broker.

    :return: the run, and the ZooKeeper server of that broker.
    """
    with scene(seed, ensemble=EnsembleOptions(lag_s=0.001)) as run:
        machines = machines_of(run)
        assert machines.ensemble.term is not None
        current, lagging = (each for each in machines.hosts if each != machines.ensemble.term.number)
        for other in run.cluster.brokers:
            connect(run, other, lagging if other == broker else current)
        yield run, lagging


def machines_of(run: ReplicatedRun) -> EnsembleMachines:
    assert run.cluster.ensemble is not None
    return run.cluster.ensemble


def connect(run: ReplicatedRun, broker: int, server: int) -> None:
    """Move a broker's session to a server."""
    machines = machines_of(run)
    client = run.machine(broker).program.client

    def connected() -> int | None:
        return machines.server_of_session(client.session_id)

    while (current := connected()) != server:
        if current is not None:
            machines.server(current).disconnect_session(client.session_id)
        run.cluster.run_until(lambda: connected() is None)
        run.cluster.run_until(lambda: connected() is not None)


def freeze(run: ReplicatedRun, server: int) -> None:
    run.note(f"ZooKeeper server {server} applies nothing")
    machines_of(run).ensemble.set_frozen(server, True)


def thaw(run: ReplicatedRun, server: int) -> None:
    run.note(f"ZooKeeper server {server} catches up")
    machines_of(run).ensemble.set_frozen(server, False)


def topic_created_on_other_servers(seed: int) -> None:
    """A broker becomes leader of a new topic whose settings its ZooKeeper server does not have yet."""
    with lagging_scene(seed, LEADER) as (run, lagging):
        freeze(run, lagging)
        admin = run.cluster.client(broker=CONTROLLER)
        configs = {"min.insync.replicas": "2", "segment.bytes": "3000"}
        assignment = [(LEADER, FOLLOWER, OTHER)]
        created = Deferred.fromCoroutine(admin.create_topic(NEW_TOPIC, configs=configs, assignment=assignment))
        run.cluster.run(2.0)
        thaw(run, lagging)
        run.cluster.run_until(created)
        run.cluster.run_until(admin.close())
        run.cluster.wait_in_sync(NEW_TOPIC, [0])
        for broker in (LEADER, FOLLOWER, OTHER):
            settings = run.machine(broker).program.dynamic_settings.partition_settings(NEW_TOPIC)
            used = (settings.min_insync_replicas, settings.log.segment_bytes)
            assert used == (2, 3000), f"broker {broker} uses the settings {used} for a topic with (2, 3000)"
        run.converge()
