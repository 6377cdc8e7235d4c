"""The controller dies over something that it was asked to do: any step of it may be the last one."""

from __future__ import annotations

from random import Random

from kreplica.testing.storms.faults import operations, partitions, topics
from kreplica.testing.storms.faults.fault import Begin, End
from kreplica.testing.storms.replicated_run import ReplicatedRun

STEPS_MAX = 600

OPERATIONS: tuple[Begin, ...] = (operations.reassign, operations.elect)
OF_SIDE_TOPICS: tuple[Begin, ...] = (topics.create, topics.delete, partitions.grow, partitions.shrink)


def interrupt(run: ReplicatedRun, random: Random) -> End | None:
    """Have something done, and kill the controller some events later."""
    choices = (*OPERATIONS, *OF_SIDE_TOPICS) if run.side_topics.hosts else OPERATIONS
    random.choice(choices)(run, random)
    run.steps(random.randrange(STEPS_MAX))
    controller = run.cluster.controller()
    if controller is None:
        return None
    run.tell(f"broker {controller} is the controller")
    run.kill(controller)
    return lambda: run.launch(controller)
