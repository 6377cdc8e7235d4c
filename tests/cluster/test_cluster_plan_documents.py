"""Znode documents of plans."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kreplica.cluster import znodes
from kreplica.cluster.cordons import Cordon, decode_cordon, encode_cordon
from kreplica.cluster.plans import documents
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
from kreplica.cluster.znodes import ZnodeError

PLAN = Plan("plan-0000000007", PlanKind.DRAIN, PlanState.RUNNING, 1_700_000_000_000, 3, 4096, {"kind": "drain"})

steps = st.builds(
    Step,
    action=st.sampled_from(Action),
    topic=st.sampled_from(["orders", "ü" * 100, "a.b_c-d"]),
    partition=st.integers(0, 99_999),
    before=st.lists(st.integers(0, 2**31 - 1), max_size=5).map(tuple),
    after=st.lists(st.integers(0, 2**31 - 1), max_size=5).map(tuple),
    bytes=st.integers(0, 2**63),
)


def test_plan_round_trip() -> None:
    full = replace(
        PLAN,
        comment="rack 7 ✓",
        throttle_bytes_per_second=10**7,
        moves_at_once=2,
        force=True,
        wait_ms=0,
        rollback=True,
        ended_at_ms=5,
        reason="why",
    )
    for plan in (PLAN, full):
        assert documents.decode_plan(plan.plan_id, documents.encode_plan(plan)) == plan


@given(st.lists(steps, max_size=20))
def test_steps_round_trip(plan_steps: list[Step]) -> None:
    """Steps with any topic names and replicas survive encoding and decoding."""
    assert documents.decode_steps("/p", documents.encode_steps(plan_steps)) == tuple(plan_steps)


@given(st.lists(st.builds(StepOutcome, st.sampled_from(StepState), st.none() | st.text(min_size=1, max_size=9))))
def test_outcomes_round_trip(outcomes: list[StepOutcome]) -> None:
    assert documents.decode_outcomes("/p", documents.encode_outcomes(outcomes)) == tuple(outcomes)


def test_totals_round_trip() -> None:
    totals = PlanProgress(1, 2, 3, 4, 5, 600, 70, 1_700_000_000_000)
    assert documents.decode_progress("/p", documents.encode_progress(totals)) == totals
    assert documents.decode_progress("/p", documents.encode_progress(PlanProgress())) == PlanProgress()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"not json", "not JSON"),
        (b"{}", "the key 'kind' is missing"),
        (b'{"kind":"guess"}', "'guess' is not a valid PlanKind"),
        (documents.encode_plan(PLAN).replace(b'"moves_at_once":5', b'"moves_at_once":0'), "moves_at_once"),
        (documents.encode_plan(PLAN).replace(b'second":null', b'second":"fast"'), "throttle_bytes_per_second"),
    ],
)
def test_damaged_header_is_named(data: bytes, message: str) -> None:
    """Errors contain the znode and the reason."""
    with pytest.raises(ZnodeError, match="/kreplica/plans/plan-0000000007: ") as caught:
        documents.decode_plan(PLAN.plan_id, data)
    assert message in str(caught.value)


def test_damaged_steps_and_outcomes_are_named() -> None:
    """Errors contain the znode of the chunk."""
    with pytest.raises(ZnodeError, match=r"/x/steps/00000001: unknown action 'jump'; the actions are move"):
        documents.decode_steps("/x/steps/00000001", b'{"version":1,"steps":[["jump","t",0,[1],[2],0]]}')
    with pytest.raises(ZnodeError, match="unknown step state 'z'"):
        documents.decode_outcomes("/x/progress/00000001", b'{"version":1,"steps":"wz"}')
    with pytest.raises(ZnodeError, match="/x/progress: the key 'waiting' is missing"):
        documents.decode_progress("/x/progress", b"{}")


def test_large_plan_is_split_into_znodes() -> None:
    """Znodes and multis have limited sizes and contain all steps in order."""
    wide = tuple(range(2_000_000_000, 2_000_000_020))
    many_steps = [Step(Action.MOVE, "t" * 249, number, wide, wide[::-1], 2**60) for number in range(3000)]
    batches = list(documents.creation(replace(PLAN, state=PlanState.PENDING, steps_count=3000), many_steps))
    pieces = [piece for batch in batches for piece in batch]
    assert len(batches) > 1
    assert all(sum(len(piece.data) for piece in batch) < 600_000 for batch in batches)
    assert all(len(piece.data) <= documents.CHUNK_BYTES_MAX for piece in pieces)
    decoded = [s for p in pieces if "/steps/" in p.path for s in documents.decode_steps(p.path, p.data)]
    assert decoded == many_steps
    assert [p.path for p in pieces if "/steps/" in p.path][:2] == [
        znodes.plan_steps_path(PLAN.plan_id, 0),
        znodes.plan_steps_path(PLAN.plan_id, 1),
    ]


def test_large_plan_is_preparing_until_its_last_step_is_written() -> None:
    """With several multis, the first one writes a preparing header."""
    many_steps = [Step(Action.MOVE, "t" * 249, number, (1,), (2,), 0) for number in range(5000)]
    first, *later = documents.creation(replace(PLAN, state=PlanState.PENDING), many_steps)
    assert later
    assert documents.decode_plan(PLAN.plan_id, first[0].data).state is PlanState.PREPARING


def test_small_plan_is_one_multi() -> None:
    """The header, the steps and the totals are created together."""
    plan = replace(PLAN, state=PlanState.PENDING)
    (batch,) = documents.creation(plan, [Step(Action.REORDER, "t", 0, (1, 2), (2, 1))])
    assert documents.decode_plan(PLAN.plan_id, batch[0].data) == plan
    assert [znode.path.removeprefix(znodes.plan_path(PLAN.plan_id)) for znode in batch] == [
        "",
        "/steps",
        "/progress",
        "/steps/00000000",
    ]


def test_steps_per_chunk_are_bounded() -> None:
    many_steps = [Step(Action.MOVE, "t", number, (1,), (2,)) for number in range(1001)]
    assert [len(chunk) for chunk in documents.chunks(many_steps)] == [500, 500, 1]
    assert documents.chunks([]) == []


def test_long_reasons_are_truncated() -> None:
    """The reasons of a whole chunk fit into a znode."""
    failed = [StepOutcome(StepState.FAILED, "r" * 1000)] * documents.STEPS_PER_CHUNK_MAX
    assert len(documents.encode_outcomes(failed)) < documents.CHUNK_BYTES_MAX


def test_header_omits_long_lists() -> None:
    """Large members of the request are not stored."""
    body = {"kind": "reassign", "comment": "x", "assignments": [{"topic": "t" * 200, "partition": 0}] * 1000}
    assert documents.kept_request(body) == {"kind": "reassign", "comment": "x"}


def test_plan_numbers() -> None:
    """An empty znode means number 0, so the first plan has number 1."""
    assert documents.decode_last_number(b"") == 0
    assert documents.decode_last_number(documents.encode_last_number(41)) == 41
    assert documents.plan_id(42) == "plan-0000000042"


def test_cordons() -> None:
    """A znode is a cordon with or without data."""
    assert decode_cordon(3, b"") == Cordon()
    assert decode_cordon(3, encode_cordon(Cordon(5, "disk"))) == Cordon(5, "disk")
    with pytest.raises(ZnodeError, match="/kreplica/cordoned/3: "):
        decode_cordon(3, json.dumps({"since_ms": "yesterday"}).encode())
