"""The mutation score of the tests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from io import StringIO

import pytest
from click.testing import CliRunner
from rich.console import Console

from kreplica.replication.leader import isr_membership
from kreplica.testing.cluster.invariants import InvariantViolation
from kreplica.testing.storms.cleanup import deferred_collection
from kreplica.testing.storms.cluster_run import ProgramFailed
from kreplica.testing.storms.log_watch import UnexpectedLog
from kreplica.testing.storms.options import StormOptions
from kreplica.testing.storms.outcome import Outcome, unfinished_outcome
from tests.support.mutations import command as command_line
from tests.support.mutations import scoring
from tests.support.mutations.command import command
from tests.support.mutations.guard import Place, without
from tests.support.mutations.guards import GUARDS
from tests.support.mutations.scoring import Score, score, score_guard

CONDITIONAL = next(number for number, guard in enumerate(GUARDS) if guard.name == "ISR write is conditional")


@pytest.fixture(autouse=True)
def _deferred_collection() -> Iterator[None]:
    with deferred_collection():
        yield


def test_a_guard_is_restored_afterwards() -> None:
    """A guard is restored even if its scenario failed while it was disabled."""
    before = isr_membership.expected_version

    def fail() -> None:
        with without(GUARDS[CONDITIONAL]):
            raise ValueError(isr_membership.expected_version(7))

    with pytest.raises(ValueError, match="-1"):
        fail()
    assert isr_membership.expected_version is before


def test_a_caught_mutant() -> None:
    """The scenario of a mutant runs in a separate process, and its error is reported."""
    (found,) = score(numbers=[CONDITIONAL])
    assert found.is_caught
    assert (found.scenario, found.storms) == ("deposed_leader_writes_isr", 0)
    assert "the leader epoch decreased" in found.scenario_said


def test_a_mutant_that_is_not_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mutant that changes nothing is caught neither by its scenario nor by a storm."""
    same = GUARDS[CONDITIONAL]._replace(
        places=(Place("kreplica.replication.leader.isr_membership:expected_version", lambda epoch: epoch),)
    )
    monkeypatch.setattr(scoring, "GUARDS", (same,))
    found = score_guard(0, [1], 1, {"seconds": "2"})
    assert not found.is_caught
    assert (found.storms, found.caught, found.scenario_said) == (1, (), "")


def test_the_table_and_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mutant that is not caught is named in the output and makes the command fail."""
    caught = Score(0, "lease", "leader_alone_in_sync", "it broke", True, 4, (2, 3), (), "too")
    missed = Score(1, "union", "is_torn", "a typing error", False, 4, (), (4,), "it took long")
    monkeypatch.setattr(command_line, "score", lambda *_, **__: iter([missed, caught]))
    result = CliRunner().invoke(command, ["--seeds", "1-4"])
    assert result.exit_code == 1
    assert "NOT CAUGHT: union" in result.output
    console = Console(width=150, record=True, file=StringIO())
    console.print(command_line.table([missed, caught]))
    lines = [line for line in console.export_text().splitlines() if re.search("leader_alone|is_torn", line)]
    assert ["lease" in lines[0], "(is_torn)" in lines[1]] == [True, True]
    assert [re.findall(r"\b\d+\b|-", line)[:4] for line in lines] == [["4", "2", "0", "2"], ["4", "0", "1", "-"]]
    assert ["it broke" in lines[0], "it took long" in lines[1]] == [True, True]


@pytest.mark.parametrize("error", [TypeError("the leader epoch decreased"), TimeoutError(), AssertionError("other")])
def test_an_unexpected_error_does_not_catch_a_mutant(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """A mutant is not caught if its scenario fails with another error or a timeout."""

    def scenario(seed: int) -> None:
        raise error

    mutant = GUARDS[CONDITIONAL]._replace(places=(), scenario=scenario)
    monkeypatch.setattr(scoring, "GUARDS", (mutant,))
    assert not score_guard(0, [], 1, {}).is_caught


def test_causes_of_failed_storms_are_distinguished(monkeypatch: pytest.MonkeyPatch) -> None:
    """A violated invariant catches the mutant, a timeout is counted separately, and other errors are ignored."""
    errors = [InvariantViolation("first"), TimeoutError("stuck"), TypeError(), UnexpectedLog(), ProgramFailed()]
    storms = dict(enumerate(errors, 1))

    def run_storm(seed: int, options: StormOptions) -> Outcome:
        return unfinished_outcome(seed, options, storms[seed])

    monkeypatch.setattr(scoring, "run_storm", run_storm)
    monkeypatch.setattr(scoring, "GUARDS", (GUARDS[CONDITIONAL]._replace(places=(), scenario=lambda _: None),))
    found = score_guard(0, list(storms), 3, {"seconds": "2"})
    assert (found.storms, found.caught, found.stuck) == (5, (1,), (2,))
    assert found.is_caught
    assert found.what_broke == "InvariantViolation: first"
    found = score_guard(0, [2, 3], 3, {"seconds": "2"})
    assert not found.is_caught
    assert found.what_broke == "TimeoutError: stuck"


@pytest.mark.parametrize("arguments", [["--seeds", "1"], ["--seeds", "4-1"], ["--option", "brokers"]])
def test_bad_arguments_are_refused(arguments: list[str]) -> None:
    assert CliRunner().invoke(command, arguments).exit_code == 2


OFTEN = (
    "a fetch response for a different offset is discarded",
    "followers truncate by leader epoch, not by high watermark",
    "a follower joins the ISR only if it has reached the high watermark",
    "the high watermark covers the old and the new ISR during a change",
    "the high watermark does not advance with too few in-sync replicas",
)
"""Guards whose absence a storm detects even without a scenario, with the number of seeds that this takes at most."""

SEEDS_MAX = 50


@pytest.mark.soak
@pytest.mark.parametrize("name", OFTEN)
def test_storms_detect_a_missing_guard(name: str) -> None:
    """A missing guard is detected by storms, not only by its scenario."""
    number = next(number for number, guard in enumerate(GUARDS) if guard.name == name)
    (found,) = score(range(1, SEEDS_MAX + 1), catches_max=1, numbers=[number])
    assert found.caught, f"{found.storms} storms did not detect it"
