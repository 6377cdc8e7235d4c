"""Joining and leaving the ISR: rare orders of fetches, ISR writes and broker restarts."""

from __future__ import annotations

from tests.support.mutations.scenarios.scene import (
    CONTROLLER,
    COORDINATOR,
    FOLLOWER,
    LAG_S,
    LEADER,
    OTHER,
    SESSION_S,
    cut,
    cut_off,
    delay,
    end,
    heal,
    high_watermark,
    isr,
    leave,
    lose_unsynced,
    name,
    partition_on,
    pause_producer,
    prefer,
    resume_producer,
    scene,
    undelay,
    write,
)


def slow_catch_up(seed: int) -> None:
    """A restarted follower fetches over a slow link; it must not join the ISR before it has all committed records."""
    with scene(seed) as run:
        leave(run, OTHER)
        run.run_until_acknowledged(30)
        delay(run, LEADER, OTHER, 0.5)
        heal(run, LEADER, OTHER)
        run.cluster.run(3 * LAG_S)
        undelay(run, LEADER, OTHER)
        run.converge()


def fetch_from_leader_with_old_high_watermark(seed: int) -> None:
    """The leader dies, and a follower fetches from the new leader, whose high watermark is behind."""
    with scene(seed) as run:
        leave(run, OTHER)
        delay(run, LEADER, FOLLOWER, 0.3)
        delay(run, LEADER, OTHER, 0.7)
        heal(run, LEADER, OTHER)
        run.cluster.run_until(lambda: high_watermark(run, FOLLOWER) <= end(run, OTHER) < high_watermark(run, LEADER))
        assert OTHER not in isr(run)
        run.kill(LEADER)
        delay(run, FOLLOWER, OTHER, 0.7)
        run.cluster.run_until(lambda: run.leader() == FOLLOWER, timeout_s=SESSION_S + 3)
        run.cluster.run_until(lambda: OTHER in isr(run))
        run.converge()


def restart_during_isr_write(seed: int) -> None:
    """A follower loses power while its join is being written to ZooKeeper, and returns with fewer records."""
    with scene(seed) as run:
        leave(run, OTHER)
        run.run_until_acknowledged(100)
        pause_producer(run)
        run.cluster.run(0.5)
        heal(run, LEADER, OTHER)
        led = partition_on(run, LEADER).leader_state
        assert led is not None
        run.cluster.run_until(lambda: led.proposed is not None)
        cut_off(run, LEADER)
        cut(run, LEADER, OTHER)
        lose_unsynced(run, OTHER)
        run.launch(OTHER)
        run.cluster.run(2.5)  # until the broker has started and fetches
        run.note("the leader reaches ZooKeeper again")
        run.network.heal(name(LEADER), COORDINATOR)
        run.cluster.run(1.5)
        resume_producer(run)
        run.converge()


def isr_shrink_in_flight(seed: int) -> None:
    """A follower can be elected until its removal from the ISR is written, so no record is committed without it."""
    with scene(seed) as run:
        cut(run, OTHER, LEADER)
        write(run, 1)
        pause_producer(run)
        led = partition_on(run, LEADER).leader_state
        assert led is not None
        run.cluster.run(LAG_S - 1)
        cut_off(run, LEADER)
        run.cluster.run_until(lambda: led.proposed is not None)
        resume_producer(run)
        run.cluster.run(1.0)
        run.network.heal(name(LEADER), COORDINATOR)
        run.cluster.run_until(lambda: OTHER not in isr(run))
        run.converge()


def deposed_leader_writes_isr(seed: int) -> None:
    """The old leader, which does not know of the new leader, writes the ISR."""
    with scene(seed, first=FOLLOWER) as run:
        delay(run, CONTROLLER, LEADER, 4 * LAG_S)
        prefer(run)
        assert run.leader() == FOLLOWER
        run.cluster.run(3 * LAG_S)
        undelay(run, CONTROLLER, LEADER)
        run.converge()
