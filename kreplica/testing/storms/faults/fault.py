"""What every fault has: a beginning, which finds its victims when it happens, and maybe an end."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from kreplica.testing.storms.replicated_run import ReplicatedRun

End = Callable[[], None]
"""What ends a fault."""

Begin = Callable[[ReplicatedRun, Random], End | None]
"""Begins a fault: of which run, drawing from what; None where there is nothing to end."""


def broker_name(broker: int) -> str:
    """The host of a broker."""
    return f"broker-{broker}"


def some_broker(run: ReplicatedRun, random: Random) -> int | None:
    """A broker that runs: the leader of something and the controller more often than others; None where none runs."""
    running = [broker for broker, machine in run.cluster.brokers.items() if machine.running]
    leader = run.leader(random.randrange(len(run.keys)))
    special = [broker for broker in (leader, run.cluster.controller()) if broker in running]
    choices = [*running, *special]
    return random.choice(choices) if choices else None
