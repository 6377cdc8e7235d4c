"""Records a storm as traces of actions of the model V3, one for each partition of its main topic.

After each simulated event, changes in the brokers' replicas and in the znodes are converted to actions with the names
and parameters of ``tests/models/Trace.tla``. TLC then checks that the model allows them in this order.

Leader epochs are shifted by one, because 0 means "no epoch" in the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from kreplica.cluster import documents, znodes
from kreplica.model import NO_BROKER_EPOCH, NO_LEADER, LeaderAndIsr, TopicPartition
from kreplica.replication import Partition
from kreplica.storage.log.log import Log
from kreplica.testing.cluster.cluster import SimulatedCluster
from kreplica.testing.cluster.state import state_of
from kreplica.testing.simulator.scheduler import Process
from tests.support.journal_writes import journaled_states

Event = list[Any]
Ends = dict[int, tuple[int, int]]


class LogState(NamedTuple):
    """A log, as represented in ``Logs.tla``.

    :ivar runs: epoch and first offset of each run of records of one epoch.
    """

    end: int
    runs: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, log: Log) -> LogState:
        end, runs = log.log_end_offset, list[tuple[int, int]]()
        for entry in log.leader_epochs.entries:
            while runs and runs[-1][1] >= entry.start_offset:
                runs.pop()  # an epoch without records
            runs.append((entry.epoch + 1, entry.start_offset))
        return cls(end, tuple(run for run in runs if run[1] < end))

    def starts_with(self, other: LogState) -> bool:
        return self.end >= other.end and tuple(run for run in self.runs if run[1] < other.end) == other.runs


EMPTY = LogState(0, ())


class IsrState(NamedTuple):
    """ISR, eligible leader replicas, and version of the state znode; in a proposal, the version to replace."""

    isr: frozenset[int]
    elr: frozenset[int]
    version: int


NO_VIEW = IsrState(frozenset(), frozenset(), -1)


@dataclass
class ReplicaState:
    """State of a process's replica after an event."""

    role: object
    kind: str
    epoch: int
    log: LogState
    high_watermark: int
    view: IsrState
    proposed: IsrState | None
    ends: Ends
    start: int

    @classmethod
    def of(cls, partition: Partition) -> ReplicaState:
        led, known = partition.leader_state, partition.leadership
        proposed, ends = None, {}
        if led is not None:
            if led.proposed is not None:
                base = led.proposed.base
                proposed = _isr_state(led.proposed.isr, led.proposed.eligible, base.partition_epoch)
            ends = {
                follower: (progress.broker_epoch, progress.log_end_offset)
                for follower, progress in led.followers.items()
                if progress.log_end_offset >= 0
            }
        role = partition.role
        return cls(
            role=role,
            kind="leader" if role.is_leader else "follower" if role.is_follower else "none",
            epoch=known.leader_epoch + 1,
            log=LogState.of(partition.log),
            high_watermark=partition.high_watermark,
            view=_isr_state(known.isr, known.eligible, known.partition_epoch),
            proposed=proposed,
            ends=ends,
            start=led.epoch_start_offset if led is not None else 0,
        )


def _isr_state(isr: Iterable[int], eligible: Iterable[int], version: int) -> IsrState:
    return IsrState(frozenset(isr), frozenset(eligible), version)


@dataclass
class Trace:
    """Trace of one partition.

    :ivar initial: values of the model's variables at the start.
    :ivar events: the actions, in order.
    :ivar journaled: states that controllers have written, according to their journals.
    """

    name: str
    brokers: list[int]
    initial: dict[str, Any]
    events: list[Event]
    journaled: list[LeaderAndIsr]

    def missing_writes(self) -> list[LeaderAndIsr]:
        """Return the journaled states that do not occur as a controller's write in this trace."""
        first: LeaderAndIsr = self.initial["state"]
        written = {event[-1]: event[1:5] for event in self.events if event[0] == "control"}
        return [
            state
            for state in self.journaled
            if state.partition_epoch > first.partition_epoch and written.get(state.partition_epoch) != _control(state)
        ]


class PartitionRecorder:
    """Records the trace of one partition; see ``StormRecorder``."""

    def __init__(self, cluster: SimulatedCluster, key: TopicPartition, name: str) -> None:
        self._cluster = cluster
        self._key = key
        self._programs: dict[int, object] = {}
        self._replicas: dict[int, ReplicaState] = {}
        self._logs: dict[int, tuple[LogState, int]] = {}
        """Log and high watermark in the model, by broker."""
        self._ended: dict[int, list[Event]] = {}
        """The `end` events of the broker's processes since its replica was last open, by broker."""
        self._unclean: dict[int, None] = {}
        self._registered: dict[int, tuple[int, int]] = {}
        self._known: dict[int, int] = {}
        state = state_of(cluster, key)
        assert state is not None
        self._state: LeaderAndIsr = state
        self._zxid = 0
        self.trace = Trace(name, sorted(cluster.brokers), {}, [], [])
        for broker in cluster.brokers:
            self._programs[broker] = cluster.brokers[broker].program
            self._registered[broker] = self._registration(broker) or (0, 0)
            self._known[broker] = self._registered[broker][0]
            partition = self._partition(broker)
            if partition is not None:
                self._replicas[broker] = ReplicaState.of(partition)
            replica = self._replicas.get(broker)
            self._logs[broker] = (replica.log, replica.high_watermark) if replica else (EMPTY, 0)
        self._describe_start()

    def _partition(self, broker: int) -> Partition | None:
        machine = self._cluster.brokers[broker]
        return machine.program.partitions.get(self._key) if machine.running else None

    def _registration(self, broker: int) -> tuple[int, int] | None:
        """Return a broker's registered epoch, and the epoch since which it has lost nothing."""
        machine = self._cluster.zookeeper
        serving = machine.program.serving if machine.running else None
        node = None if serving is None else serving.tree.nodes.get(znodes.broker_path(broker))
        if node is None:
            return None
        intact_since = documents.decode_broker(broker, node.data or b"", node.czxid).intact_since
        return node.czxid, node.czxid if intact_since == NO_BROKER_EPOCH else intact_since

    def _describe_start(self) -> None:
        replicas = self._replicas
        active = {b: r for b, r in replicas.items() if r.kind != "none"}
        leaders = {b: r for b, r in replicas.items() if r.kind == "leader"}
        self.trace.initial = {
            "state": self._state,
            "inc": {b: epoch for b, (epoch, _) in self._registered.items()},
            "log": {b: log for b, (log, _) in self._logs.items()},
            "hw": {b: high for b, (_, high) in self._logs.items()},
            "role": {b: replicas[b].kind if b in replicas else "none" for b in self._logs},
            "epoch": {b: active[b].epoch if b in active else 0 for b in self._logs},
            "view": {b: active[b].view if b in active else NO_VIEW for b in self._logs},
            "proposed": {b: leaders[b].proposed if b in leaders else None for b in self._logs},
            "ends": {b: leaders[b].ends if b in leaders else {} for b in self._logs},
            "start": {b: leaders[b].start if b in leaders else 0 for b in self._logs},
        }

    def _add(self, *event: Any) -> Event:
        added = list(event)
        self.trace.events.append(added)
        return added

    # --- znodes ------------------------------------------------------------------------------------------------------

    def coordinator_changed(self) -> None:
        """Record changes in the registrations and in the state znode."""
        machine = self._cluster.zookeeper
        if not machine.running or machine.program.serving is None:
            return
        for broker in self._cluster.brokers:
            registration = self._registration(broker)
            if registration is not None and registration[0] != self._registered[broker][0]:
                self._register(broker, *registration)
        state = state_of(self._cluster, self._key)
        if state is None or state == self._state:
            return
        if state.partition_epoch < self._state.partition_epoch:
            self._undo_writes(state)
        elif state.partition_epoch > self._state.partition_epoch:
            self._written(state)
        self._state = state

    def _undo_writes(self, state: LeaderAndIsr) -> None:
        """Remove writes that the coordinator lost in a crash before it acknowledged them."""
        lost = [e for e in self.trace.events if e[0] in ("write", "control") and e[-1] > state.partition_epoch]
        for event in lost:
            self.trace.events.remove(event)

    def _register(self, broker: int, epoch: int, intact: int) -> None:
        machine = self._cluster.brokers[broker]
        if machine.running and machine.program is not self._programs[broker]:
            self._process_ended(broker)
            self._programs[broker] = machine.program
        self._add("register", broker, epoch, intact)
        self._registered[broker] = epoch, intact
        if intact <= self._known[broker]:
            self._known[broker] = epoch
            self._add("notice", broker)
        else:
            self._unclean[broker] = None

    def _process_ended(self, broker: int) -> None:
        log = self._cluster.brokers[broker].program.directories.logs.get(self._key)
        before, _ = self._logs[broker]
        state = before if log is None else LogState.of(log)
        self._replicas.pop(broker, None)
        self._ended.setdefault(broker, []).append(self._add("end", broker, state, 0))
        self._logs[broker] = state, 0

    def _written(self, state: LeaderAndIsr) -> None:
        old, version = self._state, state.partition_epoch
        assert version == old.partition_epoch + 1, f"{self._key}: versions up to {version} were not observed"
        leader, isr, elr, epoch = _control(state)
        is_same = isr == frozenset(old.isr) and elr == frozenset(old.eligible_leader_replicas)
        if state.leader_epoch == old.leader_epoch and not is_same:
            self._add("write", state.leader, isr, elr, version)
            return
        members = {*old.isr, *old.eligible_leader_replicas}
        handled = frozenset(b for b in self._unclean if b not in isr | elr or members <= self._unclean.keys())
        for broker in handled:
            del self._unclean[broker]
            self._known[broker] = self._registered[broker][0]
        self._add("control", leader, isr, elr, epoch, handled, version)

    # --- replicas ----------------------------------------------------------------------------------------------------

    def broker_changed(self, broker: int) -> None:
        """Record changes in a broker's replica."""
        machine = self._cluster.brokers[broker]
        if not machine.running or machine.program is not self._programs[broker]:
            return  # recorded when the new process registers
        partition, before = self._partition(broker), self._replicas.get(broker)
        if partition is None:
            if before is not None:
                if before.kind != "none":
                    self._add("stop", broker, before.epoch)
                del self._replicas[broker]
            return
        if before is not None and _is_unchanged(partition, before):
            return
        after = ReplicaState.of(partition)
        self._changed(broker, before, after)
        self._replicas[broker] = after
        self._logs[broker] = after.log, after.high_watermark

    def _changed(self, broker: int, before: ReplicaState | None, after: ReplicaState) -> None:
        kind = before.kind if before is not None else "none"
        if before is None or after.role is not before.role:
            if after.kind == "none":
                if kind != "none":
                    assert before is not None
                    self._log_changed(broker, kind, before.log, after)
                    self._add("stop", broker, after.epoch)
                return
            self._log_reset(broker, after, before)
            if broker in self._unclean:
                del self._unclean[broker]
                self._known[broker] = self._registered[broker][0]
                self._add("notice", broker)
            self._add("become", broker, after.view.version, after.kind)
            before = None
        elif after.kind == "leader":
            if after.view.version != before.view.version:
                self._add("update", broker, after.view.version)
            elif before.proposed is not None and after.proposed != before.proposed:
                self._add("withdraw", broker)
        log, high = self._logs[broker]
        self._log_changed(broker, after.kind, log, after)
        if after.kind == "leader":
            self._leader_changed(broker, before, after, high)

    def _log_reset(self, broker: int, after: ReplicaState, before: ReplicaState | None) -> None:
        """Record the log of a replica that a command opens."""
        log, high = self._logs[broker]
        ended = self._ended.pop(broker, [])
        start = LogState(after.log.end, after.log.runs)
        if before is not None and before.kind != "none":
            return
        if ended and start == log:
            for event in ended:
                event[3] = after.high_watermark
        elif before is None and (start != log or after.high_watermark != high):
            self._add("discard", broker, start, after.high_watermark)
        self._logs[broker] = start, after.high_watermark

    def _log_changed(self, broker: int, kind: str, log: LogState, after: ReplicaState) -> None:
        if kind == "leader":
            if after.log.end != log.end:
                self._add("append", broker, after.log.end - log.end, after.log.end)
            return
        high = self._logs[broker][1]
        if not after.log.starts_with(log):
            self._add("truncate", broker, after.log.end, after.high_watermark)
        elif after.log.end > log.end or after.high_watermark > high:
            self._add("copy", broker, after.log.end, after.high_watermark)

    def _leader_changed(self, broker: int, before: ReplicaState | None, after: ReplicaState, high: int) -> None:
        ends = before.ends if before is not None else {}
        for follower, end in after.ends.items():
            if end != ends.get(follower):
                self._add("fetch", broker, follower, *end)
        if after.high_watermark > high:
            self._add("advance", broker, after.high_watermark)
        if after.proposed is not None and (before is None or after.proposed != before.proposed):
            self._add("propose", broker, after.proposed.isr, after.proposed.elr, after.proposed.version)

    def finish(self) -> Trace:
        """Add the final state and return the trace."""
        for broker, replica in sorted(self._replicas.items()):
            machine = self._cluster.brokers[broker]
            if machine.running and machine.program is self._programs[broker]:
                self._add("final", broker, replica.log, replica.high_watermark)
        self.trace.journaled = journaled_states(self._cluster, self._key)
        return self.trace


def _control(state: LeaderAndIsr) -> Event:
    """Return the leader, the ISR, the eligible leader replicas and the epoch of a state."""
    leader = 0 if state.leader == NO_LEADER else state.leader
    return [leader, frozenset(state.isr), frozenset(state.eligible_leader_replicas), state.leader_epoch + 1]


def _is_unchanged(partition: Partition, before: ReplicaState) -> bool:
    """Return True if a replica certainly has not changed; a leader may have changed in any case."""
    log = partition.log
    return (
        before.kind != "leader"
        and partition.role is before.role
        and log.log_end_offset == before.log.end
        and partition.high_watermark == before.high_watermark
    )


class StormRecorder:
    """Records the traces of all partitions of a cluster's main topic."""

    def __init__(self, cluster: SimulatedCluster, keys: Iterable[TopicPartition], name: str) -> None:
        self._brokers = {machine.host.name: number for number, machine in cluster.brokers.items()}
        self._recorders = [PartitionRecorder(cluster, key, f"{name} {key}") for key in keys]
        scheduler = cluster.simulation.scheduler
        self._after_event: Callable[[Process], None] | None = scheduler.after_event
        scheduler.after_event = self._record

    def _record(self, process: Process) -> None:
        broker = self._brokers.get(process.host)
        for recorder in self._recorders:
            if broker is not None:
                recorder.broker_changed(broker)
            elif process.host == "coordinator":
                recorder.coordinator_changed()
        if self._after_event is not None:
            self._after_event(process)

    def traces(self) -> list[Trace]:
        return [recorder.finish() for recorder in self._recorders]
