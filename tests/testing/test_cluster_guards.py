"""Mutation tests: each guard of replication is disabled, and a scenario that needs it must fail.

``python -m tests.support.mutations`` also counts how many storms detect it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from kreplica.testing.storms.cleanup import deferred_collection
from kreplica.testing.storms.sweep import disable_logging
from tests.support.mutations.guard import Guard, without
from tests.support.mutations.guards import GUARDS

SEED = 1
SCENARIOS = {guard.scenario.__name__: guard.scenario for guard in GUARDS}


@pytest.fixture(scope="module", autouse=True)
def _quiet() -> None:
    """Takes early log events, which Twisted would keep with all objects that they name."""
    disable_logging()


@pytest.fixture(autouse=True)
def _deferred_collection() -> Iterator[None]:
    with deferred_collection():
        yield


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_passes_with_all_guards(name: str) -> None:
    """With all guards in place nothing is lost, despite late and repeated messages."""
    SCENARIOS[name](SEED)


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_a_scenario_fails_without_its_guard(guard: Guard) -> None:
    """The rule breaks that the guard enforces."""
    with without(guard), pytest.raises((AssertionError, TimeoutError)) as broken:
        guard.scenario(SEED)
    assert re.search(guard.breaks, str(broken.value)), f"a different rule broke: {broken.value}"
