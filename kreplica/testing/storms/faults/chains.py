"""What aims at groups and transactions: at who coordinates them, and at members in the midst of what they do."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Protocol

from kreplica.model import TopicPartition
from kreplica.testing.storms.clients.chain import Chain
from kreplica.testing.storms.clients.seats import Seat
from kreplica.testing.storms.faults.fault import Begin, End, broker_name
from kreplica.testing.storms.replicated_run import ReplicatedRun

MembersFault = Callable[[Seat], End | None]
STEPS_MAX = 300


class Coordinated(Protocol):
    """Clients of coordinators."""

    def coordinators(self) -> list[TopicPartition]:
        """The partitions that keep what they have, some more than once."""


Of = Callable[[ReplicatedRun], Coordinated]
"""Whose coordinators a fault aims at."""


def of(run: ReplicatedRun) -> Chain:
    """The run's chain."""
    return next(companion for companion in run.companions if isinstance(companion, Chain))


# --- coordinators ----------------------------------------------------------------------------------------------------


def _coordinator(run: ReplicatedRun, random: Random, of: Of) -> int | None:
    """A broker that coordinates a group or a transactional id, and runs."""
    key = random.choice(of(run).coordinators())
    leader = run.cluster.leader_of(*key)
    if leader not in run.cluster.brokers or not run.machine(leader).running:
        return None
    run.tell(f"broker {leader} leads {key}")
    return leader


def kill_coordinator(run: ReplicatedRun, random: Random, of: Of = of) -> End | None:
    """``kill -9``, and a start at the end."""
    broker = _coordinator(run, random, of)
    if broker is None:
        return None
    run.kill(broker)
    return lambda: run.launch(broker)


def pause_coordinator(run: ReplicatedRun, random: Random, of: Of = of) -> End | None:
    """``SIGSTOP``, and ``SIGCONT`` at the end, when others may coordinate: it does not know that yet."""
    broker = _coordinator(run, random, of)
    if broker is None:
        return None
    run.tell(f"broker {broker} is paused")
    host = run.machine(broker).host
    host.pause()
    return host.resume


def isolate_coordinator(run: ReplicatedRun, random: Random, of: Of = of) -> End | None:
    """From ZooKeeper and the other brokers, while clients reach it."""
    broker = _coordinator(run, random, of)
    if broker is None:
        return None
    name = broker_name(broker)
    others = ["coordinator", *(broker_name(other) for other in run.cluster.brokers if other != broker)]
    run.tell(f"broker {broker} is heard by clients alone")
    for other in others:
        run.network.cut(name, other)

    def end() -> None:
        for other in others:
            run.network.heal(name, other)

    return end


def expire_coordinator(run: ReplicatedRun, random: Random, of: Of = of) -> None:
    """Its session ends, and others lead what it led; it learns that a moment later."""
    broker = _coordinator(run, random, of)
    machine = run.cluster.coordinator
    if broker is not None and machine.running and machine.program.serving is not None:
        run.tell(f"the session of broker {broker} ends")
        run.cluster.expire_session(broker)


# --- members ---------------------------------------------------------------------------------------------------------


def kill_seat(seat: Seat) -> End:
    """It is gone in the midst of whatever it did; another one comes at the end."""
    seat.kill()
    return seat.fill


def pause_seat(seat: Seat) -> End:
    """The group goes on without it, if that takes long; then it goes on as if nothing had been."""
    seat.tell("is paused")
    host = seat.host
    host.pause()

    def end() -> None:
        seat.tell("goes on")
        host.resume()

    return end


def replace_seat(seat: Seat) -> End:
    """It stands still, and another one begins in its place; at the end it goes on: a zombie."""
    end = pause_seat(seat)
    seat.begin()
    return end


def leave_seat(seat: Seat) -> End:
    """It leaves the group, and another one comes at the end."""
    seat.leave()
    return seat.fill


def _of_member(fault: MembersFault) -> Begin:
    def begin(run: ReplicatedRun, random: Random) -> End | None:
        chain = of(run)
        seats = [seat for seat in (*chain.processors, *chain.seats) if seat.is_taken]
        return fault(random.choice(seats)) if seats else None

    return begin


kill_member, pause_member, replace_member, member_leaves = map(
    _of_member, (kill_seat, pause_seat, replace_seat, leave_seat)
)
