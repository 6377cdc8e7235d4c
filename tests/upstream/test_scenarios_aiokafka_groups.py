"""Consumer groups of aiokafka: scenarios equivalent to its own ``test_consumer.py`` and ``test_coordinator.py``."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import CommitFailedError, NoOffsetForPartitionError, OffsetOutOfRangeError
from aiokafka.structs import OffsetAndMetadata
from aiokafka_scene import Scene, read, scenario, wait_until, wait_until_shared

ASSIGNORS = [RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor]


@pytest.mark.parametrize("assignor", ASSIGNORS, ids=lambda assignor: assignor.name)
def test_two_members_share_a_topic(cluster, topic, assignor):
    """Each member has a partition; after one leaves, the other reads both partitions."""

    async def run(scene: Scene, topic: str) -> None:
        quick = {"group_id": topic, "heartbeat_interval_ms": 200, "partition_assignment_strategy": [assignor]}
        first = await scene.consumer(topic, **quick)
        second = await scene.consumer(topic, **quick)
        await wait_until_shared([first, second], topic, 2)
        sent = await scene.send(topic, 0, range(10)) + await scene.send(topic, 1, range(10, 20))
        assert sorted(await read(first, 10) + await read(second, 10)) == sorted(sent)
        await second.stop()
        await wait_until_shared([first], topic, 2)

    scenario(run)(cluster, topic)


@scenario
async def test_a_later_consumer_continues_at_the_committed_offset(scene: Scene, topic: str) -> None:
    """A later consumer continues at the committed offset, and receives the committed metadata."""
    await scene.send(topic, 0, range(10))
    partition = TopicPartition(topic, 0)
    first = await scene.consumer(topic, group_id=topic)
    assert await first.committed(partition) is None
    await read(first, 10)
    await first.commit({partition: OffsetAndMetadata(7, "up to seven, für später")})
    await first.stop()
    second = await scene.consumer(topic, group_id=topic)
    assert await second.committed(partition) == 7
    assert await read(second, 3) == [b"7", b"8", b"9"]
    admin = await scene.admin()
    committed = await admin.list_consumer_group_offsets(topic)
    assert committed == {partition: OffsetAndMetadata(7, "up to seven, für später")}


@scenario
async def test_automatic_commits_lose_and_repeat_no_record(scene: Scene, topic: str) -> None:
    """A consumer also commits automatically when it is closed."""
    await scene.send(topic, 0, range(20))
    options = {"group_id": topic, "enable_auto_commit": True, "auto_commit_interval_ms": 100}
    first = await scene.consumer(topic, **options)
    first_records = await read(first, 8)
    await first.stop()
    second = await scene.consumer(topic, **options)
    assert first_records + await read(second, 12) == [b"%d" % number for number in range(20)]


@scenario
async def test_a_pattern_subscribes_to_new_topics(scene: Scene, topic: str) -> None:
    """The subscription includes a topic created later, and the offsets topic on request."""
    consumer = await scene.consumer(group_id=topic, metadata_max_age_ms=200, heartbeat_interval_ms=200)
    consumer.subscribe(pattern=f"{topic}.*")
    await wait_until(lambda: consumer.subscription() == {topic}, "a subscription to the topic")
    producer = await scene.producer()
    await producer.send_and_wait(f"{topic}-later", b"late", partition=0)
    await wait_until(lambda: consumer.subscription() == {topic, f"{topic}-later"}, "a subscription to both")
    assert await read(consumer, 1) == [b"late"]
    internal = await scene.consumer(group_id=f"{topic}-internal", exclude_internal_topics=False)
    internal.subscribe(pattern="__consumer_off.*")
    await wait_until(lambda: "__consumer_offsets" in internal.subscription(), "a subscription to the internal topic")


@scenario
async def test_a_commit_during_revocation(scene: Scene, topic: str) -> None:
    """If a listener commits when its partitions are revoked, no record is read twice."""
    await scene.send(topic, 0, range(10))
    await scene.send(topic, 1, range(10, 20))

    class CommitOnRevocation(ConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked):
            await first.commit()
            await asyncio.sleep(0.2)

        async def on_partitions_assigned(self, assigned):
            await asyncio.sleep(0.2)

    first = await scene.consumer(group_id=topic, heartbeat_interval_ms=200)
    first.subscribe([topic], listener=CommitOnRevocation())
    first_records = [*await read(first, 3, TopicPartition(topic, 0)), *await read(first, 3, TopicPartition(topic, 1))]
    second = await scene.consumer(topic, group_id=topic, heartbeat_interval_ms=200)
    await wait_until_shared([first, second], topic, 2)
    later_records = await read(first, 7) + await read(second, 7)
    assert sorted(first_records + later_records) == sorted(b"%d" % number for number in range(20))


@scenario
async def test_an_error_without_a_valid_offset(scene: Scene, topic: str) -> None:
    """Without a committed offset or reset policy, and beyond the log's end, the consumer raises an error."""
    await scene.send(topic, 0, range(1))
    partition = TopicPartition(topic, 0)
    consumer = await scene.consumer(topic, group_id=topic, auto_offset_reset="none")
    with pytest.raises(NoOffsetForPartitionError):
        await asyncio.wait_for(consumer.getone(), 20)
    consumer.seek(partition, 19_999)
    with pytest.raises(OffsetOutOfRangeError):
        await asyncio.wait_for(consumer.getone(partition), 20)


@scenario
async def test_a_long_poll_does_not_delay_commits(scene: Scene, topic: str) -> None:
    """A commit does not wait for a pending fetch, because it uses a separate connection to the coordinator."""
    await scene.send(topic, 0, range(10))
    consumer = await scene.consumer(topic, group_id=topic, fetch_max_wait_ms=10_000)
    await read(consumer, 10)
    waiting = asyncio.ensure_future(consumer.getmany(timeout_ms=3000))
    await asyncio.sleep(0.2)
    await asyncio.wait_for(consumer.commit(), 1)
    assert not waiting.done()
    assert await waiting == {}


@scenario
async def test_a_silent_member_loses_its_partitions(scene: Scene, topic: str) -> None:
    """After the session timeout of a silent member, its partitions are reassigned, and its commits are rejected."""
    options = {"group_id": topic, "session_timeout_ms": 1500, "heartbeat_interval_ms": 200}
    silent = await scene.consumer(topic, **options)
    other = await scene.consumer(topic, **options)
    await wait_until_shared([silent, other], topic, 2)
    # Stops the heartbeat task and prevents its restart.
    await wait_until(lambda: silent._coordinator._heartbeat_task is not None, "the first heartbeat")
    silent._coordinator._heartbeat_task.cancel()
    silent._coordinator._coordination_task.cancel()
    await wait_until_shared([other], topic, 2)
    with pytest.raises(CommitFailedError):
        await silent.commit(dict.fromkeys(silent.assignment(), 1))


@scenario
async def test_a_subscription_may_change_at_once(scene: Scene, topic: str) -> None:
    """A consumer may change its subscription while it is joining a group for the previous one."""
    await scene.send(f"{topic}-b", 0, range(3))
    consumer = await scene.consumer(group_id=topic, session_timeout_ms=1500, heartbeat_interval_ms=200)
    consumer.subscribe([topic])
    await asyncio.sleep(0.01)
    consumer.unsubscribe()
    consumer.subscribe([f"{topic}-b"])
    assert await read(consumer, 3) == [b"0", b"1", b"2"]


@scenario
async def test_an_admin_client_sees_the_group(scene: Scene, topic: str) -> None:
    """An admin client finds the group's coordinator, describes its state and members, and lists it."""
    consumer = await scene.consumer(topic, group_id=topic, client_id="a reader")
    await wait_until_shared([consumer], topic, 2)
    admin = await scene.admin()
    assert (topic, "consumer") in await admin.list_consumer_groups()
    assert await admin.find_coordinator(topic) in {node.nodeId for node in consumer._client.cluster.brokers()}
    (described,) = await admin.describe_consumer_groups([topic])
    (error, group, state, kind, assignor, members, *_) = described.groups[0]
    assert (error, group, state, kind, assignor) == (0, topic, "Stable", "consumer", "roundrobin")
    assert [member[1] for member in members] == ["a reader"]
