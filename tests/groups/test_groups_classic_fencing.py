"""Disabling any fencing rule of classic groups changes a transcript."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import test_groups_classic_deaths as deaths
import test_groups_classic_rebalance as rebalance
import test_groups_classic_static as static

from kreplica.groups.classic import fencing

GUARDS: dict[str, Callable[[], None]] = {
    "is_current_generation": deaths.test_coordinator_dies_between_two_generations,
    "holds_instance": static.test_static_follower_restarts,
    "is_same_rebalance": rebalance.test_late_commit_of_an_assignment,
}


def test_every_fencing_rule_has_a_transcript() -> None:
    functions = [name for name, found in vars(fencing).items() if getattr(found, "__module__", "") == fencing.__name__]
    assert sorted(functions) == sorted(GUARDS)


@pytest.mark.parametrize("guard", GUARDS)
def test_transcript_differs_without_the_rule(guard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    GUARDS[guard]()
    monkeypatch.setattr(fencing, guard, lambda *_: True)
    with pytest.raises((AssertionError, RuntimeError)):
        GUARDS[guard]()
