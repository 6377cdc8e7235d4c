"""Members with outdated state, and coordinators that were replaced."""

from __future__ import annotations

from copy import copy

from kreplica.testing.clients.transactional_producer import TransactionalProducer
from tests.support.clients.group_member import GroupMember
from tests.support.mutations.scenarios.stage import (
    GROUPS,
    LEADER,
    OFFSETS_KEY,
    SEPARATOR,
    SESSION_S,
    SOURCE_KEY,
    TARGET_KEY,
    TRANSACTIONS,
    Stage,
    name,
    stage,
)

COORDINATOR = "coordinator"
PATIENT = ("replica.lag.time.max.ms=60000",)
"""Settings that prevent slow replicas from leaving the ISR."""

MADE = [b"0/0", b"0/1"]
"""Records that processors produce from the first two records of the source."""


def commit_of_previous_generation(seed: int) -> None:
    """A commit is in flight while the member joins the group's next generation."""
    with stage(seed) as scene:
        first, second = scene.member("first"), scene.member("second")
        scene.do(first.join())
        late = copy(first)
        joining = scene.begin(second.join())
        scene.cluster.run(SESSION_S / 3 + 0.1)
        scene.do(first.heartbeat())
        scene.do(first.join())
        scene.cluster.run_until(joining)
        scene.do(late.commit({SOURCE_KEY: 1}))


def replaced_static_member(seed: int) -> None:
    """A static member is replaced by a new process; the old process continues until it is fenced."""
    with stage(seed) as scene:
        zombie, successor = (scene.member(host, instance_id="i") for host in ("zombie", "successor"))
        scene.do(zombie.join())
        scene.do(successor.join())
        assert scene.rejected(zombie.commit({SOURCE_KEY: 1})), "two processes are one static member"


def commit_after_session_timeout(seed: int) -> None:
    """A member pauses for longer than its session timeout, another takes over, and the first then commits offsets."""
    with stage(seed) as scene:
        zombie, successor = scene.member("zombie"), scene.member("successor")
        producer, other = scene.producer("zombie", "zombie"), scene.producer("successor", "successor")
        scene.do(zombie.join())
        scene.do(_make(producer))
        scene.cluster.run(SESSION_S + 2.0)
        scene.do(successor.join())
        scene.do(_make(other))
        scene.do(other.send_offsets({SOURCE_KEY: 2}, successor.identity, scene.group_client("successor")))
        scene.do(other.commit())
        late = producer.send_offsets({SOURCE_KEY: 2}, zombie.identity, scene.group_client("zombie"))
        scene.do(producer.abort() if scene.rejected(late) else producer.commit())


async def _make(producer: TransactionalProducer) -> None:
    """Begin a transaction and write to the target topic."""
    await producer.start()
    await producer.begin()
    assert producer.transaction is not None
    await producer.send(TARGET_KEY, [value + SEPARATOR + producer.transaction.encode() for value in MADE])


def offset_fetch_before_marker(seed: int) -> None:
    """A transaction is committed, and offsets are fetched before its marker reaches the group's offsets."""
    with stage(seed) as scene:
        member, producer = scene.member("processor"), scene.producer("processor", "processor")
        scene.do(member.join())
        scene.do(_make(producer))
        scene.do(producer.send_offsets({SOURCE_KEY: 2}, member.identity, scene.group_client("processor")))
        scene.network.link(name(TRANSACTIONS), name(GROUPS)).latency_s = (2.0, 2.0)
        scene.do(producer.commit())
        scene.clients.group.decided({SOURCE_KEY: 2})
        scene.do(member.offsets())


def coordinator_with_uncommitted_offsets(seed: int) -> None:
    """A coordinator fails when only one follower has a commit; this follower becomes leader and fails, too."""
    with stage(seed, PATIENT) as scene:
        first, second = _reader(scene, "first"), _reader(scene, "second")
        scene.do(first.commit({SOURCE_KEY: 1}))
        scene.network.cut(name(GROUPS), name(TRANSACTIONS))
        scene.network.cut(name(LEADER), name(TRANSACTIONS))
        scene.begin(first.commit({SOURCE_KEY: 5}))
        scene.cluster.run(1.0)
        scene.cluster.host("first").kill()
        scene.cluster.brokers[GROUPS].kill()
        scene.cluster.run_until(lambda: scene.cluster.leader_of(*OFFSETS_KEY) == LEADER)
        asking = scene.begin(second.offsets())
        scene.cluster.run(2.0)
        scene.halt(LEADER)
        scene.network.heal()
        scene.cluster.run_until(scene.cluster.brokers[GROUPS].start())
        scene.cluster.run_until(asking)
        scene.do(second.offsets())


def _reader(scene: Stage, host: str, broker: int | None = None) -> GroupMember:
    """Return a client that commits and fetches the group's offsets without being a member."""
    reader = scene.member(host, broker)
    reader.assigned = [SOURCE_KEY]
    return reader


def coordinator_without_zookeeper(seed: int) -> None:
    """A coordinator without a ZooKeeper session returns no offsets once another broker may be the coordinator."""
    with stage(seed) as scene:
        first, second = _reader(scene, "first"), _reader(scene, "second", LEADER)
        scene.do(first.commit({SOURCE_KEY: 1}))
        for other in (COORDINATOR, name(LEADER), name(TRANSACTIONS)):
            scene.network.cut(name(GROUPS), other)
        scene.cluster.run_until(lambda: scene.cluster.leader_of(*OFFSETS_KEY) not in (GROUPS, -1))
        scene.do(second.commit({SOURCE_KEY: 5}))
        asking = scene.begin(_reader(scene, "third", GROUPS).offsets())
        scene.cluster.run(3.0)
        scene.network.heal()
        scene.cluster.run_until(asking)
