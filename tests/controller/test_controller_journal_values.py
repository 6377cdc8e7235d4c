"""Round trips of journal values through their JSON encoding."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import CancelledError

from kreplica.cluster.plans.plan import Action, Plan, PlanKind, PlanState, Step, StepOutcome, StepState
from kreplica.controller.effects.command_responses import CommandResponse, PartitionError
from kreplica.controller.event_types import (
    AlterReassignmentsRequested,
    AssignmentChanged,
    ElectionRequested,
    ElectionType,
    IsrChanged,
    ListReassignmentsRequested,
    RemovalDue,
    ShutdownRequested,
)
from kreplica.controller.journal.context_json import copy_context, decode_context, encode_context
from kreplica.controller.journal.file_header import run_to_completion
from kreplica.controller.journal.recorder import Journal
from kreplica.controller.journal.recording_proxies import RecordedRandom
from kreplica.controller.journal.value_json import (
    decode_bytes,
    decode_command_response,
    decode_error,
    decode_event,
    decode_response,
    decode_runs,
    decode_watch_event,
    encode_bytes,
    encode_error,
    encode_event,
    encode_rejections,
    encode_response,
    encode_runs,
    encode_watch_event,
    plain,
)
from kreplica.controller.state.context import ControllerContext, ReadOnlyPeriod
from kreplica.controller.state.running_plan import RunningPlan
from kreplica.controller.state.states import PartitionState, ReplicaState
from kreplica.controller.term import TooManyConflicts
from kreplica.errors import ErrorCode
from kreplica.model import BrokerRegistration, Endpoint, LeaderAndIsr, TopicAssignment, TopicPartition
from kreplica.zookeeper import (
    BadVersion,
    ConnectionLoss,
    Created,
    EventType,
    MultiFailed,
    NoNode,
    NotSent,
    RequestTooLarge,
    SessionExpired,
    Stat,
    WatchEvent,
)
from kreplica.zookeeper.errors import UnknownCode
from kreplica.zookeeper.records import KeeperState

P = TopicPartition("a-b", 3)
STAT = Stat(*range(11))


def through_json(value):
    return json.loads(json.dumps(value, default=plain))


@given(st.binary())
def test_bytes(data):
    """Binary data and text round-trip."""
    assert decode_bytes(through_json(encode_bytes(data))) == data


@given(st.lists(st.tuples(st.sampled_from(["a", "b-1", "c.d_e"]), st.integers(0, 5)).map(lambda t: TopicPartition(*t))))
def test_runs_of_partitions(partitions):
    """Partitions round-trip in any order and with duplicates."""
    assert list(decode_runs(through_json(encode_runs(partitions)))) == partitions


def test_runs_are_short():
    """Ten thousand consecutive partitions are encoded as one range."""
    assert encode_runs([TopicPartition("t", n) for n in range(10_000)]) == ["t:0-9999"]


@pytest.mark.parametrize(
    "error",
    [
        NoNode("/a"),
        BadVersion("/a", "said"),
        ConnectionLoss(),
        NotSent("/a"),
        SessionExpired(),
        RequestTooLarge(10, 5),
        UnknownCode(-99),
        CancelledError(),
        ValueError("what"),
    ],
)
def test_errors(error):
    """Errors keep their class and text."""
    found = decode_error(through_json(encode_error(error)))
    if not isinstance(error, ValueError):
        assert type(found) is type(error)
    assert str(found) == str(error)
    assert encode_error(found) == encode_error(error)


def test_a_multi_that_failed():
    """The index and the cause of a failed multi are kept."""
    found = decode_error(through_json(encode_error(MultiFailed(2, BadVersion("/b"), [None, None, BadVersion("/b")]))))
    assert (found.index, type(found.error), found.error.path, len(found.results)) == (2, BadVersion, "/b", 3)


@pytest.mark.parametrize(
    ("operation", "value"),
    [
        ("exists", None),
        ("exists", STAT),
        ("get_data", (b"x", STAT)),
        ("get_children", ["a", "b"]),
        ("create", Created("/a", STAT)),
        ("create", Created("/a", None)),
        ("delete", None),
        ("multi_read", [(b"x", STAT), ["a"], []]),
    ],
)
def test_answers(operation, value):
    """Every kind of ZooKeeper response round-trips."""
    assert decode_response(operation, through_json(encode_response(operation, value))) == value


def test_an_answer_with_an_error_in_it():
    """The result or error of each znode in a multi-read is kept."""
    (found,) = decode_response("multi_read", through_json(encode_response("multi_read", [NoNode("/a")])))
    assert (type(found), found.path) == (NoNode, "/a")


@pytest.mark.parametrize("event", [AssignmentChanged("t"), RemovalDue("t", 3)])
def test_events(event):
    """Events of timers and watches round-trip."""
    assert decode_event(through_json(encode_event(event))) == event


@pytest.mark.parametrize(
    "question",
    [
        ShutdownRequested(3, 17),
        ElectionRequested(ElectionType.UNCLEAN, [P]),
        ElectionRequested(ElectionType.PREFERRED, None),
        ListReassignmentsRequested([P]),
        AlterReassignmentsRequested({P: (1, 2), TopicPartition("t", 0): None}),
    ],
)
def test_requests(question):
    """Requests keep all their fields."""
    found = decode_event(through_json(encode_event(question)))
    assert type(found) is type(question)
    assert encode_event(found) == encode_event(question)


def test_an_event_of_another_version():
    """The error names the unknown event."""
    with pytest.raises(LookupError, match="unknown event Earthquake"):
        decode_event(["Earthquake", {}])


def test_watches_and_brokers_answers():
    """Watch events round-trip, and so do errors by topic id or by name."""
    event = WatchEvent(EventType.NODE_DELETED, KeeperState.SYNC_CONNECTED, "/a")
    assert decode_watch_event(through_json(encode_watch_event(event))) == event
    rejections = (
        PartitionError(UUID(int=7), 1, ErrorCode.KAFKA_STORAGE_ERROR),
        PartitionError("t", 2, ErrorCode.FENCED_LEADER_EPOCH),
    )
    found = decode_command_response("NONE", through_json(encode_rejections(rejections)))
    assert found == CommandResponse(ErrorCode.NONE, rejections)


def filled_context() -> ControllerContext:
    context = ControllerContext(5, 6)
    context.add_broker(BrokerRegistration(2, (Endpoint("PLAINTEXT", "b", 9092),), rack="r", epoch=9, intact_since=3))
    context.add_broker(BrokerRegistration(1, (Endpoint("PLAINTEXT", "a", 9092),), epoch=8))
    for name in ("z", "a-b"):
        moving = {0: (1, 2), 3: (2, 1)}
        context.topics[name] = TopicAssignment(name, UUID(int=4), moving, {3: (2,)}, {3: (1,)}, frozenset({3}))
        context.topic_versions[name], context.topic_czxids[name] = 3, 44
    context.leadership[P] = LeaderAndIsr(1, 4, (1, 2), 5, 7, (2,))
    context.leadership[TopicPartition("z", 0)] = LeaderAndIsr(-1, 4, (1,), 5, 7)
    context.deleting.add("z")
    context.deletions_started.add("z")
    context.initial_replicas[P] = frozenset({1, 2})
    context.shutting_down.add(2)
    context.failed_replicas[1] = {P}
    context.read_only = {P: ReadOnlyPeriod(1.25, 60.0)}
    context.reassignments_requested, context.reassignments_version = {P: (1, 2)}, 8
    context.unreadable.add("u")
    context.set_initial_states(P, PartitionState.ONLINE, {1: ReplicaState.ONLINE, 2: ReplicaState.OFFLINE})
    context.plans["plan-0000000002"] = filled_run()
    context.ended_plans.add("plan-0000000001")
    context.plan_throttle = 1000
    return context


def filled_run() -> RunningPlan:
    plan = Plan("plan-0000000002", PlanKind.REASSIGN, PlanState.CANCELLING, 7, 3, rollback=True)
    steps = [Step(Action.MOVE, "t", number, (1, 2), (3 + number, 2), 10) for number in range(3)]
    moving, finished = StepOutcome(StepState.MOVING, "by force"), StepOutcome(StepState.FINISHED)
    run = RunningPlan.with_counters(plan, 4, [tuple(steps[:2]), tuple(steps[2:])], [moving, finished, finished], 9, [0])
    run.mark(1, StepOutcome(StepState.FAILED, "gone"))
    return run


def test_the_whole_context():
    """The context round-trips, including the order of its entries."""
    context = filled_context()
    found = decode_context(through_json(encode_context(context)))
    runs = {plan_id: vars(run) for plan_id, run in context.plans.items()}
    assert {plan_id: vars(run) for plan_id, run in found.plans.items()} == runs
    found.plans = context.plans
    assert vars(found) == vars(context)
    for name, value in vars(context).items():
        if isinstance(value, dict):
            assert list(vars(found)[name]) == list(value)
    assert not any(value in ({}, set()) for value in vars(context).values()), "every attribute has a value in this test"


def test_a_copy_does_not_change():
    """Changes to the context do not affect a copy."""
    context = filled_context()
    copy = run_to_completion(copy_context(context))
    before = through_json(encode_context(copy))
    context.leadership[P] = replace(context.leadership[P], leader=2)
    context.initial_replicas[P] -= {1}
    context.failed_replicas[1].clear()
    context.deleting.clear()
    context.deletions_started.clear()
    context.plans["plan-0000000002"].mark(0, StepOutcome(StepState.CANCELLED))
    context.set_partition_state(P, PartitionState.OFFLINE)
    assert through_json(encode_context(copy)) == before


class Entries(list[dict]):
    """A sink that collects entries."""

    def note(self, entry, weight=1):
        self.append(entry)


def test_an_operation_that_fails_to_start():
    """An operation that raises at once is not outstanding, so the controller can become idle."""
    journal = Journal(Entries(), lambda: 0.0)
    journal.watches[1] = print

    def rejected():
        raise ConnectionLoss

    with pytest.raises(ConnectionLoss):
        journal.operation("get_data", rejected)
    assert journal.outstanding == 0
    assert journal.watches == {}


DRAWS = [lambda source: source.random(), lambda source: source.uniform(1, 2), lambda source: source.choice("abc")]


@pytest.mark.parametrize("draw", DRAWS)
def test_random_numbers_are_recorded(draw):
    """Random floats and bits are recorded, so that a replay returns the same ones."""
    entries = []

    class Entries:
        def note(self, entry, weight=1):
            entries.append(entry)

    journal = Journal(Entries(), lambda: 0.0)
    drawn = {draw(RecordedRandom(Random(seed), journal)) for seed in range(20)}
    assert len(drawn) > 1
    assert {entry["read"] for entry in entries} == {"random_bits"}
    assert len(entries) >= 20


def test_renamed_errors_keep_their_recorded_name() -> None:
    """Otherwise a journal from an earlier version could not be replayed."""
    assert encode_error(TooManyConflicts("ten attempts")) == ["StatesContested", None, "ten attempts"]


def test_renamed_events_keep_their_names_in_journals() -> None:
    """Journals written before and after the renaming can be replayed by both versions."""
    assert encode_event(ShutdownRequested(3))[0] == "ShutdownAsked"
    assert isinstance(decode_event(["ShutdownAsked", {"broker_id": 3, "broker_epoch": 7}]), ShutdownRequested)
    assert isinstance(decode_event(["InSyncSetsChanged", {}]), IsrChanged)
