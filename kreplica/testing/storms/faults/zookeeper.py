"""Faults of the ZooKeeper server, and expired sessions."""

from __future__ import annotations

from random import Random

from kreplica.testing.storms.faults.fault import End, random_broker
from kreplica.testing.storms.replicated_run import ReplicatedRun


def restart(run: ReplicatedRun, random: Random) -> End | None:
    """Kill the ZooKeeper server or its machine, or the whole ensemble; it starts again at the end."""
    machine = run.cluster.zookeeper
    if not machine.running:
        return None
    machine.power_loss() if random.random() < 0.5 else machine.kill()
    return run.launch_zookeeper


def expire_session(run: ReplicatedRun, random: Random) -> None:
    broker = random_broker(run, random)
    if broker is not None and run.cluster.zookeeper.running and run.cluster.zookeeper.program.serving is not None:
        run.note(f"the session of broker {broker} expires")
        run.cluster.expire_session(broker)
