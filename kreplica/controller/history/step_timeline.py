"""Timeline of the controller's most recent steps: from noticing an event to the last broker's response.

Kept in memory and bounded; shows operators and benchmarks how long each part of a failover took.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from twisted.logger import Logger

from kreplica.controller.event_types import Event

log = Logger()

STEPS_MAX = 1000

LARGE_COMMANDS_BYTES = 50_000
"""A step whose commands are at least this large (about 300 partitions) is logged."""


@dataclass(slots=True, eq=False)
class Step:
    """One handled event.  Times are seconds on the reactor's clock; None if that point has not been reached.

    :param noticed_s: when the event was queued.
    :param started_s: when its handling started.
    :param written_s: when ZooKeeper responded to the last write.
    :param ended_s: when its handling ended.
    :param settled_s: when the last response to a command arrived or its broker was gone.
    :param commands: number of requests to brokers.
    :param command_bytes: size of the partition data in them, including retries.
    :param cost: a ``step_metrics.Cost``.
    :param notified: IDs of the brokers that received commands, in order.
    """

    event: Event
    noticed_s: float
    started_s: float
    written_s: float | None = None
    ended_s: float | None = None
    settled_s: float | None = None
    commands: int = 0
    command_bytes: int = 0
    cost: tuple[int, ...] = ()
    notified: dict[int, None] = field(default_factory=dict)
    unanswered_commands: dict[object, int] = field(default_factory=dict)
    """Broker of each command without a response."""


class Timeline:
    """Steps of one broker's controller; exists as long as the process.

    :param seconds: the reactor's clock.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self.seconds = seconds
        self._steps: deque[Step] = deque(maxlen=STEPS_MAX)
        self._current_step: Step | None = None
        self._step_by_command: dict[object, Step] = {}

    def __iter__(self) -> Iterator[Step]:
        """Iterate over the steps, oldest first."""
        return iter(tuple(self._steps))

    @property
    def current_step(self) -> Step | None:
        """The step whose event is being handled."""
        return self._current_step

    @property
    def settled(self) -> bool:
        """True if no event is being handled and every command has a response."""
        return self._current_step is None and not self._step_by_command

    def began(self, event: Event, noticed_s: float) -> None:
        """Start the step of an event."""
        self._current_step = Step(event, noticed_s, self.seconds())
        self._steps.append(self._current_step)

    def wrote(self) -> None:
        """Record that ZooKeeper responded to a write."""
        if self._current_step is not None:
            self._current_step.written_s = self.seconds()

    def ended(self, cost: tuple[int, ...]) -> None:
        """End the handling of the current step, successful or not.

        :param cost: a ``step_metrics.Cost``.
        """
        step, self._current_step = self._current_step, None
        if step is not None:
            step.ended_s = self.seconds()
            step.cost = cost
            self._settle(step)

    def queued(self, broker_id: int, command: object, *, awaited: bool = True) -> None:
        """Record that a command was queued for a broker.

        :param awaited: False for a broker that is shutting down, whose response does not matter.
        """
        if self._current_step is not None:
            self._current_step.commands += 1
            self._current_step.notified[broker_id] = None
            if awaited:
                self._current_step.unanswered_commands[command] = broker_id
                self._step_by_command[command] = self._current_step

    def sent(self, command: object, size_bytes: int) -> None:
        """Record the size of a sent command."""
        step = self._step_by_command.get(command)
        if step is not None:
            step.command_bytes += size_bytes

    def answered(self, command: object) -> None:
        """Record that a broker executed or rejected a command."""
        step = self._step_by_command.pop(command, None)
        if step is not None:
            step.unanswered_commands.pop(command, None)
            self._settle(step)

    def broker_left(self, broker_id: int) -> None:
        """Stop waiting for a broker's responses."""
        for step in dict.fromkeys(self._step_by_command.values()):
            for command in [each for each, receiver in step.unanswered_commands.items() if receiver == broker_id]:
                self.answered(command)

    def _settle(self, step: Step) -> None:
        if step.ended_s is None or step.unanswered_commands or step.settled_s is not None:
            return
        step.settled_s = self.seconds()
        if step.command_bytes >= LARGE_COMMANDS_BYTES:
            round_trips, _, _, znodes, size = (*step.cost, 0, 0, 0, 0, 0)[:5]
            log.info(
                "controller: {event}: handled in {handled_ms} ms, all brokers responded after {settled_ms} ms "
                "(ZooKeeper: {round_trips} round trips, {znodes} znodes, {size} bytes; "
                "brokers: {commands} commands, {command_size} bytes)",
                event=type(step.event).__name__,
                handled_ms=round((step.ended_s - step.noticed_s) * 1000),
                settled_ms=round((step.settled_s - step.noticed_s) * 1000),
                round_trips=round_trips,
                znodes=znodes,
                size=size,
                commands=step.commands,
                command_size=step.command_bytes,
            )
