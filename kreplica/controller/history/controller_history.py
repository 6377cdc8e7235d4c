"""What a broker remembers of its time as the controller: each decision with its cause, and what happened (`chronicle`).

Told while events are handled, and says nothing back: whatever is decided is decided without it, so a controller whose
memory is another (a replay's, a simulation's) does the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from kreplica.controller.decisions.decisions import StateChange
from kreplica.controller.effects.command_batch import Command
from kreplica.controller.event_types import Event
from kreplica.controller.history.audit_events import EXAMPLES_MAX, Chronicle
from kreplica.controller.history.causes import cause_of
from kreplica.controller.history.decision_log import Cause, Decided, Decision
from kreplica.controller.history.step_timeline import Timeline
from kreplica.model import LeaderAndIsr, TopicPartition
from kreplica.zookeeper import SessionState

NOBODY = -1
BROKERS_MAX = 1000
"""Whose leaving is remembered."""


class Memory:
    """Owned by the controller of one broker, through all its terms and after them.

    :param timeline: whose steps say when an event was noticed, and who was told what followed.
    :param now_ms: the wall clock, for people: nothing is decided by it.
    :ivar chronicle: what happened.
    :ivar left_ms: when each broker that does not live was seen to leave, by the wall clock.
    """

    def __init__(self, broker_id: int, timeline: Timeline, now_ms: Callable[[], int]) -> None:
        self.broker_id = broker_id
        self.chronicle = Chronicle(broker_id, now_ms)
        self.left_ms: dict[int, int] = {}
        self._decided = Decided()
        self._timeline = timeline
        self._now_ms = now_ms
        self._controller_epoch: int | None = None
        self._zookeeper_is_lost = False
        self._cause = self._no_cause()
        self._changes: dict[str, _Changes] = {}

    # --- asked by whoever explains -----------------------------------------------------------------------------------

    def decisions(self, partition: TopicPartition) -> Iterator[Decision]:
        """What this broker has decided of a partition, or seen its leader decide, the newest first."""
        return self._decided.of(partition)

    # --- told by the controller --------------------------------------------------------------------------------------

    def took_office(self, controller_epoch: int) -> None:
        """What follows is of that term."""
        self._controller_epoch = self._cause.controller_epoch = controller_epoch

    def resigned(self, reason: str) -> None:
        """The term is over.

        :param reason: the end of a sentence.
        """
        subject = f"broker {self.broker_id}"
        self.tell("controller_resigned", subject, f"{subject} is the controller no more: {reason}")
        self._controller_epoch = None

    def session_changed(self, state: SessionState) -> None:
        """The broker's session with ZooKeeper, whether or not it is the controller."""
        subject = f"broker {self.broker_id}"
        if state is SessionState.SUSPENDED:
            self._zookeeper_is_lost = True
            self.tell("zookeeper_lost", subject, f"{subject} has lost its connection to ZooKeeper")
        elif state is SessionState.EXPIRED:
            self._zookeeper_is_lost = True
            text = f"the session of {subject} with ZooKeeper is over: it leads nothing until it has another"
            self.tell("session_expired", subject, text)
        elif state is SessionState.CONNECTED and self._zookeeper_is_lost:
            self._zookeeper_is_lost = False
            self.tell("zookeeper_back", subject, f"{subject} is connected to ZooKeeper again")

    @contextmanager
    def handling(self, event: Event) -> Iterator[None]:
        """An event is handled within this; what changed by it is told in one entry for each kind of change."""
        step = self._timeline.now
        waited_s = self._timeline.seconds() - step.noticed_s if step is not None else 0.0
        at_ms = self._now_ms() - round(waited_s * 1000)
        epoch = NOBODY if self._controller_epoch is None else self._controller_epoch
        self._cause = Cause(type(event).__name__, cause_of(event), at_ms, epoch, step)
        try:
            yield
        finally:
            self._sum_up()
            self._cause = self._no_cause()

    def _no_cause(self) -> Cause:
        return Cause("", "", 0, NOBODY, None)

    # --- told by handlers of events ----------------------------------------------------------------------------------

    def because(self, text: str) -> None:
        """What the event that is being handled came to say."""
        self._cause.text = text

    def tell(self, kind: str, subject: str, text: str, **details: Any) -> None:
        """Something happened; see ``chronicle.Entry``.  What changed before it is told first."""
        self._sum_up()
        self.chronicle.tell(kind, subject, text, details, self._controller_epoch)

    def tell_of_many(self, kind: str, noun: str, what: Iterable[object], text: str, **details: Any) -> None:
        """The same happened to many, or to none, of which nothing is told.

        :param noun: of one of them, as ``topic``.
        :param text: with ``{what}`` for how many, or which one, it is.
        """
        names = [str(each) for each in what]
        if names:
            subject = f"{noun} {names[0]}" if len(names) == 1 else ""
            sentence = text.replace("{what}", subject or f"{len(names)} {noun}s")
            self.tell(kind, subject, sentence, count=len(names), examples=names[:EXAMPLES_MAX], **details)

    def live_brokers(self, *, gone: Iterable[int], joined: Iterable[int]) -> None:
        """Some live no more, others do now; one that is in both does."""
        for broker in gone:
            if len(self.left_ms) < BROKERS_MAX:
                self.left_ms[broker] = self._cause.at_ms
        for broker in joined:
            self.left_ms.pop(broker, None)

    def late(self, broker_id: int, command: Command) -> None:
        """A broker did not answer a command in time."""
        text = f"broker {broker_id} has not answered {command.api.name} of {len(command.what)} partitions in time"
        self.tell_of_many("broker_late", "partition", command.what, text, broker=broker_id, command=command.api.name)

    def changed(self, change: StateChange, replicas_of: Callable[[TopicPartition], Sequence[int]]) -> None:
        """A state was written.

        :param replicas_of: the brokers that hold a partition now: one that does so no more is not missed in sync.
        """
        partition, old, new = change.partition, change.previous, change.state
        if old is not None and old.leader_epoch == new.leader_epoch and old.isr == new.isr:
            return  # it only fences
        self._decided.add(partition, (self._cause, old, new))
        kind = _kind_of(old, new)
        if kind == "isr_shrunk" and old is not None:
            missed = set(old.isr).difference(new.isr).intersection(replicas_of(partition))
            kind = kind if missed else None
        if kind is not None and old is not None:
            some = self._changes.get(kind)
            if some is None:
                some = self._changes[kind] = _Changes(kind)
            some.add(change, old)

    def learned(self, partition: TopicPartition, old: LeaderAndIsr, new: LeaderAndIsr) -> None:
        """A state was read that its leader wrote."""
        if new.partition_epoch > old.partition_epoch:
            self.changed(StateChange(partition, old, new), lambda _: (*old.isr, *new.isr))

    # --- entries -----------------------------------------------------------------------------------------------------

    def _sum_up(self) -> None:
        if not self._changes:
            return
        changes, self._changes = self._changes, {}
        for some in changes.values():
            self._tell_changes(some)

    def _tell_changes(self, some: _Changes) -> None:
        examples = [
            {
                "topic": row.partition.topic,
                "partition": row.partition.partition,
                "change": Decision(row.partition, self._cause, row.previous, row.state).change,
            }
            for row in some.examples
        ]
        subject = f"partition {some.examples[0].partition}" if some.count == 1 else ""
        what = subject or f"{some.count} partitions"
        text = f"{self._cause.text}: {_SENTENCES[some.kind].format(what=what, have='has' if subject else 'have')}"
        self.tell(some.kind, subject, text, count=some.count, examples=examples, **some.figures())


_SENTENCES = {
    "leaders_moved": "{what} {have} another leader",
    "partitions_offline": "{what} {have} no leader any more",
    "partitions_online": "{what} {have} a leader again",
    "isr_shrunk": "{what} {have} fewer replicas in sync",
    "isr_grown": "{what} {have} more replicas in sync",
}


def _kind_of(old: LeaderAndIsr | None, new: LeaderAndIsr) -> str | None:
    """What an entry says of a change; None for a first state, of which its topic's entry tells."""
    if old is None:
        return None
    if old.leader != new.leader:
        if new.leader < 0:
            return "partitions_offline"
        return "partitions_online" if old.leader < 0 else "leaders_moved"
    before, after = len(old.isr), len(new.isr)
    if before == after:
        return None
    return "isr_shrunk" if after < before else "isr_grown"


class _Changes:
    """Changes of one kind, of which there may be very many: counted as they come, and only the first ones kept."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.count = 0
        self.examples: list[StateChange] = []
        self._gave: Counter[int] = Counter()
        self._got: Counter[int] = Counter()

    def add(self, change: StateChange, old: LeaderAndIsr) -> None:
        """One more, with the state before it."""
        self.count += 1
        if len(self.examples) < EXAMPLES_MAX:
            self.examples.append(change)
        new = change.state
        if self.kind.startswith("isr"):
            for broker in old.isr:
                if broker not in new.isr:
                    self._gave[broker] += 1
            for broker in new.isr:
                if broker not in old.isr:
                    self._got[broker] += 1
        else:
            self._gave[old.leader] += 1
            self._got[new.leader] += 1

    def figures(self) -> Mapping[str, Any]:
        """By broker, how many partitions it gave away and got, or fell out of sync with and came back to."""
        return {"from_brokers": _by_broker(self._gave), "to_brokers": _by_broker(self._got)}


def _by_broker(counts: Counter[int]) -> dict[str, int]:
    return {str(broker): count for broker, count in sorted(counts.items()) if broker >= 0}
