"""After a broker failure, partitions without a leader get one before the ISRs of other partitions shrink."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kreplica.controller.decisions.state_changes import StateChange
from kreplica.controller.state.states import PartitionState
from kreplica.controller.term import ControllerTerm
from kreplica.model import TopicPartition

LEADERS_FIRST_MIN = 1000
"""Minimum number of other partitions; with fewer, a single command for each broker is faster."""


async def elect_leaders_first(
    term: ControllerTerm,
    partitions: Iterable[TopicPartition],
    decide: Callable[[Sequence[TopicPartition]], list[StateChange]],
) -> list[TopicPartition]:
    """Change the states of partitions without a leader, and send the commands.

    With few other partitions, nothing is done.

    :param decide: see ``ControllerTerm.decide``.
    :return: the partitions that remain.
    """
    offline: list[TopicPartition] = []
    others: list[TopicPartition] = []
    async for partition in term.in_slices(partitions):
        is_offline = term.context.partition_state(partition) is PartitionState.OFFLINE
        (offline if is_offline else others).append(partition)
    if not offline or len(others) < LEADERS_FIRST_MIN:
        return [*offline, *others]
    batch = term.new_batch()
    batch.publish(())
    await term.decide(offline, decide, batch)
    batch.send()
    return others
