"""What a leader may acknowledge: with too few in sync, with others that may lead, or when it may lead no more."""

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
    held,
    leave,
    lose_unsynced,
    scene,
    write_to_the_past,
)


def is_heard_by_clients_alone(seed: int) -> None:
    """A leader that lost ZooKeeper acknowledges nothing once another may lead, not even with acks=1."""
    with scene(seed) as run:
        cut_off(run, LEADER)
        _another_leads(run)
        write_to_the_past(run)


def woke_up_with_another_session(seed: int) -> None:
    """A leader that stood still past its session has a new one before it hears who leads now."""
    with scene(seed) as run:
        delay(run, CONTROLLER, LEADER, 3.0)
        program = run.machine(LEADER).program
        before = program.client.session_id
        run.tell("the leader stands still")
        run.machine(LEADER).host.pause()
        _another_leads(run)
        run.machine(LEADER).host.resume()
        run.cluster.run_until(lambda: program.client.session_id not in (0, before))
        run.cluster.run_until(lambda: not program.client.session_may_have_expired)
        write_to_the_past(run)


def _another_leads(run: ReplicatedRun) -> None:
    run.cluster.run_until(lambda: run.leader() not in (LEADER, -1), timeout_s=SESSION_S + 3)
    run.cluster.run_until(lambda: held(run, run.leader()).is_leader)


def is_alone(seed: int) -> None:
    """Both followers fall behind: what the leader has alone is not committed."""
    with scene(seed) as run:
        leave(run, FOLLOWER)
        cut(run, OTHER, LEADER)
        run.cluster.run(3 * LAG_S)
        run.converge()


def is_alone_and_dies(seed: int) -> None:
    """Both followers fall behind, and the leader loses what it had not synced: one of the others leads."""
    with scene(seed) as run:
        leave(run, FOLLOWER)
        leave(run, OTHER)
        lose_unsynced(run, LEADER)
        run.start(LEADER)
        run.cluster.run(2 * LAG_S)
        run.converge()


def fewer_are_asked_for(seed: int) -> None:
    """Both followers fell behind, and min.insync.replicas is lowered; they may still lead when the leader dies."""
    with scene(seed) as run:
        leave(run, FOLLOWER)
        leave(run, OTHER)
        before = held(run, LEADER).min_insync_replicas
        alter_topic(run, "min.insync.replicas", "1")
        run.cluster.run_until(lambda: held(run, LEADER).min_insync_replicas != before)
        run.kill(LEADER)
        run.cluster.run_until(lambda: run.leader() not in (LEADER, -1), timeout_s=SESSION_S + 3)
        run.cluster.run(2 * LAG_S)
        run.converge()


def has_a_follower_that_is_silent(seed: int) -> None:
    """A follower that is not heard of holds acknowledgements up no longer than the lag limit."""
    with scene(seed) as run:
        cut(run, OTHER, LEADER)
        run.acknowledge(50, timeout_s=5 * LAG_S)
        run.converge()
