"""Fault schedules: seeds cover all kinds of faults, each check can fail, and (in the soak) real clusters pass them."""

import json
import os
import random
from dataclasses import asdict

import pytest
from checks import check_acknowledged, check_copy, check_prefix, check_transactions
from faults import KINDS
from loads import ABORTED, COMMITTED, UNKNOWN, GroupPositions
from power_cut import cut_tails
from run_schedules import parse_seeds, run_schedules
from schedule import plan

from kreplica.wire.batch_building import build_batch
from kreplica.wire.records import Record
from tests.support.namespaces import are_permitted

SOAK_SEEDS = os.environ.get("SCHEDULES", f"1-{len(KINDS)}")


class Acknowledgements:
    """A producer's acknowledgements, in the form that the checks need."""

    def __init__(self, sent, acknowledged):
        self.sent = [sent, 0, 0]
        self.acknowledged = [acknowledged, {}, {}]


class TransactionOutcomes:
    """Transactions with known outcomes."""

    def __init__(self, **outcomes):
        self.outcomes = {int(number.removeprefix("n")): outcome for number, outcome in outcomes.items()}


def test_consecutive_seeds_cover_every_kind_of_fault():
    kinds = {step.kind.name for seed in range(len(KINDS)) for step in plan(seed).steps}
    assert kinds == {kind.name for kind in KINDS}


def test_a_seed_determines_the_schedule():
    assert plan(7) == plan(7)
    assert plan(7) != plan(8)


@pytest.mark.parametrize(
    ("found", "violation"),
    [
        ({0: 0, 1: 1}, ""),
        ({0: 0}, "1 lost"),
        ({0: 0, 1: 1, 2: 1}, "1 duplicated"),
        ({0: 1, 1: 0}, "2 lost"),
        ({0: 0, 1: 1, 2: 0}, "out of order"),
    ],
)
def test_lost_duplicated_and_reordered_records_are_reported(found, violation):
    violations = "; ".join(check_acknowledged(Acknowledgements(2, {0: 0, 1: 1}), [found, {}, {}], once=True))
    assert violation in violations
    assert bool(violation) == bool(violations)


def test_duplicates_of_a_plain_producer_are_allowed():
    """A plain producer may duplicate records; lost records are still violations."""
    producer = Acknowledgements(1, {0: 0})
    assert not list(check_acknowledged(producer, [{0: 0, 1: 0}, {}, {}], once=False))
    assert list(check_acknowledged(producer, [{1: 0}, {}, {}], once=False))


@pytest.mark.parametrize(
    ("outcome", "received", "is_allowed"),
    [
        (COMMITTED, [[1], [1], [1]], True),
        (COMMITTED, [[1], [1], []], False),
        (COMMITTED, [[1, 1], [1], [1]], False),
        (ABORTED, [[], [], []], True),
        (ABORTED, [[], [1], []], False),
        (UNKNOWN, [[1], [1], [1]], True),
        (UNKNOWN, [[], [], []], True),
        (UNKNOWN, [[1], [], []], False),
    ],
)
def test_partially_visible_transactions_are_reported(outcome, received, is_allowed):
    """A committed transaction must be in each partition once, an aborted one in none, an unknown one in all or none."""
    assert (not list(check_transactions(TransactionOutcomes(n1=outcome), received))) == is_allowed


def test_a_dirty_read_is_reported():
    """A record that was read during the faults, but is not at that offset in the final log, is a violation."""
    assert not list(check_prefix([[(0, 0), (1, 1)]], [{0: 0, 1: 1, 2: 2}]))
    assert list(check_prefix([[(0, 0), (1, 9)]], [{0: 0, 1: 1}]))
    assert list(check_prefix([[(1, 1), (0, 0)]], [{0: 0, 1: 1}]))


def test_an_inexact_copy_is_reported():
    """Lost, duplicated and reordered records of the pipeline are violations."""
    assert not list(check_copy([[b"0/0", b"0/1"]], [[b"seen 0/0", b"seen 0/1"]]))
    for copied in ([b"seen 0/0"], [b"seen 0/0", b"seen 0/1", b"seen 0/1"], [b"seen 0/1", b"seen 0/0"]):
        assert list(check_copy([[b"0/0", b"0/1"]], [copied]))


def test_a_group_that_rewinds_or_skips_is_reported():
    """A first record below the committed offset, or a gap, is a violation; rereading from the commit is not."""
    positions = GroupPositions()
    for offset in range(3):
        positions.was_read(0, offset, is_first=offset == 0)
    positions.was_committed(0, 2)
    positions.was_read(0, 2, is_first=True)
    assert not positions.jumps
    positions.was_read(0, 1, is_first=True)
    positions.was_read(0, 5, is_first=False)
    assert len(positions.jumps) == 2


def test_a_power_cut_loses_only_unsynced_bytes(tmp_path):
    """Bytes below the recovery point are kept; at least one of several power cuts loses some of the bytes above it."""
    log = tmp_path / "t-0"
    log.mkdir()
    first = build_batch([Record(0, 0, None, b"synced")])
    second = build_batch([Record(1, 0, None, b"written")], base_offset=1)
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 1\n")
    sizes = set()
    for seed in range(20):
        (log / f"{0:020}.log").write_bytes(first + second)
        lost = cut_tails(tmp_path, random.Random(seed))
        size = (log / f"{0:020}.log").stat().st_size
        assert size == len(first) + len(second) - lost
        sizes.add(size)
    assert min(sizes) >= len(first)
    assert len(sizes) > 2


def test_seeds_are_a_number_or_a_range():
    assert parse_seeds("7") == [7]
    assert parse_seeds("2-4") == [2, 3, 4]


@pytest.mark.soak
@pytest.mark.needs_program("ip", "nft", "tc")
def test_schedules_keep_all_invariants(tmp_path):
    """Each kind of fault runs on a real cluster under load; the variable SCHEDULES selects other seeds."""
    if not are_permitted():
        pytest.skip("network namespaces are not permitted here")
    broken = []
    for result in run_schedules(parse_seeds(SOAK_SEEDS), tmp_path):
        print(json.dumps(asdict(result)))
        broken += [result] if result.violations else []
    assert not broken
