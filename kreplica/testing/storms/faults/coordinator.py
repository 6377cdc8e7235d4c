"""The coordinator and the sessions that it keeps."""

from __future__ import annotations

from random import Random

from kreplica.testing.storms.faults.fault import End, some_broker
from kreplica.testing.storms.replicated_run import ReplicatedRun


def restart(run: ReplicatedRun, random: Random) -> End | None:
    """Killed, or without power; it is back at the end."""
    coordinator = run.cluster.coordinator
    if not coordinator.running:
        return None
    coordinator.power_loss() if random.random() < 0.5 else coordinator.kill()
    return run.launch_coordinator


def expire_session(run: ReplicatedRun, random: Random) -> None:
    """A live broker's session ends; the broker learns it when it is heard again."""
    broker = some_broker(run, random)
    if broker is not None and run.cluster.coordinator.running and run.cluster.coordinator.program.serving is not None:
        run.tell(f"the session of broker {broker} ends")
        run.cluster.expire_session(broker)
