"""When what happened: the controller's last steps, from the notice of an event until the last broker has acted on it.

In memory and bounded; what tells an operator why a failover took as long as it did, and what benchmarks read.
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
"""A step that told the brokers so much (of some 300 partitions) is a line in the log."""


@dataclass(slots=True, eq=False)
class Step:
    """One event.  Times are of the reactor's clock, in seconds; None is not yet (or never).

    :param noticed_s: when the event was queued.
    :param began_s: when its handling began.
    :param written_s: when ZooKeeper answered its last write.
    :param ended_s: when its handling ended.
    :param settled_s: when the last of its commands was answered, or its broker was gone.
    :param commands: requests to brokers.
    :param command_bytes: of what was said of partitions in them, those sent again counted again.
    :param cost: what it took (``figures.Cost``).
    :param told: the brokers that commands were sent to.
    """

    event: Event
    noticed_s: float
    began_s: float
    written_s: float | None = None
    ended_s: float | None = None
    settled_s: float | None = None
    commands: int = 0
    command_bytes: int = 0
    cost: tuple[int, ...] = ()
    told: dict[int, None] = field(default_factory=dict)
    waits_for: dict[object, int] = field(default_factory=dict)
    """By command that is not answered: the broker."""


class Timeline:
    """Owned by the controller of one broker, through all its terms.

    :param seconds: the reactor's clock.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self.seconds = seconds
        self._steps: deque[Step] = deque(maxlen=STEPS_MAX)
        self._now: Step | None = None
        self._of_command: dict[object, Step] = {}

    def __iter__(self) -> Iterator[Step]:
        """The steps, the oldest first."""
        return iter(tuple(self._steps))

    @property
    def now(self) -> Step | None:
        """The step whose event is being handled."""
        return self._now

    @property
    def settled(self) -> bool:
        """Whether nothing is being handled and every command was answered."""
        return self._now is None and not self._of_command

    def began(self, event: Event, noticed_s: float) -> None:
        """An event is being handled now."""
        self._now = Step(event, noticed_s, self.seconds())
        self._steps.append(self._now)

    def wrote(self) -> None:
        """ZooKeeper has answered a write."""
        if self._now is not None:
            self._now.written_s = self.seconds()

    def ended(self, cost: tuple[int, ...]) -> None:
        """The event was handled, however that went.

        :param cost: of it (``figures.Cost``).
        """
        step, self._now = self._now, None
        if step is not None:
            step.ended_s = self.seconds()
            step.cost = cost
            self._look(step)

    def queued(self, broker_id: int, command: object, *, awaited: bool = True) -> None:
        """A command waits to be sent to a broker.

        :param awaited: false where what the broker does about it no longer matters, because it is about to stop.
        """
        if self._now is not None:
            self._now.commands += 1
            self._now.told[broker_id] = None
            if awaited:
                self._now.waits_for[command] = broker_id
                self._of_command[command] = self._now

    def sent(self, command: object, size_bytes: int) -> None:
        """A command is on its way."""
        step = self._of_command.get(command)
        if step is not None:
            step.command_bytes += size_bytes

    def answered(self, command: object) -> None:
        """A broker did what it was told, or said why not."""
        step = self._of_command.pop(command, None)
        if step is not None:
            step.waits_for.pop(command, None)
            self._look(step)

    def gone(self, broker_id: int) -> None:
        """A broker will answer nothing any more."""
        for step in dict.fromkeys(self._of_command.values()):
            for command in [command for command, of in step.waits_for.items() if of == broker_id]:
                self.answered(command)

    def _look(self, step: Step) -> None:
        if step.ended_s is None or step.waits_for or step.settled_s is not None:
            return
        step.settled_s = self.seconds()
        if step.command_bytes >= LARGE_COMMANDS_BYTES:
            round_trips, _, _, znodes, size = (*step.cost, 0, 0, 0, 0, 0)[:5]
            log.info(
                "controller: {event}: handled in {handled_ms} ms, all brokers have acted after {settled_ms} ms "
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
