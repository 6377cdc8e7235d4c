"""Mutation tests: with any one replication guard disabled, the scenario that needs it must fail.

``python -m tests.support.mutations`` also counts the storms that detect the missing guard.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import kreplica
from kreplica.testing.storms.cleanup import deferred_collection
from kreplica.testing.storms.sweep import disable_logging
from tests.support.mutations.ensemble_guards import ENSEMBLE_GUARDS
from tests.support.mutations.guard import Guard, without
from tests.support.mutations.guards import GUARDS

SEED = 1
SOURCE = Path(kreplica.__file__).parent
SCENARIOS = {guard.scenario.__name__: guard.scenario for guard in GUARDS}


@pytest.fixture(scope="module", autouse=True)
def _quiet() -> None:
    """Discard early log events: Twisted would keep them, with every object that they reference."""
    disable_logging()


@pytest.fixture(autouse=True)
def _deferred_collection() -> Iterator[None]:
    with deferred_collection():
        yield


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_passes_with_all_guards(name: str) -> None:
    """With all guards in place, nothing is lost despite late and repeated messages."""
    SCENARIOS[name](SEED)


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_a_scenario_fails_without_its_guard(guard: Guard) -> None:
    """Without its guard, a scenario fails with the violation that the guard prevents."""
    with without(guard), pytest.raises((AssertionError, TimeoutError)) as broken:
        guard.scenario(SEED)
    assert re.search(guard.breaks, str(broken.value)), f"a different rule broke: {broken.value}"


def test_every_sync_has_a_guard() -> None:
    """For each function that syncs with the ZooKeeper server there is a guard whose mutant disables the sync."""
    waiting = set()
    for path in SOURCE.rglob("*.py"):
        module = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)
        if not module.startswith(("kreplica.testing.", "kreplica.zookeeper.", "kreplica.cli.")):
            waiting |= {f"{module}:{name}" for name in waiting_functions(ast.parse(path.read_text()))}
    guarded = {place.where for guard in ENSEMBLE_GUARDS for place in guard.places}
    assert len(waiting) >= 5
    assert waiting <= guarded, "add a guard to tests/support/mutations/ensemble_guards.py"


def waiting_functions(tree: ast.Module) -> Iterator[str]:
    """Yield the names of the functions and methods that call ``sync`` of a ZooKeeper client."""
    owners = [("", tree), *((f"{each.name}.", each) for each in tree.body if isinstance(each, ast.ClassDef))]
    for prefix, owner in owners:
        for function in owner.body:
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                calls = [ast.unparse(each.func) for each in ast.walk(function) if isinstance(each, ast.Call)]
                if any(call.endswith("client.sync") for call in calls):
                    yield f"{prefix}{function.name}"
