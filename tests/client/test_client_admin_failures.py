"""``Admin`` with lost responses, dead brokers, and missing topics."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest
from admin_scene import AdminScene, error_codes
from twisted.internet.defer import CancelledError, Deferred

from kreplica.client import Admin, Cluster, TopicPartition
from kreplica.client.admin import NewTopic, Outcomes
from kreplica.client.client_runtime import runtime_of
from kreplica.client_core.admin import request_routing
from kreplica.client_core.errors import BrokerRefused, ClientClosed, GaveUp
from kreplica.client_core.offsets import LATEST
from kreplica.errors import ErrorCode

T = TypeVar("T")


def run_with_lost_response(scene: AdminScene, operation: Coroutine[Any, Any, T], is_done: Callable[[], bool]) -> T:
    """Run an operation whose first response is lost after the cluster has executed the request."""
    controller = f"broker-{scene.brokers.controller()}"
    scene.run(scene.cluster.refresh())
    pending = Deferred.fromCoroutine(operation)
    while not is_done():
        assert not pending.called
        scene.brokers.run(0.0005)
    assert not pending.called
    scene.brokers.simulation.network.drop_connections("application", controller)
    return scene.run(pending, 60)


def test_executed_operation_with_a_lost_response(scene: AdminScene) -> None:
    """After a lost response, the retry reports success; creating a topic that existed before still fails."""
    admin = scene.admin

    def partitions() -> int:
        return sum(scene.brokers.leader_of("lost", each) >= 0 for each in range(4))

    created = run_with_lost_response(
        scene, admin.create_topics([NewTopic("lost", 2, 3)], timeout_s=30), lambda: partitions() == 2
    )
    assert created["lost"].name == "lost"
    repeated = scene.run(admin.create_topics([NewTopic("lost", 2, 3), NewTopic("new", 1, 1)]), 60)
    assert error_codes(repeated.failed) == {"lost": ErrorCode.TOPIC_ALREADY_EXISTS}
    expanded = run_with_lost_response(scene, admin.create_partitions({"lost": 4}), lambda: partitions() == 4)
    expanded.raise_first()
    deleted = run_with_lost_response(scene, admin.delete_topics(["lost", "new"]), lambda: partitions() == 0)
    deleted.raise_first()
    gone = scene.run(admin.delete_topics(["lost"]), 60)
    assert error_codes(gone.failed) == {"lost": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_controller_dies(scene: AdminScene) -> None:
    """After the controller dies, requests go to its successor, and groups are listed from live brokers only."""
    controller = scene.brokers.controller()
    assert controller is not None
    scene.run(scene.admin.describe_cluster())
    scene.brokers.brokers[controller].kill()
    created = scene.run(scene.admin.create_topic("survivor", 3, 2), 60)
    assert created.partitions == 3
    assert scene.run(scene.admin.list_groups(), 60) == []
    assert controller not in scene.run(scene.admin.describe_cluster(), 60).brokers
    scene.run(scene.brokers.brokers[controller].start())


def test_lookup_of_a_missing_topic_is_retried(scene: AdminScene) -> None:
    """Offsets are returned if the topic is created before the timeout; otherwise it is reported as unknown."""
    later, never = TopicPartition("later", 0), TopicPartition("never", 0)
    pending = Deferred.fromCoroutine(scene.admin.list_offsets({later: LATEST, never: LATEST}))
    scene.brokers.run(2.0)
    assert not pending.called
    scene.run(scene.admin.create_topic("later", 1, 1))
    offsets = scene.run(pending, 60)
    assert offsets[later].offset == 0
    assert error_codes(offsets.failed) == {never: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_no_broker_responds(scene: AdminScene) -> None:
    """Each item fails with the last error after the timeout; cancelling or closing ends a request earlier."""
    host = scene.brokers.host("lonely")
    cluster = Cluster("nowhere:1", runtime=runtime_of(host.runtime))
    admin = Admin(cluster)
    timed_out = scene.run(admin.describe_groups(["a", "b"], timeout_s=2.0), 60)
    assert [type(error) for error in timed_out.failed.values()] == [GaveUp, GaveUp]
    with pytest.raises(GaveUp, match="nowhere:1"):
        timed_out.raise_first()
    with pytest.raises(GaveUp):
        scene.run(admin.list_transactions(timeout_s=1.0), 60)
    cancelled, closed = (Deferred.fromCoroutine(admin.delete_topics(["a"])) for _ in range(2))
    scene.brokers.run(1.0)
    cancelled.cancel()
    with pytest.raises(CancelledError):
        scene.run(cancelled)
    scene.run(cluster.close())
    assert isinstance(scene.run(closed).failed["a"], ClientClosed)
    scene.brokers.run(0.001)
    assert host.reactor.getDelayedCalls() == []


def test_more_requests_than_a_connection_allows(scene: AdminScene, monkeypatch: pytest.MonkeyPatch) -> None:
    """If each item needs a request, only as many requests as the connection allows are sent at a time."""
    monkeypatch.setattr(request_routing, "CONCURRENT_REQUESTS_MAX", 2)
    for each in scene.cluster._connections:
        monkeypatch.setattr(each, "_outstanding_max", 3)
    names = [f"x{number}" for number in range(7)]
    fenced = scene.run(scene.admin.fence_producers(names), 60).raise_first()
    assert list(fenced) == names
    assert len({each.producer_id for each in fenced.values()}) == 7


def test_outcomes() -> None:
    """``Outcomes`` returns results or errors per item, or raises the first error."""
    rejected = BrokerRefused(ErrorCode.INVALID_REQUEST, "b")
    outcomes: Outcomes[str, int] = Outcomes({"a": 1, "b": rejected, "c": 3})
    assert (list(outcomes), len(outcomes), "a" in outcomes, "d" in outcomes) == (["a", "b", "c"], 3, True, False)
    assert outcomes["a"] == 1
    for access in (lambda: outcomes["b"], outcomes.raise_first):
        with pytest.raises(BrokerRefused):
            access()
    with pytest.raises(KeyError):
        outcomes["d"]
    assert (dict(outcomes.succeeded), dict(outcomes.failed)) == ({"a": 1, "c": 3}, {"b": rejected})
    assert Outcomes[str, int]({"a": 1}).raise_first() == {"a": 1}
