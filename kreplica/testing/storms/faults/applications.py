"""Faults of applications, and of the coordinators of their groups and transactions."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from kreplica.testing.storms.applications.applications import Applications
from kreplica.testing.storms.applications.slots import ApplicationSlot
from kreplica.testing.storms.faults.fault import Begin, End, broker_name
from kreplica.testing.storms.replicated_run import ReplicatedRun

JUMP_MS_MAX = 3_600_000
ONE_WAY_CHANCE = 0.3
ALL_CHANCE = 0.5


def applications_of(run: ReplicatedRun) -> Applications:
    return next(companion for companion in run.companions if isinstance(companion, Applications))


# --- coordinators ----------------------------------------------------------------------------------------------------


def _coordinator(run: ReplicatedRun, random: Random) -> int | None:
    """Select a running broker that coordinates a group or a transactional ID."""
    key = random.choice(applications_of(run).coordinators())
    leader = run.cluster.leader_of(*key)
    if leader not in run.cluster.brokers or not run.machine(leader).running:
        return None
    run.note(f"broker {leader} leads {key}")
    return leader


def kill_coordinator(run: ReplicatedRun, random: Random) -> End | None:
    """Kill a coordinator (``kill -9``), and start it again at the end."""
    broker = _coordinator(run, random)
    if broker is None:
        return None
    run.kill(broker)
    return lambda: run.launch(broker)


def pause_coordinator(run: ReplicatedRun, random: Random) -> End | None:
    """Pause a coordinator (``SIGSTOP``); when it resumes, another broker may have become the coordinator."""
    broker = _coordinator(run, random)
    if broker is None:
        return None
    run.note(f"broker {broker} is paused")
    host = run.machine(broker).host
    host.pause()
    return host.resume


def isolate_coordinator(run: ReplicatedRun, random: Random) -> End | None:
    """Cut a group's coordinator off from ZooKeeper and the other brokers, but not from clients."""
    broker = _coordinator(run, random)
    if broker is None:
        return None
    name = broker_name(broker)
    hosts = [*run.cluster.zookeeper_hosts, *(broker_name(other) for other in run.cluster.brokers if other != broker)]
    run.note(f"broker {broker} can only reach clients")
    for other in hosts:
        run.network.cut(name, other)

    def end() -> None:
        for other in hosts:
            run.network.heal(name, other)

    return end


def expire_coordinator(run: ReplicatedRun, random: Random) -> None:
    """Expire a coordinator's ZooKeeper session; other brokers are elected before it notices."""
    broker = _coordinator(run, random)
    machine = run.cluster.zookeeper
    if broker is not None and machine.running and machine.program.serving is not None:
        run.note(f"the session of broker {broker} expires")
        run.cluster.expire_session(broker)


# --- applications ----------------------------------------------------------------------------------------------------


def _random_slot(run: ReplicatedRun, random: Random) -> ApplicationSlot | None:
    """Select the slot of a running application; workers are twice as likely, copiers three times as likely."""
    applications = applications_of(run)
    candidates = (*applications.slots, *applications.workers, *applications.copiers, *applications.copiers)
    slots = [slot for slot in candidates if slot.is_occupied]
    return random.choice(slots) if slots else None


def _for_random_slot(fault: Callable[[ApplicationSlot], End | None]) -> Begin:
    def begin(run: ReplicatedRun, random: Random) -> End | None:
        slot = _random_slot(run, random)
        return None if slot is None else fault(slot)

    return begin


@_for_random_slot
def kill(slot: ApplicationSlot) -> End:
    """Kill an application; another application starts at the end."""
    slot.kill()
    return slot.fill


def _pause(slot: ApplicationSlot) -> End:
    """Pause an application, which may lose its membership in the meantime."""
    slot.note("is paused")
    host = slot.host
    host.pause()

    def end() -> None:
        slot.note("resumes")
        host.resume()

    return end


pause = _for_random_slot(_pause)


@_for_random_slot
def replace(slot: ApplicationSlot) -> End:
    """Pause an application and start another in its place; the first resumes as a zombie."""
    end = _pause(slot)
    slot.start()
    return end


@_for_random_slot
def leave(slot: ApplicationSlot) -> End:
    """Make an application leave its group; another application starts at the end."""
    slot.leave()
    return slot.fill


def cut_off(run: ReplicatedRun, random: Random) -> End | None:
    """Cut an application off from one or all brokers, in one or both directions."""
    slot = _random_slot(run, random)
    if slot is None:
        return None
    name = slot.host.name
    brokers = [broker_name(broker) for broker in run.cluster.brokers]
    targets = brokers if random.random() < ALL_CHANCE else [random.choice(brokers)]
    one_way = random.random() < ONE_WAY_CHANCE
    is_outbound = random.random() < 0.5
    for other in targets:
        a, b = (name, other) if is_outbound else (other, name)
        run.note(f"the link from {a} to {b} is cut" + ("" if one_way else ", and back"))
        run.network.cut(a, b, one_way=one_way)

    def end() -> None:
        for other in targets:
            run.network.heal(name, other)

    return end


def drop_connections(run: ReplicatedRun, random: Random) -> None:
    """Reset an application's connections to one broker, at one end or both."""
    slot = _random_slot(run, random)
    if slot is not None:
        broker = broker_name(random.choice(sorted(run.cluster.brokers)))
        a, b = random.sample((slot.host.name, broker), 2)
        run.note(f"connections between {a} and {b} break")
        run.network.drop_connections(a, b, one_way=random.random() < 0.5)


def jump(run: ReplicatedRun, random: Random) -> None:
    """Change the clock of an application."""
    slot = _random_slot(run, random)
    if slot is not None:
        by_ms = random.randint(-JUMP_MS_MAX, JUMP_MS_MAX)
        slot.note(f"has its clock changed by {by_ms} ms")
        slot.host.clock.offset_ms += by_ms
