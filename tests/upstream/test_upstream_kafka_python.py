"""kafka-python's own integration tests with a broker."""

from __future__ import annotations

from pathlib import Path

import pytest
from kafka_python import KAFKA_PYTHON, OLDER_KAFKA_PYTHON
from run_suite import run_suite
from suites import Suite

from tests.support.process_cluster import ProcessCluster

SUITES = [
    pytest.param(KAFKA_PYTHON, id=KAFKA_PYTHON.version),
    pytest.param(OLDER_KAFKA_PYTHON, id=OLDER_KAFKA_PYTHON.version, marks=pytest.mark.soak),
]


@pytest.mark.timeout(240)
@pytest.mark.parametrize("suite", SUITES)
def test_kafka_pythons_own_suite_passes(broker_zero: ProcessCluster, tmp_path: Path, suite: Suite) -> None:
    """All tests pass except the listed ones."""
    environment = {
        "KAFKA_URI": f"kafka://{broker_zero.brokers[0].address}",
        # The version of Kafka that the broker's protocol corresponds to.
        "KAFKA_VERSION": "3.9",
        # The suite only checks that the directory of its brokers exists.
        "KAFKA_ROOT": str(tmp_path),
    }
    outcomes = run_suite(suite, tmp_path / "suite", environment)
    passed = sum(outcome == "passed" for outcome in outcomes.values())
    print(f"{suite.project} {suite.version}: {len(outcomes)} tests ran, {passed} passed")
    differences = list(suite.differences(outcomes))
    assert not differences, "\n".join([*differences, broker_zero.output_ends()])
