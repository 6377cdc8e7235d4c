"""The controller resource: the elected controller and the numbers of ZooKeeper watches."""

from __future__ import annotations

import pytest
from direct_calls import DirectCluster

from kreplica.testing.cluster.cluster import SimulatedCluster


@pytest.fixture
def cluster():
    made = SimulatedCluster(seed=3, brokers=3)
    made.start()
    assert made.controller() == 1
    return made


@pytest.fixture
def apis(cluster):
    return DirectCluster(cluster)


def test_the_controller_and_its_watches(cluster, apis):
    """Any broker shows the controller and all numbers of watches; a broker that is down is listed without numbers."""
    found = apis[2].document("GET", "/v1/controller")
    assert (found["broker_id"], found["epoch"], found["problems"]) == (1, 1, [])
    assert found["elected_at_ms"] > 0
    assert [row["broker_id"] for row in found["brokers"]] == [1, 2, 3]
    controller, *others = found["brokers"]
    assert controller["is_controller"]
    assert controller["zookeeper_watches"] > controller["controller_watches"] > 3
    assert [(row["is_controller"], row["controller_watches"]) for row in others] == [(False, 0)] * 2
    # The server counts the same watches as the clients.
    held = sum(row["zookeeper_watches"] for row in found["brokers"])
    serving = cluster.coordinator.program.serving
    assert held == len(serving.watches.data) + len(serving.watches.children)

    client = cluster.brokers[2].program.client
    before = controller["controller_watches"]
    cluster.run_until(cluster.client().create_topic("orders", assignment=[(1, 2)]))
    cluster.run(1)
    (controller,) = apis[1].document("GET", "/v1/controller", forwarded=True)["brokers"]
    assert controller["controller_watches"] == before + 1
    cluster.brokers[3].kill()
    found = apis[2].document("GET", "/v1/controller")
    assert found["brokers"][2] == {
        "broker_id": 3,
        "is_controller": None,
        "zookeeper_watches": None,
        "controller_watches": None,
    }
    assert len(found["problems"]) == 1
    assert client.watches_count == found["brokers"][1]["zookeeper_watches"]
