"""Acknowledgements with too few in-sync replicas, with another possible leader, or after losing leadership."""

from __future__ import annotations

from kreplica.testing.storms.replicated_run import ReplicatedRun
from tests.support.mutations.scenarios.scene import (
    CONTROLLER,
    FOLLOWER,
    LAG_S,
    LEADER,
    OTHER,
    SESSION_S,
    alter_topic,
    cut,
    cut_off,
    delay,
    leave,
    lose_unsynced,
    partition_on,
    scene,
    write_to_deposed_leader,
)


def leader_without_zookeeper(seed: int) -> None:
    """A leader without a ZooKeeper session acknowledges no record if another leader is possible, even with acks=1."""
    with scene(seed) as run:
        cut_off(run, LEADER)
        _another_leads(run)
        write_to_deposed_leader(run)


def leader_paused_past_session(seed: int) -> None:
    """A leader is paused beyond its session timeout, and gets a new session before it learns of the new leader."""
    with scene(seed) as run:
        delay(run, CONTROLLER, LEADER, 3.0)
        program = run.machine(LEADER).program
        before = program.client.session_id
        run.note("the leader pauses")
        run.machine(LEADER).host.pause()
        _another_leads(run)
        run.machine(LEADER).host.resume()
        run.cluster.run_until(lambda: program.client.session_id not in (0, before))
        run.cluster.run_until(lambda: not program.client.session_may_have_expired)
        write_to_deposed_leader(run)


def _another_leads(run: ReplicatedRun) -> None:
    run.cluster.run_until(lambda: run.leader() not in (LEADER, -1), timeout_s=SESSION_S + 3)
    run.cluster.run_until(lambda: partition_on(run, run.leader()).is_leader)


def leader_alone_in_sync(seed: int) -> None:
    """Both followers fall behind; records that only the leader has must not be committed."""
    with scene(seed) as run:
        leave(run, FOLLOWER)
        cut(run, OTHER, LEADER)
        run.cluster.run(3 * LAG_S)
        run.converge()


def leader_alone_in_sync_dies(seed: int) -> None:
    """Both followers fall behind, the leader loses its unsynced records, and a follower is elected."""
    with scene(seed) as run:
        leave(run, FOLLOWER)
        leave(run, OTHER)
        lose_unsynced(run, LEADER)
        run.start(LEADER)
        run.cluster.run(2 * LAG_S)
        run.converge()


def min_insync_replicas_lowered(seed: int) -> None:
    """Both followers fall behind and min.insync.replicas is lowered; both may still be elected when the leader dies."""
    with scene(seed) as run:
        leave(run, FOLLOWER)
        leave(run, OTHER)
        before = partition_on(run, LEADER).min_insync_replicas
        alter_topic(run, "min.insync.replicas", "1")
        run.cluster.run_until(lambda: partition_on(run, LEADER).min_insync_replicas != before)
        run.kill(LEADER)
        run.cluster.run_until(lambda: run.leader() not in (LEADER, -1), timeout_s=SESSION_S + 3)
        run.cluster.run(2 * LAG_S)
        run.converge()


def silent_follower(seed: int) -> None:
    """A follower that stops fetching delays acknowledgements for at most ``replica.lag.time.max.ms``."""
    with scene(seed) as run:
        cut(run, OTHER, LEADER)
        run.run_until_acknowledged(50, timeout_s=5 * LAG_S)
        run.converge()
