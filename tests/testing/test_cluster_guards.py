"""The tests are tested: every guard of replication is taken away, and the order of events in which it counts shows it.

``python -m tests.support.mutations`` also counts how many storms notice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from kreplica.testing.storms.cleanup import deferred_collection
from kreplica.testing.storms.sweep import keep_quiet
from tests.support.mutations.guard import Guard, without
from tests.support.mutations.guards import GUARDS

SEED = 1
SCENARIOS = {guard.scenario.__name__: guard.scenario for guard in GUARDS}


@pytest.fixture(scope="module", autouse=True)
def _quiet() -> None:
    """What is logged before anybody has asked for it is kept, and with it all programs that something went wrong in."""
    keep_quiet()


@pytest.fixture(autouse=True)
def _deferred_collection() -> Iterator[None]:
    with deferred_collection():
        yield


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_ends_well(name: str) -> None:
    """With all guards in place nothing is lost, whatever comes late or twice."""
    SCENARIOS[name](SEED)


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_a_guard_that_is_taken_away_is_missed(guard: Guard) -> None:
    """The very rule breaks that it keeps."""
    with without(guard), pytest.raises((AssertionError, TimeoutError)) as broken:
        guard.scenario(SEED)
    assert re.search(guard.breaks, str(broken.value)), f"something else broke: {broken.value}"
