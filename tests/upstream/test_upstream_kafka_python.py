"""kafka-python's own integration tests against a broker."""

from __future__ import annotations

from pathlib import Path

import pytest
from kafka_python import KAFKA_PYTHON, KAFKA_VERSION
from run_suite import run_suite

from kreplica.testing.process_cluster import ProcessCluster


@pytest.mark.timeout(240)
def test_kafka_pythons_own_suite_passes(broker_zero: ProcessCluster, tmp_path: Path) -> None:
    """What kafka-python expects of Kafka, a broker does; what it does not is listed, and nothing else."""
    environment = {
        "KAFKA_URI": f"kafka://{broker_zero.brokers[0].address}",
        "KAFKA_VERSION": KAFKA_VERSION,
        # The suite only looks whether the folder of its brokers is there.
        "KAFKA_ROOT": str(tmp_path),
    }
    outcomes = run_suite(KAFKA_PYTHON, tmp_path, environment)
    passed = sum(outcome == "passed" for outcome in outcomes.values())
    print(f"{KAFKA_PYTHON.project} {KAFKA_PYTHON.version}: {len(outcomes)} tests ran, {passed} passed")
    untrue = list(KAFKA_PYTHON.untrue(outcomes))
    assert not untrue, "\n".join(untrue)
