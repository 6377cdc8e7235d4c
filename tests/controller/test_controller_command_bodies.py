"""In command bodies, partitions with equal states share their encoded fields, except for their numbers."""

from __future__ import annotations

import gc
import weakref
from uuid import UUID

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from kreplica.controller.effects.command_bodies import DELETE_ANY_EPOCH, Bodies
from kreplica.controller.state.context import ControllerContext
from kreplica.model import LEADER_DURING_DELETE, BrokerRegistration, Endpoint, LeaderAndIsr, TopicAssignment
from kreplica.model import TopicPartition as Key
from kreplica.wire.messages import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA

LIVE = LeaderAndIsr(1, 4, (1, 2), 3, 7)
REPLICAS = (1, 2, 3)
EVEN, ODD = Key("orders", 300), Key("orders", 301)
OTHER, GONE, UNKNOWN = Key("orders", 2), Key("gone", 300), Key("orders", 4)
ALL = (EVEN, ODD, OTHER, GONE)


def bodies():
    context = ControllerContext(3, 0)
    for broker in (1, 2):
        endpoint = Endpoint("PLAINTEXT", "localhost", 9000 + broker)
        context.add_broker(BrokerRegistration(broker, (endpoint,), epoch=10 * broker))
    rows = {300: REPLICAS, 301: REPLICAS, 2: (2, 1), 4: ()}
    adding, removing = {301: (3,)}, {301: (2, 9)}
    context.topics["orders"] = TopicAssignment("orders", UUID(int=1), rows, adding=adding, removing=removing)
    context.topics["gone"] = TopicAssignment("gone", UUID(int=2), {300: REPLICAS})
    context.deleting.add("gone")
    other = LeaderAndIsr(2, 9, (2,), 3, 8, (1,))
    context.leadership.update({EVEN: LIVE, ODD: LIVE, OTHER: other, GONE: LIVE})
    return Bodies(context, 1, "PLAINTEXT")


def sent(api, build):
    """Return the rows by partition, as a broker receives them."""
    results = []
    version = api.versions[1]
    Deferred.fromCoroutine(build(Clock())).addCallback(results.append)
    body = api.request.parse(version, api.request.build(version, results[0] | {"command_number": 1}))
    return {
        Key(topic["topic_name"], row["partition_index"]): row
        for topic in body["topic_states"]
        for row in topic["partition_states"]
    }


def test_leader_and_isr():
    rows = sent(LEADER_AND_ISR, bodies().leader_and_isr(1, ALL, {OTHER}))
    assert list(rows) == list(ALL)
    fields = ("leader", "leader_epoch", "isr", "partition_epoch")
    states = {key: tuple(row[field] for field in fields) for key, row in rows.items()}
    assert states == {key: (1, 4, [1, 2], 7) for key in ALL} | {OTHER: (2, 9, [2], 8)}
    assert [row["replicas"] for row in rows.values()] == [[1, 2, 3], [1, 2, 3], [2, 1], [1, 2, 3]]
    assert [row["adding_replicas"] for row in rows.values()] == [[], [3], [], []]
    assert [row["removing_replicas"] for row in rows.values()] == [[], [2], [], []]
    assert [row["is_new"] for row in rows.values()] == [False, False, True, False]
    assert [row["eligible_leader_replicas"] for row in rows.values()] == [[], [], [1], []]


def test_update_metadata():
    rows = sent(UPDATE_METADATA, bodies().update_metadata(1, (*ALL, UNKNOWN)))
    assert [row["leader"] for row in rows.values()] == [1, 1, 2, LEADER_DURING_DELETE, LEADER_DURING_DELETE]
    assert [row["isr"] for row in rows.values()] == [[1, 2], [1, 2], [2], [], []]
    assert [row["offline_replicas"] for row in rows.values()] == [[3], [3], [], [], [3]]


def test_stop_replica():
    rows = sent(STOP_REPLICA, bodies().stop_replica(1, ALL, delete=True))
    assert [row["leader_epoch"] for row in rows.values()] == [4, 4, 9, DELETE_ANY_EPOCH]
    assert all(row["delete_partition"] for row in rows.values())


def test_bodies_are_freed_without_a_garbage_collection():
    """A reference cycle would keep the data of up to 100,000 partitions, forever if the process freezes its objects."""
    gc.collect()
    gc.disable()
    try:
        made = bodies()
        freed = weakref.ref(made)
        assert sent(LEADER_AND_ISR, made.leader_and_isr(1, ALL, set()))
        del made
        assert freed() is None
    finally:
        gc.enable()
