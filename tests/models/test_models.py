"""The models in TLA+ hold, and each broken rule is found; needs Maven, so it is part of the soak."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import model_checker

pytestmark = pytest.mark.soak

CONFIGURATIONS = sorted(path.stem for path in Path(__file__).parent.glob("*.cfg"))

BROKEN_RULES = (
    # configuration, changed constants, a property that must be violated
    ("V3Epochs", {"TruncateToHighWatermark": "TRUE"}, "StrongIsr"),
    ("V3Epochs", {"UnconditionalWrites": "TRUE"}, "EpochsNeverFall"),
    ("V3Epochs", {"CountCommittedIsrOnly": "TRUE"}, "StrongIsr"),
    ("V3Epochs", {"IgnoreLeaderEpoch": "TRUE"}, "StrongIsr"),
    ("V3", {"IgnoreEpochStart": "TRUE", "MaxVersion": "3"}, "StrongIsr"),
    ("V3Restarts", {"IgnoreBrokerEpoch": "TRUE", "MinInsync": "1"}, "StrongIsr"),
    ("V3Restarts", {"KeepUncleanReplicas": "TRUE"}, "StrongIsr"),
)


@pytest.fixture(scope="module", autouse=True)
def _tlc():
    try:
        model_checker.jar()
    except model_checker.NoModelChecker as missing:
        pytest.skip(f"the models are not checked: {missing}")


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_model_holds(configuration):
    """TLC finds no violation in any reachable state."""
    result = model_checker.check(configuration)
    assert result.passed, result.output[-5000:]
    assert result.distinct > 100


@pytest.mark.parametrize(("configuration", "changes", "violated"), BROKEN_RULES)
def test_broken_rule_is_found(configuration, changes, violated):
    """TLC finds a violation if a rule of the design is broken, so the properties check something."""
    result = model_checker.check(configuration, changes)
    assert result.violated == violated, result.output[-5000:]
    assert len(result.trace) > 1
