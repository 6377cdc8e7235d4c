"""Retries of failed replica deletions."""

from __future__ import annotations

import random
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from kreplica.controller.dependencies import ControllerConfig, ControllerDependencies
from kreplica.controller.event_types import Event, ReplicasStopped, RetryDeletions
from kreplica.controller.handlers.replica_deletion import (
    DELETION_RETRY_SECONDS,
    brokers_gone,
    replicas_stopped,
    resume_deletions,
)
from kreplica.controller.history.step_metrics import Counters
from kreplica.controller.state.context import ControllerContext
from kreplica.controller.state.states import PartitionState, ReplicaState
from kreplica.controller.term import ControllerTerm
from kreplica.errors import ErrorCode
from kreplica.model import BrokerRegistration, LeaderAndIsr, TopicAssignment, TopicPartition
from kreplica.runtime import Runtime

KEY = TopicPartition("t", 0)


@dataclass
class RecordedEvents:
    """An event queue that records events but handles none."""

    events: list[Event]
    has_urgent: bool = False

    def put(self, event: Event) -> None:
        self.events.append(event)


def run(deletion: Deletion, work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine, which may yield to the reactor."""
    done = Deferred.fromCoroutine(work)
    while not done.called:
        deletion.clock.advance(0)
    done.addErrback(lambda failure: failure.raiseException())


@dataclass
class Deletion:
    """Deletes a topic's only replica, on broker 1; commands are recorded instead of sent."""

    state: ReplicaState
    clock: Clock = field(default_factory=Clock)
    events: list[Event] = field(default_factory=list)
    sent: list[tuple[int, str, bool]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.context = ControllerContext(3, 3)
        self.context.brokers[1] = BrokerRegistration(1, (), epoch=7)
        self.context.topics["t"] = TopicAssignment("t", UUID(int=5), {0: (1,)})
        self.context.leadership[KEY] = LeaderAndIsr(1, 0, (1,), 3)
        self.context.deleting.add("t")
        self.context.set_partition_state(KEY, PartitionState.NEW)
        for state in (ReplicaState.NEW, ReplicaState.OFFLINE, ReplicaState.DELETION_STARTED):
            self.context.set_replica_state(KEY, 1, state)
            if state is self.state:
                break
        runtime = Runtime(self.clock, None, None, random.Random(1), lambda: 0)
        config = ControllerConfig(1, "PLAINTEXT", lambda _: False)
        dependencies = ControllerDependencies.real(runtime, None, config)
        self.term = ControllerTerm(dependencies, self.context, RecordedEvents(self.events), Counters())
        self.term._send = lambda broker, command: self.sent.append((broker, command.api.name, command.delete))

    @property
    def replica(self) -> ReplicaState:
        return self.context.replica_state(KEY, 1)

    def answered(self, delete: bool, error: ErrorCode = ErrorCode.NONE, *, epoch: int = 7) -> None:
        run(self, replicas_stopped(self.term, ReplicasStopped(1, epoch, delete, ((KEY, error),))))


def test_a_rejected_deletion_is_retried():
    """A broker that could not delete the files receives both commands again, without a restart."""
    deletion = Deletion(ReplicaState.DELETION_STARTED)
    for _ in range(2):
        deletion.answered(True, ErrorCode.KAFKA_STORAGE_ERROR)
    assert deletion.replica is ReplicaState.DELETION_INELIGIBLE
    assert deletion.sent == []
    deletion.clock.advance(DELETION_RETRY_SECONDS)
    assert deletion.events == [RetryDeletions()]

    run(deletion, resume_deletions(deletion.term, {1}))
    assert deletion.sent == [(1, "StopReplica", False)]
    deletion.answered(False)
    assert deletion.sent[1:] == [(1, "StopReplica", True)]
    assert deletion.replica is ReplicaState.DELETION_STARTED
    assert deletion.clock.getDelayedCalls() == []


def test_a_deletion_restarts_when_the_broker_is_back():
    """A broker whose session ends while its response is in transit receives both commands again after it joins."""
    deletion = Deletion(ReplicaState.OFFLINE)
    registration = deletion.context.brokers.pop(1)
    run(deletion, brokers_gone(deletion.term, {1}))
    deletion.answered(False)
    assert deletion.replica is ReplicaState.OFFLINE

    deletion.context.brokers[1] = replace(registration, epoch=9)
    run(deletion, resume_deletions(deletion.term, {1}))
    assert deletion.sent == [(1, "StopReplica", False)]
    deletion.answered(False, epoch=7)
    assert deletion.replica is ReplicaState.OFFLINE, "the response was from the previous process"
    deletion.answered(False, epoch=9)
    deletion.answered(True, epoch=9)
    assert deletion.replica is ReplicaState.DELETION_SUCCESSFUL


def test_a_resigned_controller_leaves_no_timer():
    """The retry timer is cancelled; the next controller retries."""
    clock, events = Clock(), []
    runtime = Runtime(clock, None, None, random.Random(1), lambda: 0)
    term = ControllerTerm(
        ControllerDependencies.real(runtime, None, ControllerConfig(1, "PLAINTEXT", lambda _: False)),
        ControllerContext(1, 1),
        RecordedEvents(events),
        Counters(),
    )
    term.put_later(RetryDeletions(), 10)
    Deferred.fromCoroutine(term.close())
    clock.advance(20)
    assert events == []
    assert clock.getDelayedCalls() == []
