"""Members of kreplica's client and of other clients in one group: with any leader, each partition has one reader."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic

from kreplica.client import Cluster
from kreplica.client.client_runtime import default_runtime
from kreplica.client.group import GroupOptions, new_membership
from kreplica.client_core.offsets import CommittedOffset
from kreplica.model import TopicPartition
from kreplica.runtime.pause import pause
from tests.support.real_reactor import run
from tests.support.standalone import StandaloneProcess

PARTITIONS = 6
ALL = list(range(PARTITIONS))
DEADLINE_S = 30.0
SESSION_MS, HEARTBEAT_MS = 6000, 200


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """A broker that asks members of KIP-848 groups for frequent heartbeats."""
    quick = ["--override", "group.consumer.heartbeat.interval.ms=200"]
    with StandaloneProcess(tmp_path_factory.mktemp("beside"), arguments=quick) as process:
        yield process


@pytest.fixture
def topic_name(broker, topic):
    """Create the topic and return its name."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(20)
    return topic


class OtherMember:
    """Another client's member, in its own thread.

    :ivar partitions: partitions that it owns.
    """

    def __init__(self, run_member: Callable[[OtherMember], None]) -> None:
        self.partitions: set[int] = set()
        self.error: BaseException | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(run_member,))

    def __enter__(self) -> OtherMember:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()

    @property
    def is_ending(self) -> bool:
        return self._ending.is_set()

    def _run(self, run_member: Callable[[OtherMember], None]) -> None:
        try:
            run_member(self)
        except BaseException as error:
            self.error = error
        self.partitions = set()


def confluent_member(broker: Any, topic: str, group: str, **config: object) -> OtherMember:
    """Return a member of confluent-kafka (librdkafka)."""

    def run_member(self: OtherMember) -> None:
        settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": group, "auto.offset.reset": "earliest"}
        consumer = Consumer({**settings, **config})
        consumer.subscribe([topic])
        while not self.is_ending:
            consumer.poll(0.05)
            self.partitions = {each.partition for each in consumer.assignment()}
        consumer.close()

    return OtherMember(run_member)


CLASSIC = {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": HEARTBEAT_MS}


def aiokafka_member(broker: Any, topic: str, group: str, assignor: Any) -> OtherMember:
    """Return a member of aiokafka."""

    async def read(self: OtherMember) -> None:
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=broker.bootstrap_servers,
            group_id=group,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            rebalance_timeout_ms=SESSION_MS,
            partition_assignment_strategy=[assignor],
        )
        await consumer.start()
        while not self.is_ending:
            await consumer.getmany(timeout_ms=50)
            self.partitions = {each.partition for each in consumer.assignment()}
        await consumer.stop()

    return OtherMember(lambda self: asyncio.run(read(self)))


class KreplicaMember:
    """A member of kreplica's client."""

    def __init__(self, broker: Any, topic: str, group: str, **options: object) -> None:
        from twisted.internet import reactor

        self.partitions: set[int] = set()
        self.cluster = Cluster(broker.bootstrap_servers, runtime=default_runtime(reactor))
        settings = {"session_timeout_s": SESSION_MS / 1000, "heartbeat_interval_s": HEARTBEAT_MS / 1000}
        self.membership = new_membership(
            self.cluster, GroupOptions(**{"group_id": group, **settings, **options}), [topic], self
        )

    async def stop(self) -> None:
        await self.membership.stop()
        await self.cluster.close()

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        await self.membership.commit({each: CommittedOffset(0) for each in partitions})
        self.partitions -= {each.partition for each in partitions}

    async def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        self.partitions |= {each.partition for each in partitions}

    def on_lost(self, partitions: frozenset[TopicPartition]) -> None:
        raise AssertionError(f"lost: {partitions}")

    def on_ended(self, error: Exception) -> None:
        raise AssertionError(f"ended: {error}")


async def wait_until_shared(*members: OtherMember | KreplicaMember) -> None:
    """Wait until each partition has one reader, and all members have the same number of partitions."""
    from twisted.internet import reactor

    for _ in range(int(DEADLINE_S / 0.02)):
        shares = [set(each.partitions) for each in members]
        counts = {len(share) for share in shares}
        if sorted(number for share in shares for number in share) == ALL and counts == {PARTITIONS // len(members)}:
            return
        errors = [each.error for each in members if isinstance(each, OtherMember) and each.error is not None]
        assert not errors, errors
        await pause(reactor, 0.02)
    raise AssertionError([each.partitions for each in members])


def leave_and_rejoin(
    broker: Any, topic: str, options: dict[str, object], *makers: Callable[[str], OtherMember]
) -> None:
    """Let kreplica's member join first, as group leader, then leave, and join again while another member leads."""
    group = f"group-of-{topic}"

    async def check(stack: ExitStack) -> None:
        kreplica_member = KreplicaMember(broker, topic, group, **options)
        await kreplica_member.membership.start()
        await wait_until_shared(kreplica_member)
        others = [stack.enter_context(make(group)) for make in makers]
        await wait_until_shared(kreplica_member, *others)
        await kreplica_member.stop()
        await wait_until_shared(*others)
        again = KreplicaMember(broker, topic, group, **options)
        await again.membership.start()
        await wait_until_shared(again, *others)
        found = await again.membership.committed([TopicPartition(topic, each) for each in ALL])
        assert sorted(found) == [TopicPartition(topic, each) for each in ALL]
        await again.stop()

    with ExitStack() as stack:
        run(check(stack), DEADLINE_S * 2)


def test_librdkafka_and_aiokafka_in_one_group(broker, topic_name):
    """Members of three libraries share a topic in one classic group."""
    leave_and_rejoin(
        broker,
        topic_name,
        {"protocol": "classic", "assignors": ("roundrobin",)},
        lambda group: confluent_member(
            broker, topic_name, group, **CLASSIC, **{"partition.assignment.strategy": "roundrobin"}
        ),
        lambda group: aiokafka_member(broker, topic_name, group, RoundRobinPartitionAssignor),
    )


def test_sticky_assignment_with_aiokafka(broker, topic_name):
    """Both libraries understand each other's user data in the sticky assignor."""
    options = {"protocol": "classic", "assignors": ("sticky",)}
    leave_and_rejoin(
        broker, topic_name, options, lambda group: aiokafka_member(broker, topic_name, group, StickyPartitionAssignor)
    )


def test_cooperative_rebalances_with_librdkafka(broker, topic_name):
    """Members of two libraries release only partitions that move."""
    strategy = {"partition.assignment.strategy": "cooperative-sticky"}
    options = {"protocol": "classic", "assignors": ("cooperative-sticky",)}
    leave_and_rejoin(
        broker, topic_name, options, lambda group: confluent_member(broker, topic_name, group, **CLASSIC, **strategy)
    )


def test_librdkafka_in_a_kip_848_group(broker, topic_name):
    """The coordinator assigns partitions to members of both libraries."""
    leave_and_rejoin(
        broker,
        topic_name,
        {},
        lambda group: confluent_member(broker, topic_name, group, **{"group.protocol": "consumer"}),
    )
