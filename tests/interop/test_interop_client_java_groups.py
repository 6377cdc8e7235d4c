"""Members of kreplica's client and Java consumers in one group; needs Java and Maven, so it is part of the soak."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import apache_kafka
import pytest
from java_member import JavaMember
from matrix_clusters import KAFKA_3, KAFKA_4, NAMES, UnderTest, run_cluster
from matrix_members import Reader, create_filled_topic, member
from matrix_world import World

from kreplica.client import Producer
from tests.support.real_reactor import run

pytestmark = pytest.mark.soak

TIME_S_MAX = 120.0
JAVA = "org.apache.kafka.clients.consumer."
STRATEGIES: Mapping[str, tuple[tuple[str, ...], str]] = {
    "range": (("range",), f"{JAVA}RangeAssignor"),
    "round robin": (("roundrobin",), f"{JAVA}RoundRobinAssignor"),
    "sticky": (("sticky",), f"{JAVA}StickyAssignor"),
    "cooperative": (("cooperative-sticky",), f"{JAVA}CooperativeStickyAssignor"),
    "range before cooperative": (
        ("range", "cooperative-sticky"),
        f"{JAVA}RangeAssignor,{JAVA}CooperativeStickyAssignor",
    ),
}
"""Assignors of kreplica's members and of Java's."""

PARTITIONS = 6


@pytest.fixture(scope="module", params=NAMES)
def under_test(
    request: pytest.FixtureRequest,
    kafka_cluster_factory: Callable[..., Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[UnderTest]:
    """Run each cluster in turn."""
    try:
        apache_kafka.client_class_path(apache_kafka.KAFKA_VERSION)
        with run_cluster(request.param, kafka_cluster_factory, tmp_path_factory.mktemp("matrix")) as cluster:
            yield cluster
    except apache_kafka.NoKafka as missing:
        pytest.skip(f"not tried with Kafka's Java clients: {missing}")


def check_group_with_java(
    under_test: UnderTest, output: Path, version: str, ours: dict[str, object], java: Mapping[str, object]
) -> None:
    """One member of each client: Java's joins and gets half, kreplica's leaves, Java's gets all and reads all."""
    from twisted.internet import reactor

    world = World(under_test, reactor)

    async def run_members() -> None:
        topic, group = await create_filled_topic(world, PARTITIONS), world.new_name("g")
        one = Reader(member(world, group, **ours), topic)
        await world.wait_until(lambda: one.share == PARTITIONS and len(one.values) == PARTITIONS * 10)
        servers = under_test.brokers.bootstrap_servers
        with JavaMember(version, servers, group, topic, output, **java) as two:
            await world.wait_until(lambda: (one.share, len(two.share)) == (3, 3), "half for each")
            read = {each.partition for each in one.consumer.assignment}
            assert read | two.share == set(range(PARTITIONS))
            later = [b"later %d" % number for number in range(60)]
            async with Producer(world.cluster) as producer:
                for number, value in enumerate(later):
                    producer.send(topic, value, partition=number % PARTITIONS)
                await producer.flush()
            await world.wait_until(lambda: {*one.values, *two.values} >= set(later), "all of them")
            assert not set(one.values[60:]) & set(two.values)
            await one.stop()
            assert one.error is None, one.error
            await world.wait_until(lambda: len(two.share) == PARTITIONS, "all for Java's")
            three = Reader(member(world, group, **ours), topic)
            await world.wait_until(lambda: (three.share, len(two.share)) == (3, 3), "half for each again")
            two.stop()
            await world.wait_until(lambda: three.share == PARTITIONS, "all for ours")
            await three.stop()
            assert three.error is None, three.error
            assert not three.values, "the Java consumer had committed all records"
        await world.close()

    run(run_members(), TIME_S_MAX)


@pytest.mark.parametrize("version", [apache_kafka.KAFKA_VERSION, apache_kafka.NEWEST_VERSION])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_classic(under_test: UnderTest, strategy: str, version: str, tmp_path: Path) -> None:
    """kreplica's member leads and follows in a group with the Java consumers of Kafka 3 and 4."""
    assignors, classes = STRATEGIES[strategy]
    ours: dict[str, object] = {"protocol": "classic", "assignors": assignors}
    java = {"partition_assignment_strategy": classes, "session_timeout_ms": 6000, "heartbeat_interval_ms": 200}
    check_group_with_java(under_test, tmp_path / "java.out", version, ours, java)


def test_kip_848(under_test: UnderTest, tmp_path: Path) -> None:
    """The coordinator assigns partitions to members of both clients."""
    if under_test.name == KAFKA_3:
        pytest.skip("disabled by default in 3.9")
    check_group_with_java(
        under_test,
        tmp_path / "java.out",
        apache_kafka.NEWEST_VERSION,
        {"protocol": "consumer"},
        {"group_protocol": "consumer"},
    )


def test_migration_to_kip_848(under_test: UnderTest, tmp_path: Path) -> None:
    """A classic member of kreplica and a Java member of the new protocol in one group (KIP-848's migration)."""
    if under_test.name != KAFKA_4:
        pytest.skip("only 4.x accepts members of both protocols by default (docs/reference/kafka-compatibility.md)")
    ours: dict[str, object] = {"protocol": "classic", "assignors": ("cooperative-sticky",)}
    check_group_with_java(
        under_test, tmp_path / "java.out", apache_kafka.NEWEST_VERSION, ours, {"group_protocol": "consumer"}
    )
