"""Records of a broker's terms as controller: audit events, and each decision with its cause.

The controller writes them while it handles events.  No decision depends on them, so a replay or a simulation may use a
different history.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from kreplica.controller.decisions.state_changes import StateChange
from kreplica.controller.effects.command_batch import Command
from kreplica.controller.event_types import Event, recorded_name
from kreplica.controller.history.audit_events import EXAMPLES_MAX, AuditEvents
from kreplica.controller.history.causes import cause_of
from kreplica.controller.history.decision_log import Cause, Decision, DecisionLog
from kreplica.controller.history.step_timeline import Timeline
from kreplica.model import LeaderAndIsr, TopicPartition
from kreplica.zookeeper import SessionState

NO_TERM = -1
"""Controller epoch of causes outside a term."""
BROKERS_MAX = 1000
"""Maximum number of departed brokers whose departure times are kept."""


class ControllerHistory:
    """Audit events and decisions of one broker's controller; exists as long as the process.

    :param timeline: provides the step of the current event, with its times and the brokers that received commands.
    :param now_ms: the wall clock; no decision depends on it.
    :ivar left_ms: wall-clock time at which the departure of each broker was noticed.
    """

    def __init__(self, broker_id: int, timeline: Timeline, now_ms: Callable[[], int]) -> None:
        self.broker_id = broker_id
        self.audit_events = AuditEvents(broker_id, now_ms)
        self.left_ms: dict[int, int] = {}
        self._decision_log = DecisionLog()
        self._timeline = timeline
        self._now_ms = now_ms
        self._controller_epoch: int | None = None
        self._zookeeper_is_lost = False
        self._cause = self._no_cause()
        self._changes: dict[str, _Changes] = {}

    # --- queries -----------------------------------------------------------------------------------------------------

    def decisions(self, partition: TopicPartition) -> Iterator[Decision]:
        """Return the recorded decisions about a partition by this controller or the leader, newest first."""
        return self._decision_log.of(partition)

    # --- called by the controller ------------------------------------------------------------------------------------

    def term_started(self, controller_epoch: int) -> None:
        """Assign subsequent records to the term with this epoch."""
        self._controller_epoch = self._cause.controller_epoch = controller_epoch

    def term_ended(self, reason: str) -> None:
        """Record the end of the term.

        :param reason: clause that follows "is no longer the controller: ".
        """
        subject = f"broker {self.broker_id}"
        self.record("controller_resigned", subject, f"{subject} is no longer the controller: {reason}")
        self._controller_epoch = None

    def session_changed(self, state: SessionState) -> None:
        """Record a state of the broker's ZooKeeper session, inside or outside a term."""
        subject = f"broker {self.broker_id}"
        if state is SessionState.SUSPENDED:
            self._zookeeper_is_lost = True
            self.record("zookeeper_lost", subject, f"{subject} lost its connection to ZooKeeper")
        elif state is SessionState.EXPIRED:
            self._zookeeper_is_lost = True
            text = f"the ZooKeeper session of {subject} expired"
            self.record("session_expired", subject, f"{text}; the broker leads no partition until it has a new session")
        elif state is SessionState.AUTH_FAILED:
            self._zookeeper_is_lost = True
            text = f"ZooKeeper rejected the user of {subject}; the broker leads no partition"
            self.record("zookeeper_lost", subject, text)
        elif state is SessionState.CONNECTED and self._zookeeper_is_lost:
            self._zookeeper_is_lost = False
            self.record("zookeeper_reconnected", subject, f"{subject} is connected to ZooKeeper again")

    @contextmanager
    def handling(self, event: Event) -> Iterator[None]:
        """Collect the changes of one event, and record one entry for each kind of change at the end."""
        step = self._timeline.current_step
        waited_s = self._timeline.seconds() - step.noticed_s if step is not None else 0.0
        at_ms = self._now_ms() - round(waited_s * 1000)
        epoch = NO_TERM if self._controller_epoch is None else self._controller_epoch
        self._cause = Cause(recorded_name(event), cause_of(event), at_ms, epoch, step)
        try:
            yield
        finally:
            self._record_collected()
            self._cause = self._no_cause()

    def _no_cause(self) -> Cause:
        return Cause("", "", 0, NO_TERM, None)

    # --- called by event handlers ------------------------------------------------------------------------------------

    def set_cause(self, text: str) -> None:
        """Replace the default description of the event that is being handled."""
        self._cause.text = text

    def record(self, kind: str, subject: str, text: str, **details: Any) -> None:
        """Add an audit event (see ``audit_events.Entry``), after the entries for earlier changes."""
        self._record_collected()
        self.audit_events.record(kind, subject, text, details, self._controller_epoch)

    def record_many(self, kind: str, noun: str, items: Iterable[object], text: str, **details: Any) -> None:
        """Add one audit event for any number of similar items; none if there are no items.

        :param noun: the kind of item, in the singular, for example ``topic``.
        :param text: contains ``{what}``, which is replaced by the number of items or the name of a single item.
        """
        names = [str(each) for each in items]
        if names:
            subject = f"{noun} {names[0]}" if len(names) == 1 else ""
            sentence = text.replace("{what}", subject or f"{len(names)} {noun}s")
            self.record(kind, subject, sentence, count=len(names), examples=names[:EXAMPLES_MAX], **details)

    def update_live_brokers(self, *, gone: Iterable[int], joined: Iterable[int]) -> None:
        """Update the departure times; a broker in both lists is live."""
        for broker in gone:
            if len(self.left_ms) < BROKERS_MAX:
                self.left_ms[broker] = self._cause.at_ms
        for broker in joined:
            self.left_ms.pop(broker, None)

    def record_late(self, broker_id: int, command: Command) -> None:
        """Record that a broker did not respond to a command in time."""
        name, partitions = command.api.name, command.partitions
        text = f"broker {broker_id} did not respond to {name} of {len(partitions)} partitions in time"
        self.record_many("broker_late", "partition", partitions, text, broker=broker_id, command=name)

    def record_state(self, change: StateChange, replicas_of: Callable[[TopicPartition], Sequence[int]]) -> None:
        """Record a written state.

        :param replicas_of: returns the partition's current replicas; a removed replica is not reported as out of sync.
        """
        partition, old, new = change.partition, change.previous, change.state
        if old is not None and old.leader_epoch == new.leader_epoch and old.isr == new.isr:
            return  # only the partition epoch changed
        self._decision_log.add(partition, (self._cause, old, new))
        kind = _kind_of(old, new)
        if kind == "isr_shrunk" and old is not None:
            has_lost_replicas = set(old.isr).difference(new.isr).intersection(replicas_of(partition))
            kind = kind if has_lost_replicas else None
        if kind is not None and old is not None:
            collected = self._changes.get(kind)
            if collected is None:
                collected = self._changes[kind] = _Changes(kind)
            collected.add(change, old)

    def record_leader_write(self, partition: TopicPartition, old: LeaderAndIsr, new: LeaderAndIsr) -> None:
        """Record a state that the partition's leader wrote."""
        if new.partition_epoch > old.partition_epoch:
            self.record_state(StateChange(partition, old, new), lambda _: (*old.isr, *new.isr))

    # --- entries -----------------------------------------------------------------------------------------------------

    def _record_collected(self) -> None:
        if not self._changes:
            return
        changes, self._changes = self._changes, {}
        for changes_of_kind in changes.values():
            self._record_changes(changes_of_kind)

    def _record_changes(self, changes: _Changes) -> None:
        examples = [
            {
                "topic": row.partition.topic,
                "partition": row.partition.partition,
                "change": Decision(row.partition, self._cause, row.previous, row.state).change,
            }
            for row in changes.examples
        ]
        subject = f"partition {changes.examples[0].partition}" if changes.count == 1 else ""
        partitions = subject or f"{changes.count} partitions"
        sentence = _SENTENCES[changes.kind].format(what=partitions, have="has" if subject else "have")
        text = f"{self._cause.text}: {sentence}"
        self.record(changes.kind, subject, text, count=changes.count, examples=examples, **changes.counts_by_broker())


_SENTENCES = {
    "leaders_moved": "{what} {have} a new leader",
    "partitions_offline": "{what} {have} no leader",
    "partitions_online": "{what} {have} a leader again",
    "isr_shrunk": "{what} {have} fewer replicas in sync",
    "isr_expanded": "{what} {have} more replicas in sync",
}


def _kind_of(old: LeaderAndIsr | None, new: LeaderAndIsr) -> str | None:
    """Return the kind of entry for a change; None for a partition's first state, which the topic's entry covers."""
    if old is None:
        return None
    if old.leader != new.leader:
        if new.leader < 0:
            return "partitions_offline"
        return "partitions_online" if old.leader < 0 else "leaders_moved"
    before, after = len(old.isr), len(new.isr)
    if before == after:
        return None
    return "isr_shrunk" if after < before else "isr_expanded"


class _Changes:
    """Changes of one kind: all are counted, but only the first few are kept as examples."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.count = 0
        self.examples: list[StateChange] = []
        self._lost: Counter[int] = Counter()
        self._gained: Counter[int] = Counter()

    def add(self, change: StateChange, old: LeaderAndIsr) -> None:
        self.count += 1
        if len(self.examples) < EXAMPLES_MAX:
            self.examples.append(change)
        new = change.state
        if self.kind.startswith("isr"):
            for broker in old.isr:
                if broker not in new.isr:
                    self._lost[broker] += 1
            for broker in new.isr:
                if broker not in old.isr:
                    self._gained[broker] += 1
        else:
            self._lost[old.leader] += 1
            self._gained[new.leader] += 1

    def counts_by_broker(self) -> Mapping[str, Any]:
        """Return, by broker, how many partitions it stopped and started leading, or how many ISRs it left and joined.
        """
        return {"from_brokers": _by_broker(self._lost), "to_brokers": _by_broker(self._gained)}


def _by_broker(counts: Counter[int]) -> dict[str, int]:
    return {str(broker): count for broker, count in sorted(counts.items()) if broker >= 0}
