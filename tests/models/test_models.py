"""The TLA+ models hold, and each broken rule is found; part of the soak, because Maven is needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import model_checker

pytestmark = pytest.mark.soak

CONFIGURATIONS = sorted(path.stem for path in Path(__file__).parent.glob("*.cfg") if path.stem != "Trace")

BROKEN_RULES = (
    # configuration, changed constants, a property that must be violated
    ("V3Epochs", {"TruncateToHighWatermark": "TRUE"}, "StrongIsr"),
    ("V3Epochs", {"UnconditionalWrites": "TRUE"}, "EpochsNeverFall"),
    ("V3Epochs", {"CountCommittedIsrOnly": "TRUE"}, "StrongIsr"),
    ("V3Epochs", {"IgnoreLeaderEpoch": "TRUE"}, "StrongIsr"),
    ("V3", {"IgnoreEpochStart": "TRUE", "MaxVersion": "3"}, "StrongIsr"),
    ("V3Restarts", {"IgnoreBrokerEpoch": "TRUE", "MinInsync": "1"}, "StrongIsr"),
    ("V3Restarts", {"KeepUncleanReplicas": "TRUE"}, "StrongIsr"),
    ("Terms", {"SeparateElection": "TRUE"}, "OneControllerPerEpoch"),
    ("Terms", {"UncheckedWrites": "TRUE"}, "OnlyTheLatestWrites"),
    ("Terms", {"ReadBeforeElection": "TRUE"}, "OnlyTheLatestWrites"),
    ("Terms", {"ObeyEveryController": "TRUE"}, "ObeyedNeverFalls"),
    ("Terms", {"ObeyInAnyOrder": "TRUE"}, "ObeyedNeverFalls"),
    ("Removal", {"RemoveAnyNumber": "TRUE", "MaxNumber": "2"}, "Contiguous"),
    ("Removal", {"SkipReadOnly": "TRUE"}, "RemovedOnlyAfterReadOnly"),
    ("Removal", {"ReuseBeforeDeleted": "TRUE"}, "NoOldRecords"),
    ("Removal", {"DeleteAnyEpoch": "TRUE"}, "NothingElseIsDeleted"),
    ("V2", {"SeparateEpoch": "TRUE"}, "OneLeaderPerEpoch"),
    ("V2", {"ObeyEveryEpoch": "TRUE"}, "RoleNeverFalls"),
)

AS_DESIGNED = ("TruncateByEpoch", "ConditionalWrites", "FencedWrites", "KeepHighWatermark")

LOSSES = (
    # configuration, omitted repairs, violated property, number of states in the shortest counterexample
    ("V1", AS_DESIGNED, "NoCommittedRecordIsLost", 8),
    ("V1", ("TruncateByEpoch",), "NoCommittedRecordIsLost", 14),
    ("V1", ("FencedWrites",), "NoCommittedRecordIsLost", 12),
    ("V1", ("KeepHighWatermark",), "EqualBelowHighWatermark", 15),
    ("V2", (*AS_DESIGNED, "RejectOldRequests"), "NoCommittedRecordIsLost", 10),
    ("V2", ("TruncateByEpoch",), "NoCommittedRecordIsLost", 19),
    ("V2", ("FencedWrites",), "NoCommittedRecordIsLost", 15),
    ("V2", ("KeepHighWatermark",), "EqualBelowHighWatermark", 18),
    ("V2", ("RejectOldRequests",), "NoCommittedRecordIsLost", 16),
)
"""Losses in the designs of the first two versions, also listed in ``docs/explanation/models.md``."""


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
    """TLC finds a violation if a rule of the design is broken, which shows that the properties are effective."""
    result = model_checker.check(configuration, changes)
    assert result.violated == violated, result.output[-5000:]
    assert len(result.trace) > 1


@pytest.mark.parametrize(("configuration", "left_out", "violated", "states"), LOSSES)
def test_loss_of_an_earlier_design_is_found(configuration, left_out, violated, states):
    """TLC finds the shortest run that loses records in an earlier design, as designed or without one of its repairs."""
    result = model_checker.check(configuration, dict.fromkeys(left_out, "FALSE"), workers=1)
    assert (result.violated, len(result.trace)) == (violated, states), result.output[-5000:]
