"""Authentication, ACLs and quotas in the simulator."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from twisted.internet.defer import Deferred

from kreplica.client.errors import ConnectionLost
from kreplica.cluster.quotas import PRODUCER_BYTE_RATE, QuotaEntity
from kreplica.security.acls.acl import Acl, AclOperation, Permission, ResourcePattern, ResourceType
from kreplica.testing.clients.idempotent_producer import Load
from kreplica.testing.clients.wire_client import WireClient
from kreplica.testing.cluster.cluster import SimulatedCluster
from kreplica.testing.cluster.secured_listeners import SECURED_PORT, administrator_endpoint
from kreplica.testing.storms.cleanup import deferred_collection
from kreplica.testing.storms.cluster_run import TOPIC
from kreplica.testing.storms.replicated_run import ReplicatedRun
from kreplica.testing.storms.security.administrator import Administrator
from kreplica.wire import messages


@pytest.fixture(autouse=True)
def _deferred_collection() -> Iterator[None]:
    with deferred_collection():
        yield


def administrator(cluster: SimulatedCluster, broker: int = 1) -> WireClient:
    host = cluster.host("administrator")
    endpoint = administrator_endpoint(host.runtime.random)
    return WireClient(host.reactor, f"broker-{broker}", SECURED_PORT, client_id=host.name, endpoint=endpoint)


def creation(acl: Acl, pattern: ResourcePattern) -> dict[str, object]:
    row = {"resource_type": pattern.type, "resource_name": pattern.name, "resource_pattern_type": pattern.pattern}
    return {**row, **acl._asdict(), "permission_type": acl.permission}


def test_a_confirmed_acl_stays_in_force() -> None:
    """A confirmed ACL is not undone by a read of all ACLs that began before the change."""
    cluster = SimulatedCluster(1, secured=True, session_lifetime_ms=10_000)
    cluster.start()
    authorizer = cluster.brokers[1].program.plugins.acl_authorizer
    assert authorizer is not None
    denial = Acl("User:alice", "*", AclOperation.READ, Permission.DENY)
    confirmed: list[ResourcePattern] = []

    def check(_: object) -> None:
        for pattern in confirmed:
            assert denial in authorizer.rules.of(pattern), f"the confirmed denial of {pattern.name} is not in force"

    cluster.simulation.scheduler.after_event = check
    client = administrator(cluster)
    for number in range(20):
        pattern = ResourcePattern(ResourceType.TOPIC, f"topic-{number}")
        body = {"creations": [creation(denial, pattern)]}
        response = cluster.run_until(client.request(messages.CREATE_ACLS, body))
        assert response["results"][0]["error_code"] == 0
        confirmed.append(pattern)
    cluster.run(5.0)
    assert len(confirmed) == 20


def test_deletion_of_an_acl_that_the_broker_has_not_read() -> None:
    """A deletion includes ACLs that another broker has just created."""
    cluster = SimulatedCluster(1, brokers=2, secured=True, session_lifetime_ms=10_000)
    cluster.start()
    pattern = ResourcePattern(ResourceType.TOPIC, "orders")
    acl = Acl("User:alice", "*", AclOperation.WRITE, Permission.ALLOW)
    creator, other = administrator(cluster, 1), administrator(cluster, 2)
    cluster.run_until(other.metadata())
    link = cluster.simulation.network.link("coordinator", "broker-2")
    link.latency_s = (0.5, 0.5)
    cluster.run_until(creator.request(messages.CREATE_ACLS, {"creations": [creation(acl, pattern)]}))
    row = {"resource_type_filter": pattern.type, "resource_name_filter": pattern.name, "pattern_type_filter": 3}
    row |= {"principal_filter": acl.principal, "host_filter": "*", "operation": acl.operation, "permission_type": 3}
    response = cluster.run_until(other.request(messages.DELETE_ACLS, {"filters": [row]}))
    assert [each["principal"] for each in response["filter_results"][0]["matching_acls"]] == [acl.principal]
    cluster.run(5.0)
    for machine in cluster.brokers.values():
        authorizer = machine.program.plugins.acl_authorizer
        assert authorizer is not None
        assert not authorizer.rules.of(pattern)


def test_a_paused_broker_ends_sessions() -> None:
    """No request is served after the end of a client's session, even if a pause has delayed the broker's timers."""
    cluster = SimulatedCluster(1, secured=True, session_lifetime_ms=2_000)
    cluster.start()
    client = administrator(cluster)
    connection = cluster.run_until(client.connection())
    connection.session.end()
    host = cluster.brokers[1].host
    host.pause()
    early = Deferred.fromCoroutine(client.metadata())
    cluster.run(3.0)
    late = Deferred.fromCoroutine(client.metadata())
    cluster.run(0.5)
    host.resume()
    for sent in (early, late):
        with pytest.raises(ConnectionLost):
            cluster.run_until(sent)


def test_throttled_producers_slow_down_without_errors() -> None:
    """A quota on a client ID slows down its producer without errors or losses."""
    load = Load(TOPIC, interval_s=0.1, records_max=5, value_size_max=80)
    run = ReplicatedRun(1, partitions=1, secured=True, session_lifetime_ms=10_000, load=load)
    administrators, random = Administrator(run.cluster), Random(1)
    producer = QuotaEntity(None, "producer-0")

    def acknowledged_in_20_s() -> int:
        before = run.history.acked_count
        run.cluster.run(20.0)
        return run.history.acked_count - before

    unlimited = acknowledged_in_20_s()
    administrators.complete(lambda: administrators.set_quota(random, producer, PRODUCER_BYTE_RATE, 1000.0))
    run.cluster.run(20.0)
    limited = acknowledged_in_20_s()
    metrics = [machine.program.quotas.metrics[PRODUCER_BYTE_RATE] for machine in run.cluster.brokers.values()]
    assert sum(each.throttled for each in metrics) > 10
    assert limited < unlimited * 0.6
    administrators.complete(lambda: administrators.set_quota(random, producer, PRODUCER_BYTE_RATE, None))
    run.converge()
    assert not any(each.errors for each in run.producers)
