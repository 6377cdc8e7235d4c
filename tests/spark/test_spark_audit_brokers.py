"""Audits that fetch each replica from its broker, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from local_audit import run_audit

from kreplica.blocking import Cluster, Codec, Producer, ProducerOptions
from kreplica.client_core.errors import GaveUp
from kreplica.model import TopicPartition
from kreplica.spark.pipelines.audit import audit as audit_module
from kreplica.spark.pipelines.audit.audit import AuditOptions, compare_slice, make_plan
from kreplica.spark.pipelines.audit.broker_replicas import BrokerReplica
from kreplica.spark.pipelines.audit.plan import Plan
from kreplica.spark.pipelines.audit.replica_comparison import Span
from kreplica.spark.pipelines.audit.replica_findings import Comparison, Coverage, Kind
from kreplica.spark.pipelines.audit.report import AuditReport
from kreplica.testing.fixtures.kafka_cluster import KafkaCluster


@pytest.fixture(scope="module")
def cluster(kafka_cluster_factory: Callable[..., KafkaCluster]) -> Iterator[KafkaCluster]:
    """Two topics with the same number of different records in several codecs, and an empty topic."""
    with kafka_cluster_factory(3, topics={"a": 2, "b": 2, "empty": 1}) as kafka:
        for topic, value in (("a", b"one"), ("b", b"two")):
            for codec in (Codec.NONE, Codec.ZSTD):
                with (
                    Cluster(kafka.bootstrap_servers) as client,
                    Producer(client, ProducerOptions(codec=codec)) as producer,
                ):
                    for number in range(300):
                        producer.send(topic, b"%s %d" % (value, number), partition=number % 2, timestamp_ms=1000)
                        if number % 40 == 0:
                            producer.flush()
        yield kafka


def audit_options(cluster: KafkaCluster, *topics: str) -> AuditOptions:
    return AuditOptions(bootstrap=cluster.bootstrap_servers, via_brokers=True, topics=frozenset(topics))


def plan_audit(cluster: KafkaCluster, *topics: str) -> Plan:
    return make_plan(audit_options(cluster, *topics))


def test_via_brokers(cluster: KafkaCluster) -> None:
    """Each replica is read from its own broker, whether it is leader or follower."""
    report = run_audit(audit_options(cluster, "a", "empty"))
    assert (report.agrees, report.brokers, report.notes) == (True, (1, 2, 3), ())
    assert [(each.topic, each.partition, each.high_watermark) for each in report.partitions] == [
        ("a", 0, 300), ("a", 1, 300), ("empty", 0, 0),
    ]  # fmt: skip
    for each in report.partitions[:2]:
        assert [(own.broker, own.start, own.end) for own in each.coverages] == [(n, 0, 300) for n in (1, 2, 3)]
        assert len({(own.batches, own.size_bytes) for own in each.coverages}) == 1


def test_all_topics_via_brokers(cluster: KafkaCluster) -> None:
    """Without a topic option, all topics are audited."""
    assert {each.topic for each in run_audit(audit_options(cluster)).partitions} >= {"a", "b", "empty"}


def test_brokers_with_different_records(cluster: KafkaCluster) -> None:
    """The broker whose records differ from those of the others is reported."""
    slice_ = plan_audit(cluster, "a").slices[0]
    first, second, third = slice_.replicas
    assert isinstance(second, BrokerReplica)
    moved = second._replace(partition=TopicPartition("b", 0))
    found, notes, _ = compare_slice(slice_._replace(replicas=(first, moved, third)))
    assert notes == ()
    assert found.differences
    assert {(each.broker, each.kind) for each in found.differences} == {(2, Kind.DIFFERENT)}
    assert [each.end for each in found.coverages] == [300] * 3


def test_slices_via_brokers(cluster: KafkaCluster) -> None:
    """A slice may be split at any offset; each batch is in one of the parts."""
    (slice_, *_) = plan_audit(cluster, "a").slices
    whole, *_ = compare_slice(slice_)
    for cut in (1, 19, 20, 21, 299):
        parts = [compare_slice(slice_._replace(span=Span(*each)))[0] for each in ((0, cut), (cut, 300))]
        assert [each.differences for each in parts] == [[], []]
        assert sum(each.coverages[0].batches for each in parts) == whole.coverages[0].batches


def test_broker_without_a_replica(cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker without its replica is reported; if no broker has a replica, only notes are returned."""
    (slice_, *_) = plan_audit(cluster, "a").slices
    impatient_client = replace(audit_module.CLIENT, operation_timeout_s=0.2)
    missing = tuple(
        each._replace(partition=TopicPartition("gone", 0), client=impatient_client) for each in slice_.replicas
    )  # type: ignore[call-arg]
    found, notes, _ = compare_slice(slice_._replace(replicas=(*slice_.replicas[:2], missing[2])))
    assert [(each.broker, each.base_offset, each.kind) for each in found.differences] == [(3, 0, Kind.MISSING)]
    assert notes == ()
    found, notes, is_done = compare_slice(slice_._replace(replicas=missing))
    assert (found.differences, len(notes), is_done) == ([], 3, True)


def test_replica_that_ends_early(cluster: KafkaCluster) -> None:
    """An in-sync replica must be complete; for other replicas, the lag is noted."""
    (slice_, *_) = plan_audit(cluster, "a").slices
    first, second, _ = slice_.replicas
    short = second._replace(partition=TopicPartition("empty", 0), required_end=0)  # type: ignore[call-arg]
    found, *_ = compare_slice(slice_._replace(replicas=(first, short)))
    assert (found.differences, [each.is_short for each in found.coverages]) == ([], [False, True])
    found, *_ = compare_slice(slice_._replace(replicas=(first, short._replace(required_end=300))))
    assert [(each.broker, each.base_offset, each.kind) for each in found.differences] == [(2, 0, Kind.MISSING)]


def test_unreachable_broker(kafka_cluster_factory: Callable[..., KafkaCluster]) -> None:
    """The other replicas are compared, and unread replicas are noted."""
    with kafka_cluster_factory(3, topics={"a": 1}) as own:
        with Cluster(own.bootstrap_servers) as client, Producer(client) as producer:
            for number in range(20):
                producer.send("a", b"%d" % number)
        plan = make_plan(audit_options(own, "a"))
        own.stop(3)
        (slice_,) = plan.slices
        impatient_client = replace(audit_module.CLIENT, operation_timeout_s=0.2)
        replicas = tuple(each._replace(client=impatient_client) for each in slice_.replicas)  # type: ignore[call-arg]
        found, notes, _ = compare_slice(slice_._replace(replicas=replicas))
        assert found.differences == []
        assert [each.broker for each in found.coverages] == [1, 2]
        assert "broker 3 is unreachable" in notes[0]
        own.leader_of("a")
        report = run_audit(audit_options(own, "a"))
        assert (report.agrees, report.brokers) == (True, (1, 2))
        assert report.notes == ("broker 3: replicas not read: 1",)


def test_missing_topic(cluster: KafkaCluster) -> None:
    with pytest.raises(ValueError, match="topics without a replica: missing"):
        run_audit(audit_options(cluster, "missing"))


def test_broker_that_fails_while_it_is_read(cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a failure, the comparison is repeated; if it cannot be completed, the audit does not report agreement."""
    (slice_, *_) = plan_audit(cluster, "a").slices
    failures = [GaveUp("gone"), GaveUp("gone again")]
    original_compare = audit_module.compare

    def compare(*arguments: Any) -> Comparison:
        if failures:
            raise failures.pop()
        return original_compare(*arguments)

    monkeypatch.setattr(audit_module, "compare", compare)
    found, notes, is_done = compare_slice(slice_)
    assert ([each.end for each in found.coverages], notes, is_done) == ([300, 300, 300], (), True)
    failures += [GaveUp("gone")] * 9
    found, notes, is_done = compare_slice(slice_)
    assert (found.coverages, notes, is_done) == ([], ("a-0: gone",), False)
    equal = Comparison("t", 0, 0, 50, [Coverage(1, 0, 50, 10, 900, False)])
    report = AuditReport("brokers", None, (1,), (found, equal), notes, 0, 1, 0, 1.0)
    assert not replace(report, partitions=(equal,)).agrees
