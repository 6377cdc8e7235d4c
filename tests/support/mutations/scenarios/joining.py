"""Who may be in sync, and when: rare orders of fetches, writes of the in-sync set, and lives of brokers."""

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
    held,
    high_watermark,
    hush,
    isr,
    leave,
    lose_unsynced,
    name,
    prefer,
    scene,
    speak,
    undelay,
    write,
)


def catches_up_slowly(seed: int) -> None:
    """A follower that is back fetches what it missed over a slow link: it is in sync when it has all of it."""
    with scene(seed) as run:
        leave(run, OTHER)
        run.acknowledge(30)
        delay(run, LEADER, OTHER, 0.5)
        heal(run, LEADER, OTHER)
        run.cluster.run(3 * LAG_S)
        undelay(run, LEADER, OTHER)
        run.converge()


def has_what_the_new_leader_knows_of(seed: int) -> None:
    """The leader dies; its successor does not know yet that all it has is committed, when a third one fetches."""
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


def is_another_by_now(seed: int) -> None:
    """While a follower's joining is being written it loses power, and comes back with less than it had fetched."""
    with scene(seed) as run:
        leave(run, OTHER)
        run.acknowledge(100)
        hush(run)
        run.cluster.run(0.5)
        heal(run, LEADER, OTHER)
        led = held(run, LEADER).leader_state
        assert led is not None
        run.cluster.run_until(lambda: led.proposed is not None)
        cut_off(run, LEADER)
        cut(run, LEADER, OTHER)
        lose_unsynced(run, OTHER)
        run.launch(OTHER)
        run.cluster.run(1.5)
        run.tell("the leader reaches ZooKeeper again")
        run.network.heal(name(LEADER), COORDINATOR)
        run.cluster.run(1.5)
        speak(run)
        run.converge()


def leaving_is_being_written(seed: int) -> None:
    """Until it is written that a follower has left, it may be elected: nothing is committed without it."""
    with scene(seed) as run:
        cut(run, OTHER, LEADER)
        write(run, 1)
        hush(run)
        led = held(run, LEADER).leader_state
        assert led is not None
        run.cluster.run(LAG_S - 1)
        cut_off(run, LEADER)
        run.cluster.run_until(lambda: led.proposed is not None)
        speak(run)
        run.cluster.run(1.0)
        run.network.heal(name(LEADER), COORDINATOR)
        run.cluster.run_until(lambda: OTHER not in isr(run))
        run.converge()


def deposed_and_does_not_know(seed: int) -> None:
    """Another leads already when the old leader, which was not told yet, writes who is in sync."""
    with scene(seed, first=FOLLOWER) as run:
        delay(run, CONTROLLER, LEADER, 4 * LAG_S)
        prefer(run)
        assert run.leader() == FOLLOWER
        run.cluster.run(3 * LAG_S)
        undelay(run, CONTROLLER, LEADER)
        run.converge()
