"""Attacks on a real cluster: honest clients are served, no session is lost, and memory is released."""

import pytest
from attackers import ATTACKS
from harness import AttackedCluster

PRODUCE_P99_MS_MAX = 20.0
HEARTBEAT_P99_MS_MAX = 50.0
SOAK_S = 600
SHORT_S = 3

BUSY_MACHINE_MS_MAX = 2000.0
"""Other tests run at the same time, so only a stall of seconds is a failure."""

SHORT = ("large_metadata", "compressed_garbage", "forged_controller_commands", "random_bytes", "extreme_requests")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with AttackedCluster(tmp_path_factory.mktemp("attacked")) as cluster:
        yield cluster


@pytest.mark.parametrize("name", SHORT)
def test_other_clients_during_a_short_attack(cluster, name):
    """The cluster keeps working, and no response to an honest client is delayed by seconds."""
    outcome = cluster.run(name, SHORT_S, rest_s=1)
    assert not outcome.violations(), outcome.as_json()
    assert outcome.requests
    assert not outcome.errors
    assert outcome.produce_ms["p99"] < BUSY_MACHINE_MS_MAX, outcome.as_json()
    assert outcome.heartbeat_ms["p99"] < BUSY_MACHINE_MS_MAX, outcome.as_json()


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", ATTACKS)
def test_other_clients_during_a_long_attack(tmp_path, name):
    """During ten minutes, p99 is below 20 ms for produce and 50 ms for heartbeats; memory is released within 10 s."""
    with AttackedCluster(tmp_path) as cluster:
        outcome = cluster.run(name, SOAK_S)
    print(outcome.as_json())
    assert not outcome.violations(), outcome.as_json()
    assert not outcome.errors
    assert outcome.produce_ms["p99"] < PRODUCE_P99_MS_MAX, outcome.as_json()
    assert outcome.heartbeat_ms["p99"] < HEARTBEAT_P99_MS_MAX, outcome.as_json()
