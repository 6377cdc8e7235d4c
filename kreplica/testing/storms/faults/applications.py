"""What aims at programs that use the client library: at who coordinates them, and at themselves."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

from kreplica.testing.storms.applications.applications import Applications
from kreplica.testing.storms.applications.places import Place
from kreplica.testing.storms.faults import chains
from kreplica.testing.storms.faults.fault import Begin, End, broker_name
from kreplica.testing.storms.replicated_run import ReplicatedRun

JUMP_MS_MAX = 3_600_000
ONE_WAY_CHANCE = 0.3
ALL_CHANCE = 0.5


def of(run: ReplicatedRun) -> Applications:
    """The run's applications."""
    return next(companion for companion in run.companions if isinstance(companion, Applications))


kill_coordinator = partial(chains.kill_coordinator, of=of)
pause_coordinator = partial(chains.pause_coordinator, of=of)
isolate_coordinator = partial(chains.isolate_coordinator, of=of)
expire_coordinator = partial(chains.expire_coordinator, of=of)


def _of_one(fault: Callable[[Place], End | None]) -> Begin:
    def begin(run: ReplicatedRun, random: Random) -> End | None:
        place = _some(run, random)
        return None if place is None else fault(place)

    return begin


def _some(run: ReplicatedRun, random: Random) -> Place | None:
    """One that works; members of groups more often than others."""
    company = of(run)
    places = [place for place in (*company.places, *company.workers, *company.carriers) if place.is_taken]
    return random.choice(places) if places else None


kill, pause, replace, leave = map(
    _of_one, (chains.kill_seat, chains.pause_seat, chains.replace_seat, chains.leave_seat)
)


def cut_off(run: ReplicatedRun, random: Random) -> End | None:
    """From one broker or from all, both ways or one."""
    place = _some(run, random)
    if place is None:
        return None
    name = place.host.name
    brokers = [broker_name(broker) for broker in run.cluster.brokers]
    others = brokers if random.random() < ALL_CHANCE else [random.choice(brokers)]
    one_way = random.random() < ONE_WAY_CHANCE
    away = random.random() < 0.5
    for other in others:
        a, b = (name, other) if away else (other, name)
        run.tell(f"nothing passes from {a} to {b}" + ("" if one_way else ", nor back"))
        run.network.cut(a, b, one_way=one_way)

    def end() -> None:
        for other in others:
            run.network.heal(name, other)

    return end


def drop_connections(run: ReplicatedRun, random: Random) -> None:
    """Those with a broker, maybe half of each only."""
    place = _some(run, random)
    if place is not None:
        broker = broker_name(random.choice(sorted(run.cluster.brokers)))
        a, b = random.sample((place.host.name, broker), 2)
        run.tell(f"connections of {a} and {b} break")
        run.network.drop_connections(a, b, one_way=random.random() < 0.5)


def jump(run: ReplicatedRun, random: Random) -> None:
    """Somebody sets its clock."""
    place = _some(run, random)
    if place is not None:
        by_ms = random.randint(-JUMP_MS_MAX, JUMP_MS_MAX)
        place.tell(f"has its clock set by {by_ms} ms")
        place.host.clock.offset_ms += by_ms
