"""Types of fault functions, and functions that select brokers."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from kreplica.testing.storms.replicated_run import ReplicatedRun

End = Callable[[], None]
"""Function that ends a fault."""

Begin = Callable[[ReplicatedRun, Random], End | None]
"""Function that starts a fault, with random choices from the generator; returns None if the fault needs no end."""


def broker_name(broker: int) -> str:
    return f"broker-{broker}"


def random_zookeeper_host(run: ReplicatedRun, random: Random) -> str:
    """Return the host of the ZooKeeper server, or of a random server in the ensemble."""
    hosts = run.cluster.zookeeper_hosts
    return hosts[0] if len(hosts) == 1 else random.choice(hosts)


def random_broker(run: ReplicatedRun, random: Random) -> int | None:
    """Select a running broker; a leader and the controller have a higher probability."""
    running = [broker for broker, machine in run.cluster.brokers.items() if machine.running]
    leader = run.leader(random.randrange(len(run.keys)))
    preferred = [broker for broker in (leader, run.cluster.controller()) if broker in running]
    choices = [*running, *preferred]
    return random.choice(choices) if choices else None
