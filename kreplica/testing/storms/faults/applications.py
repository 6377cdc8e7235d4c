"""Faults of programs with the client library, and of their coordinators."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

from kreplica.testing.storms.applications.applications import Applications
from kreplica.testing.storms.applications.slots import ApplicationSlot
from kreplica.testing.storms.faults import chains
from kreplica.testing.storms.faults.fault import Begin, End, broker_name
from kreplica.testing.storms.replicated_run import ReplicatedRun

JUMP_MS_MAX = 3_600_000
ONE_WAY_CHANCE = 0.3
ALL_CHANCE = 0.5


def applications_of(run: ReplicatedRun) -> Applications:
    return next(companion for companion in run.companions if isinstance(companion, Applications))


kill_coordinator = partial(chains.kill_coordinator, clients_of=applications_of)
pause_coordinator = partial(chains.pause_coordinator, clients_of=applications_of)
isolate_coordinator = partial(chains.isolate_coordinator, clients_of=applications_of)
expire_coordinator = partial(chains.expire_coordinator, clients_of=applications_of)


def _for_random_slot(fault: Callable[[ApplicationSlot], End | None]) -> Begin:
    def begin(run: ReplicatedRun, random: Random) -> End | None:
        slot = _random_slot(run, random)
        return None if slot is None else fault(slot)

    return begin


def _random_slot(run: ReplicatedRun, random: Random) -> ApplicationSlot | None:
    """Select the slot of a running application; group members have twice the probability."""
    applications = applications_of(run)
    candidates = (*applications.slots, *applications.workers, *applications.copiers)
    slots = [slot for slot in candidates if slot.is_occupied]
    return random.choice(slots) if slots else None


kill, pause, replace, leave = map(
    _for_random_slot, (chains.kill_slot, chains.pause_slot, chains.replace_slot, chains.leave_slot)
)


def cut_off(run: ReplicatedRun, random: Random) -> End | None:
    """Cut an application off from one broker or all, in one or both directions."""
    slot = _random_slot(run, random)
    if slot is None:
        return None
    name = slot.host.name
    brokers = [broker_name(broker) for broker in run.cluster.brokers]
    others = brokers if random.random() < ALL_CHANCE else [random.choice(brokers)]
    one_way = random.random() < ONE_WAY_CHANCE
    away = random.random() < 0.5
    for other in others:
        a, b = (name, other) if away else (other, name)
        run.note(f"the link from {a} to {b} is cut" + ("" if one_way else ", and back"))
        run.network.cut(a, b, one_way=one_way)

    def end() -> None:
        for other in others:
            run.network.heal(name, other)

    return end


def drop_connections(run: ReplicatedRun, random: Random) -> None:
    """Reset an application's connections with one broker, at one end or both."""
    slot = _random_slot(run, random)
    if slot is not None:
        broker = broker_name(random.choice(sorted(run.cluster.brokers)))
        a, b = random.sample((slot.host.name, broker), 2)
        run.note(f"connections between {a} and {b} break")
        run.network.drop_connections(a, b, one_way=random.random() < 0.5)


def jump(run: ReplicatedRun, random: Random) -> None:
    slot = _random_slot(run, random)
    if slot is not None:
        by_ms = random.randint(-JUMP_MS_MAX, JUMP_MS_MAX)
        slot.note(f"has its clock changed by {by_ms} ms")
        slot.host.clock.offset_ms += by_ms
