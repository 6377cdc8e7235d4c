"""Drafts of plans, and rejected requests."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from kreplica.cluster.plans.cluster_state import ClusterState
from kreplica.cluster.plans.draft import Draft, draft
from kreplica.cluster.plans.eta import expected_seconds, seconds_left
from kreplica.cluster.plans.plan import (
    Action,
    Plan,
    PlanKind,
    PlanProgress,
    PlanState,
    Step,
    StepOutcome,
    StepState,
)
from kreplica.cluster.plans.preview import preview
from kreplica.cluster.plans.progress import final_state, progress
from kreplica.cluster.plans.requests import read_request
from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import TopicAssignment, TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def cluster(
    rows: dict[str, list[tuple[int, ...]]], brokers: tuple[int, ...] = (1, 2, 3, 4), **overrides: Any
) -> ClusterState:
    """Return a cluster in which all replicas are in sync, first replicas lead, and partitions have 100 bytes."""
    topics = {name: TopicAssignment(name, UUID(int=1), dict(enumerate(replicas))) for name, replicas in rows.items()}
    all_replicas = {TopicPartition(name, i): row for name, replicas in rows.items() for i, row in enumerate(replicas)}
    defaults: dict[str, Any] = {
        "in_sync": all_replicas,
        "leaders": {key: row[0] for key, row in all_replicas.items()},
        "sizes": dict.fromkeys(all_replicas, 100),
    }
    return ClusterState(topics, dict.fromkeys(brokers), **(defaults | overrides))


def make_draft(state: ClusterState, kind: str, **body: Any) -> Draft:
    return draft(read_request({"kind": kind, **body}), state)


def reassign(state: ClusterState, targets: dict[TopicPartition, tuple[int, ...]], **body: Any) -> Draft:
    rows = [{"topic": t, "partition": p, "replicas": list(replicas)} for (t, p), replicas in targets.items()]
    return make_draft(state, "reassign", assignments=rows, **body)


def refusal(state: ClusterState, kind: str, **body: Any) -> tuple[ErrorCode, str]:
    with pytest.raises(KafkaError) as caught:
        make_draft(state, kind, **body)
    return caught.value.code, str(caught.value)


# --- requests ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "kind: expected one of reassign, "),
        ({"kind": "magic"}, "found 'magic'"),
        ({"kind": "reassign"}, "assignments: expected a non-empty list"),
        ({"kind": "reassign", "assignments": [{"topic": "t"}]}, "assignments: expected a non-empty list"),
        ({"kind": "drain", "brokers": []}, "brokers: expected a non-empty list of broker ids"),
        ({"kind": "rebalance", "weights": []}, "weights: expected a non-empty list"),
        (
            {"kind": "rebalance", "weights": [{"topic": "t", "partition": 0, "weight": -1}]},
            "weights: expected a non-empty list",
        ),
        ({"kind": "rebalance", "weights": [{"topic": "t", "partition": 0, "weight": 1}] * 2}, "duplicate partition"),
        ({"kind": "drain", "brokers": [1], "moves_at_once": 0}, "moves_at_once: expected an integer of 1"),
        ({"kind": "drain", "brokers": [1], "throttle_bytes_per_second": -1}, "throttle_bytes_per_second: expected"),
        ({"kind": "replication_factor", "topics": "t"}, "topics: expected a non-empty list of topic names"),
        ({"kind": "replication_factor", "topics": ["t"]}, "replication_factor: expected an integer of 1 or more"),
        ({"kind": "add_partitions", "partitions": 3}, "topic: expected a topic name"),
        (
            {"kind": "remove_partitions", "topic": "t", "partitions": 1, "wait_ms": -1},
            "wait_ms: expected an integer of 0",
        ),
    ],
)
def test_invalid_request_names_the_member(body: dict[str, Any], message: str) -> None:
    """The error contains the invalid member and the expected value."""
    with pytest.raises(KafkaError) as caught:
        read_request(body)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert message in str(caught.value)


def test_partition_occurs_once() -> None:
    """Two targets for one partition are rejected."""
    row = {"topic": "t", "partition": 0, "replicas": [1]}
    with pytest.raises(KafkaError, match="duplicate partition"):
        read_request({"kind": "reassign", "assignments": [row, row]})


def test_plan_keeps_its_request() -> None:
    """The header of a plan contains the members of its request."""
    state = cluster({"t": [(1, 2)]})
    options = {"throttle_bytes_per_second": 5, "moves_at_once": 2, "comment": "new racks", "force": True}
    plan = make_draft(state, "drain", brokers=[1], **options).plan("plan-0000000001", 77)
    assert (plan.kind, plan.state, plan.created_at_ms) == (PlanKind.DRAIN, PlanState.PENDING, 77)
    assert (plan.throttle_bytes_per_second, plan.moves_at_once, plan.comment, plan.force) == (5, 2, "new racks", True)
    assert plan.request["brokers"] == [1]
    assert (plan.steps_count, plan.bytes) == (1, 100)


# --- kinds ------------------------------------------------------------------------------------------------------------


def test_explicit_replicas() -> None:
    """Each change is a step, even if it affects only the order; unchanged partitions have none."""
    state = cluster({"t": [(1, 2), (2, 3), (3, 4)]})
    steps = reassign(state, {T0: (2, 1), T1: (2, 4), TopicPartition("t", 2): (3, 4)}).steps
    assert steps == (
        Step(Action.REORDER, "t", 0, (1, 2), (2, 1), 0),
        Step(Action.MOVE, "t", 1, (2, 3), (2, 4), 100),
    )


def test_higher_replication_factor_only_adds() -> None:
    """Existing replicas stay in order, and new ones are spread evenly."""
    rows = [(1, 2), (2, 3), (3, 4), (4, 1)]
    steps = make_draft(cluster({"t": rows}), "replication_factor", topics=["t"], replication_factor=3).steps
    assert [step.after[:2] for step in steps] == rows
    assert set(Counter(step.after[2] for step in steps).values()) == {1}
    assert all(step.bytes == 100 for step in steps)


def test_new_replicas_go_to_the_brokers_with_the_fewest() -> None:
    """Replicas of all topics are counted."""
    state = cluster({"full": [(1, 2)] * 6 + [(2, 3)] * 6, "t": [(1,)]})
    (step,) = make_draft(state, "replication_factor", topics=["t"], replication_factor=2).steps
    assert step.after == (1, 4)


def test_lower_replication_factor_drops_the_least_useful_replicas() -> None:
    """Dead replicas are removed first, then out-of-sync ones; the preferred leader is removed last."""
    state = cluster({"t": [(9, 1, 2), (1, 2, 3), (1, 2, 3)]}, in_sync={T0: (1, 2), T1: (1, 3)})
    steps = make_draft(state, "replication_factor", topics=["t"], replication_factor=2).steps
    assert steps[0].after == (1, 2)
    assert steps[1].after == (1, 3)
    assert steps[2].after[0] == 1
    assert all(step.bytes == 0 for step in steps)


def test_lower_replication_factor_keeps_the_last_in_sync_replica() -> None:
    """The last in-sync replica is kept even if its broker is dead."""
    state = cluster({"t": [(1, 2, 9)]}, in_sync={T0: (9,)}, leaders={})
    (step,) = make_draft(state, "replication_factor", topics=["t"], replication_factor=1, force=True).steps
    assert step.after == (9,)


def test_drain_moves_only_replicas_of_the_drained_brokers() -> None:
    """New replicas are at the positions of the old ones, and the drained brokers are cordoned."""
    state = cluster({"t": [(1, 2), (2, 3), (3, 1), (3, 4)]})
    plan = make_draft(state, "drain", brokers=[1])
    assert plan.cordons == (1,)
    first, second = plan.steps
    assert (first.before, first.after[0] in (3, 4), first.after[1]) == ((1, 2), True, 2)
    assert (second.before, second.after[0], second.after[1] in (2, 4)) == ((3, 1), 3, True)
    assert all(1 not in step.after for step in plan.steps)


def test_dead_broker_can_be_drained() -> None:
    """Only draining moves the replicas of a dead broker."""
    state = cluster({"t": [(1, 9), (2, 8)]}, in_sync={T0: (1,), T1: (2,)})
    steps = make_draft(state, "drain", brokers=[9]).steps
    assert [step.key for step in steps] == [T0]
    assert steps[0].after[1] in (3, 4)


def test_cordoned_brokers_get_no_replicas() -> None:
    """No plan assigns new replicas to cordoned brokers, and they keep existing ones."""
    state = cluster({"t": [(1, 2), (2, 3)]}, cordoned=(4,))
    for plan in (
        make_draft(state, "drain", brokers=[1]),
        make_draft(state, "replication_factor", topics=["t"], replication_factor=3),
        make_draft(state, "add_partitions", topic="t", partitions=9),
        make_draft(state, "rebalance"),
    ):
        assert all(4 not in step.after for step in plan.steps)


def test_rebalance_keeps_replicas_of_cordoned_brokers() -> None:
    """A rebalance moves nothing away from cordoned brokers."""
    state = cluster({"t": [(4, 1), (4, 2), (4, 3), (4, 1)]}, cordoned=(4,))
    assert all(4 in step.after for step in make_draft(state, "rebalance").steps)


def test_new_brokers_get_their_share() -> None:
    """New brokers get their share with the fewest moves."""
    state = cluster({"t": [(1, 2), (2, 3), (3, 1)] * 4})
    steps = make_draft(state, "add_brokers", brokers=[4]).steps
    assert sum(4 in step.after for step in steps) == 6
    assert sum(step.bytes for step in steps) == 600


def test_rebalance_keeps_replicas_of_dead_brokers() -> None:
    """A warning suggests draining the dead broker."""
    state = cluster({"t": [(1, 9), (1, 9), (1, 9), (1, 9)]}, in_sync={}, leaders={})
    plan = make_draft(state, "rebalance")
    assert all(9 in step.after for step in plan.steps)
    assert any("drain" in warning and "[9]" in warning for warning in plan.warnings)


def test_rebalance_of_some_topics() -> None:
    """Only the requested topics are changed."""
    state = cluster({"a": [(1, 2)] * 4, "b": [(1, 2)] * 4})
    steps = make_draft(state, "rebalance", topics=["b"]).steps
    assert {step.topic for step in steps} == {"b"}
    assert steps


def weights(**topics: list[int]) -> list[dict[str, Any]]:
    return [
        {"topic": topic, "partition": number, "weight": weight}
        for topic, row in topics.items()
        for number, weight in enumerate(row)
    ]


def test_rebalance_by_weights() -> None:
    """Weights are balanced instead of counts, and a warning contains the imbalance."""
    state = cluster({"t": [(1,), (2,), (1,), (2,), (1,), (2,)]}, brokers=(1, 2))
    assert make_draft(state, "rebalance").steps == ()
    plan = make_draft(state, "rebalance", weights=weights(t=[50, 10, 10, 10, 10, 10]))
    assert {step.key for step in plan.steps} == {TopicPartition("t", 2), TopicPartition("t", 4)}
    assert all(step.after == (2,) for step in plan.steps)
    assert plan.warnings == ("The weight of a broker ranges from 30 to 70 now, and from 50 to 50 after the plan.",)


def test_leaders_are_balanced_by_weights() -> None:
    """If the replicas are balanced, only their order changes."""
    state = cluster({"t": [(1, 2), (1, 2), (2, 1), (2, 1)]}, brokers=(1, 2))
    (step,) = make_draft(state, "rebalance", weights=weights(t=[30, 20, 1, 1])).steps
    assert (step.action, step.key, step.after) == (Action.REORDER, TopicPartition("t", 1), (2, 1))


def test_partitions_are_added_after_the_last() -> None:
    """New partitions have the topic's replication factor."""
    steps = make_draft(cluster({"t": [(1, 2), (2, 3)]}), "add_partitions", topic="t", partitions=4).steps
    assert [(step.action, step.partition, step.before, len(step.after)) for step in steps] == [
        (Action.ADD, 2, (), 2),
        (Action.ADD, 3, (), 2),
    ]


def test_highest_partitions_are_removed_first() -> None:
    """Steps are in the order that the controller requires."""
    plan = make_draft(cluster({"t": [(1,), (2,), (3,)]}), "remove_partitions", topic="t", partitions=1, wait_ms=5)
    assert [(step.action, step.partition, step.after) for step in plan.steps] == [
        (Action.REMOVE, 2, ()),
        (Action.REMOVE, 1, ()),
    ]
    assert plan.plan("plan-0000000001", 0).wait_ms == 5


def test_plan_without_steps() -> None:
    """A plan without steps is valid and has a warning."""
    plan = make_draft(cluster({"t": [(1,), (2,), (3,), (4,)]}), "rebalance")
    assert plan.steps == ()
    assert any("nothing to do" in warning for warning in plan.warnings)


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_missing_topics_and_partitions_are_refused() -> None:
    """The error contains the existing partitions."""
    state = cluster({"t": [(1, 2)]})
    code, message = refusal(state, "reassign", assignments=[{"topic": "t", "partition": 7, "replicas": [1]}])
    assert (code, "t has 1" in message) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True)
    for kind, body in (
        ("replication_factor", {"topics": ["x"], "replication_factor": 1}),
        ("rebalance", {"topics": ["x"]}),
        ("rebalance", {"weights": [{"topic": "x", "partition": 0, "weight": 1}]}),
        ("add_partitions", {"topic": "x", "partitions": 2}),
        ("remove_partitions", {"topic": "x", "partitions": 2}),
    ):
        assert refusal(state, kind, **body)[0] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("replicas", "message"),
    [((), "empty"), ((1, 1), "duplicate broker"), ((1, 9), "not alive"), ((1, 3), "cordoned")],
)
def test_invalid_replicas_are_refused(replicas: tuple[int, ...], message: str) -> None:
    """Empty lists, duplicates, and dead or cordoned brokers are invalid."""
    state = cluster({"t": [(1, 2)]}, cordoned=(3,))
    with pytest.raises(KafkaError, match=message) as caught:
        reassign(state, {T0: replicas})
    assert caught.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_unavailable_brokers_are_refused() -> None:
    """Unknown brokers cannot be drained; dead or cordoned brokers cannot be added."""
    state = cluster({"t": [(1, 2)]}, cordoned=(3,))
    assert "broker 9 is not alive" in refusal(state, "add_brokers", brokers=[9])[1]
    assert "broker 3 is cordoned" in refusal(state, "add_brokers", brokers=[3])[1]
    assert refusal(state, "drain", brokers=[9])[0] is ErrorCode.BROKER_NOT_AVAILABLE


def test_factor_above_the_number_of_brokers_is_refused() -> None:
    """Cordoned brokers are not counted, and the error lists them."""
    state = cluster({"t": [(1, 2)]}, cordoned=(3,))
    code, message = refusal(state, "replication_factor", topics=["t"], replication_factor=4)
    assert code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert "only 3 live brokers" in message
    assert "(cordoned: 3)" in message


def test_drain_with_too_few_remaining_brokers_is_refused() -> None:
    """The error lists the remaining brokers."""
    state = cluster({"t": [(1, 2, 3)]})
    code, message = refusal(state, "drain", brokers=[1, 2])
    assert code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert "[3, 4]" in message
    assert "lower the replication factor" in message


def test_invalid_partition_counts_are_refused() -> None:
    """A count is refused if it changes in the wrong direction or is too large for one plan."""
    state = cluster({"t": [(1,), (2,)]})
    assert "request a larger number" in refusal(state, "add_partitions", topic="t", partitions=2)[1]
    assert "request a smaller number" in refusal(state, "remove_partitions", topic="t", partitions=2)[1]
    assert "too many for one plan" in refusal(state, "add_partitions", topic="t", partitions=20_000)[1]


def test_partition_of_another_plan_is_refused() -> None:
    """The error contains the ID of the open plan."""
    state = cluster({"t": [(1, 2), (2, 3)]}, planned={T0: "plan-0000000004"})
    code, message = refusal(state, "drain", brokers=[1])
    assert code is ErrorCode.REASSIGNMENT_IN_PROGRESS
    assert "t-0 is part of the open plan plan-0000000004" in message
    assert refusal(state, "add_partitions", topic="t", partitions=5)[0] is ErrorCode.REASSIGNMENT_IN_PROGRESS
    assert reassign(state, {T1: (3, 2)}).steps


def test_open_plans_are_bounded() -> None:
    planned = {TopicPartition("other", number): f"plan-{number:010d}" for number in range(20)}
    assert "20 plans are open" in refusal(cluster({"t": [(1, 2)]}, planned=planned), "drain", brokers=[1])[1]


def test_partition_in_a_reassignment_is_refused() -> None:
    state = cluster({"t": [(1, 2, 3)]})
    state = replace(state, topics={"t": replace(state.topics["t"], adding={0: (3,)}, removing={0: (1,)})})
    with pytest.raises(KafkaError, match="another reassignment is in progress") as caught:
        reassign(state, {T0: (2, 4)})
    assert caught.value.code is ErrorCode.REASSIGNMENT_IN_PROGRESS


def test_partition_being_removed_is_refused() -> None:
    """Partitions that are being removed cannot be part of a plan."""
    state = cluster({"t": [(1, 2), (2, 3)]})
    state = replace(state, topics={"t": replace(state.topics["t"], read_only=frozenset({1}))})
    with pytest.raises(KafkaError, match="t-1: being removed"):
        reassign(state, {T1: (1, 2)})
    assert "[1] of t are being removed" in refusal(state, "add_partitions", topic="t", partitions=3)[1]


def test_last_in_sync_replica_is_not_moved_unless_forced() -> None:
    """An under-replicated partition must keep an in-sync replica; other partitions may move completely."""
    state = cluster({"t": [(1, 2), (1, 2)]}, in_sync={T0: (1,), T1: (1, 2)})
    with pytest.raises(KafkaError, match="would remove every in-sync replica") as caught:
        reassign(state, {T0: (2, 3)})
    assert "force" in str(caught.value)
    assert reassign(state, {T0: (2, 3)}, force=True).warnings
    assert reassign(state, {T0: (3, 1)}).steps
    assert any("all replicas move" in w for w in reassign(state, {T1: (3, 4)}).warnings)


def test_single_replica_may_move() -> None:
    """A single replica is kept until its replacement is in sync."""
    plan = reassign(cluster({"t": [(1,)]}), {T0: (2,)})
    assert [step.after for step in plan.steps] == [(2,)]
    assert plan.warnings == ()


def test_partition_in_sync_only_on_a_dead_broker_is_not_moved_unless_forced() -> None:
    """With force, an out-of-sync replica becomes leader, and a warning explains the risk."""
    state = cluster({"t": [(9, 1)]}, in_sync={T0: (9,)}, leaders={})
    with pytest.raises(KafkaError, match=r"t-0: the only in-sync replicas are on brokers \[9\]"):
        reassign(state, {T0: (2, 9)})
    plan = reassign(state, {T0: (1, 2)}, force=True)
    assert any("records may be lost" in warning for warning in plan.warnings)


def test_warning_about_dead_brokers() -> None:
    """A warning lists dead brokers that delay a move."""
    state = cluster({"t": [(1, 9)]}, in_sync={T0: (1,)})
    plan = reassign(state, {T0: (2, 1, 9)})
    assert any("[9] are not alive but remain replicas" in warning for warning in plan.warnings)


def test_warning_about_unknown_sizes() -> None:
    """Unknown sizes are treated as 0, with a warning."""
    state = cluster({"t": [(1, 2)]}, sizes={})
    plan = reassign(state, {T0: (3, 2)})
    assert plan.bytes == 0
    assert any("size is unknown" in warning for warning in plan.warnings)


# --- previews, progress, time -----------------------------------------------------------------------------------------


def test_preview_by_broker() -> None:
    """The preview lists replicas, leaders and copied bytes by broker."""
    state = cluster({"t": [(1, 2), (1, 2)]}, brokers=(1, 2, 3))
    rows = {row.broker_id: row for row in preview(reassign(state, {T0: (3, 2)}).steps, state)}
    assert (rows[1].replicas_before, rows[1].replicas_after) == (2, 1)
    assert (rows[1].leaders_before, rows[1].leaders_after) == (2, 1)
    assert (rows[3].replicas_after, rows[3].leaders_after, rows[3].bytes_in) == (1, 1, 100)
    assert (rows[1].bytes_out, rows[2].bytes_out, rows[2].bytes_in) == (100, 0, 0)


def test_duration_with_a_throttle() -> None:
    """The busiest broker determines the duration; without a throttle, it is unknown."""
    state = cluster({"t": [(1, 2), (1, 2)]})
    moves = reassign(state, {T0: (3, 2), T1: (4, 2)}).steps
    assert expected_seconds(moves, state, 10) == 20
    assert expected_seconds(moves, state, 3) == 67
    assert expected_seconds(moves, state, None) is None
    assert expected_seconds(reassign(state, {T0: (2, 1)}).steps, state, None) == 0


def test_remaining_duration() -> None:
    """The remaining time is derived from copied bytes, or from finished steps if sizes are unknown."""
    half = PlanProgress(waiting=1, finished=1, bytes=400, bytes_done=100, started_at_ms=1000)
    assert seconds_left(half, 11_000) == 30
    assert seconds_left(replace(half, bytes=0, bytes_done=0), 11_000) == 10
    assert seconds_left(PlanProgress(waiting=2, bytes=9), 11_000) is None
    assert seconds_left(PlanProgress(finished=2, bytes=9, bytes_done=9, started_at_ms=0), 11_000) == 0


def test_end_states_of_a_plan() -> None:
    """A plan is completed, failed or cancelled."""
    steps = [Step(Action.MOVE, "t", number, (1,), (2,), 10) for number in range(2)]
    good, bad = StepOutcome(StepState.FINISHED), StepOutcome(StepState.FAILED, "its topic was deleted")
    plan = Plan("plan-0000000001", PlanKind.REASSIGN, PlanState.RUNNING, 0, 2)
    assert final_state(plan, steps, [good, good]) == (PlanState.COMPLETED, None)
    state, reason = final_state(plan, steps, [good, bad])
    assert (state, reason) == (PlanState.FAILED, "1 of 2 steps failed: t-1: its topic was deleted")
    assert final_state(replace(plan, state=PlanState.CANCELLING), steps, [good, good]) == (PlanState.CANCELLED, None)
    assert progress(steps, [good, bad]) == PlanProgress(finished=1, failed=1, bytes=20, bytes_done=10)
