"""Crashes of the controller during operations."""

from __future__ import annotations

from random import Random

from kreplica.testing.storms.faults import operations, partitions, topics
from kreplica.testing.storms.faults.fault import Begin, End
from kreplica.testing.storms.replicated_run import ReplicatedRun

STEPS_MAX = 600

OPERATIONS: tuple[Begin, ...] = (operations.reassign, operations.elect)
SIDE_TOPIC_OPERATIONS: tuple[Begin, ...] = (topics.create, topics.delete, partitions.grow, partitions.shrink)


def interrupt_controller(run: ReplicatedRun, random: Random) -> End | None:
    """Request an operation, and kill the controller some events later."""
    choices = (*OPERATIONS, *SIDE_TOPIC_OPERATIONS) if run.side_topics.hosts else OPERATIONS
    random.choice(choices)(run, random)
    run.steps(random.randrange(STEPS_MAX))
    controller = run.cluster.controller()
    if controller is None:
        return None
    run.note(f"broker {controller} is the controller")
    run.kill(controller)
    return lambda: run.launch(controller)
