"""The controller resource: the elected controller, and the number of ZooKeeper watches per broker."""

from __future__ import annotations

import pytest
from direct_calls import DirectCluster

from kreplica.admin.http.problems import Problem
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
    """Any broker returns the controller and all watch counts; a broker that is down is listed without counts."""
    found = apis[2].document("GET", "/v1/controller")
    assert (found["broker_id"], found["epoch"], found["problems"]) == (1, 1, [])
    assert found["elected_at_ms"] > 0
    assert [row["broker_id"] for row in found["brokers"]] == [1, 2, 3]
    controller, *others = found["brokers"]
    assert controller["is_controller"]
    assert controller["zookeeper_watches"] > controller["controller_watches"] > 3
    assert [(row["is_controller"], row["controller_watches"]) for row in others] == [(False, 0)] * 2
    # The counts of the ZooKeeper server match those of its clients.
    watch_count = sum(row["zookeeper_watches"] for row in found["brokers"])
    serving = cluster.zookeeper.program.serving
    assert watch_count == len(serving.watches.data) + len(serving.watches.children)

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


def resign(api, **more):
    return api.document("POST", "/v1/controller/resign", **more)


def test_resignation(cluster, apis):
    """Any broker can request a resignation: another broker is elected, and later the former one can be again."""
    found = resign(apis[3], dry_run=True)
    assert (found["broker_id"], found["epoch"], cluster.controller()) == (1, 1, 1)
    (row,) = found["znodes"]
    assert (row["path"], row["version"], row["data"]["brokerid"], row["data"]["kreplica_resign"]) == (
        "/controller",
        0,
        1,
        True,
    )
    found = resign(apis[3])
    assert found["previous"] == {"broker_id": 1, "epoch": 1}
    assert (found["epoch"], found["broker_id"]) == (2, cluster.controller())
    assert found["broker_id"] != 1
    entries = [e.text for e in cluster.brokers[1].program.controller.history.audit_events.newest()]
    assert any("its resignation was requested" in text for text in entries)
    # After a moment, the former controller is a candidate again.
    cluster.run(2)
    for other in (2, 3):
        cluster.brokers[other].kill()
    cluster.run(60)
    assert cluster.controller() == 1


def test_the_only_broker_is_elected_again():
    """Without another broker, a controller that resigns is elected again about a second later."""
    cluster = SimulatedCluster(seed=3, brokers=1)
    cluster.start()
    cluster.run(1)
    start_s = cluster.simulation.now_s
    found = resign(DirectCluster(cluster)[1])
    assert (found["broker_id"], found["epoch"], found["previous"]) == (1, 2, {"broker_id": 1, "epoch": 1})
    assert 1.0 <= cluster.simulation.now_s - start_s < 1.5


def test_refused_resignations(cluster, apis):
    """A resignation is refused if one is pending, if there is no controller, or if the controller does not react."""
    cluster.brokers[1].host.pause()
    with pytest.raises(Problem, match="broker 1 was asked to resign") as late:
        resign(apis[2])
    assert late.value.status == 504
    with pytest.raises(Problem, match="already asked") as again:
        resign(apis[2])
    assert again.value.status == 409
