"""Matrix scenarios: consumers in groups of both protocols."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial

from matrix_clusters import KAFKA_3
from matrix_members import COOPERATIVE, EAGER, Reader, RevocationListener, create_filled_topic, member
from matrix_reading import read_some
from matrix_table import Difference, scenario
from matrix_world import World, error_text, outcome_of
from twisted.internet.defer import Deferred

from kreplica.client import ConsumedRecord, Producer
from kreplica.client.admin import Admin
from kreplica.model import TopicPartition

SUBJECT = "groups"
NOT_OFFERED = "KIP-848 is disabled by default in 3.9"

LONG_S = 2.0
"""More than three session timeouts of classic members that set 0.6 s; more than one of other members."""

PROTOCOLS: Mapping[str, Mapping[str, object]] = {
    "eager, range": EAGER,
    "eager, round robin": {"protocol": "classic", "assignors": ("roundrobin",)},
    "eager, sticky": {"protocol": "classic", "assignors": ("sticky",)},
    "cooperative": COOPERATIVE,
    "KIP-848 if available": {"protocol": "auto"},
}


async def two_members(options: Mapping[str, object], world: World) -> object:
    """One member, then two, then one: records written while there are two are read once by one of them."""
    topic, group = await create_filled_topic(world), world.new_name("g")
    one = Reader(member(world, group, **options), topic)
    await world.wait_until(lambda: one.share == 4 and len(one.values) == 40)
    two = Reader(member(world, group, **options), topic)
    await world.wait_until(lambda: (one.share, two.share) == (2, 2))
    later = [b"later %d" % number for number in range(40)]
    async with Producer(world.cluster) as producer:
        for number, value in enumerate(later):
            producer.send(topic, value, partition=number % 4)
        await producer.flush()
    await world.wait_until(lambda: len({*one.values, *two.values}) == 80)
    shares = sorted((len(one.values), len(two.values)))
    await one.stop()
    await world.wait_until(lambda: two.share == 4)
    await two.stop()
    assert (one.error, two.error) == (None, None)
    return shares, sorted(two.values, key=str) == sorted(set(two.values), key=str)


for each_name, each_options in PROTOCOLS.items():
    scenario(SUBJECT, f"two members share partitions ({each_name})", ([20, 60], True))(
        partial(two_members, each_options)
    )


@scenario(
    SUBJECT,
    "remote assignor (KIP-848)",
    ("uniform", "range", "BrokerRefused UNSUPPORTED_ASSIGNOR"),
    {KAFKA_3: Difference(("BrokerRefused UNSUPPORTED_VERSION",) * 3, NOT_OFFERED)},
)
async def remote_assignors(world: World) -> object:
    topic = await create_filled_topic(world)

    async def assignor_of_group(name: str) -> str:
        group = world.new_name("g")
        async with member(world, group, topic, protocol="consumer", remote_assignor=name) as consumer:
            await read_some(consumer, 40)
            return (await Admin(world.cluster).describe_group(group)).assignor

    return tuple([await outcome_of(assignor_of_group(each)) for each in ("uniform", "range", "no-such")])


@scenario(SUBJECT, "a member with a handler slower than the session timeout loses nothing (classic)", ([b"0", b"1"], 2))
async def slow_handler(world: World) -> object:
    topic, group = await create_filled_topic(world, 1, 2), world.new_name("g")
    values: list[bytes | None] = []

    async def handle(record: ConsumedRecord) -> None:
        await world.pause(LONG_S / 2)
        values.append(record.value)

    async with member(world, group, topic, session_timeout_s=0.6, **EAGER) as consumer:
        going = Deferred.fromCoroutine(consumer.run(handle))
        await world.wait_until(lambda: len(values) == 2)
        await consumer.close()
        await going
    found = await Admin(world.cluster).group_offsets(group)
    return values, found[TopicPartition(topic, 0)].offset


@scenario(SUBJECT, "retained partitions are not revoked (cooperative)", [2, 0, True])
async def retained_partitions(world: World) -> object:
    topic, group = await create_filled_topic(world), world.new_name("g")
    taken = RevocationListener()

    one = Reader(member(world, group, **COOPERATIVE), topic, listener=taken)
    await world.wait_until(lambda: one.share == 4)
    before = one.consumer.assignment
    two = Reader(member(world, group, **COOPERATIVE), topic)
    await world.wait_until(lambda: (one.share, two.share) == (2, 2))
    gone = {each for partitions in taken.partitions for each in partitions}
    kept_ones = before - gone
    result = [len(gone), len(two.consumer.assignment ^ gone), one.consumer.assignment == kept_ones]
    await one.stop()
    await two.stop()
    return result


@scenario(
    SUBJECT, "KIP-848 required", "joined", {KAFKA_3: Difference("BrokerRefused UNSUPPORTED_VERSION", NOT_OFFERED)}
)
async def kip_848_required(world: World) -> object:
    topic, group = await create_filled_topic(world), world.new_name("g")
    consumer = member(world, group, topic, protocol="consumer")

    async def join() -> str:
        async with consumer:
            assert len(await read_some(consumer, 40)) == 40
        return "joined"

    return await outcome_of(join())


@scenario(SUBJECT, "continues at the committed offsets", ([10, 15, 25], 40))
async def continue_at_committed_offsets(world: World) -> object:
    topic, group = await create_filled_topic(world, 1, 40), world.new_name("g")
    place = TopicPartition(topic, 0)
    firsts, committed = [], 0
    for count in (10, 5, 10):
        async with member(world, group, topic, auto_commit_s=None) as consumer:
            found = (await read_some(consumer, count))[:count]
            firsts.append(found[-1].offset + 1)
            await consumer.commit({place: found[-1].offset + 1})
    async with member(world, group, topic) as consumer:
        committed = (await consumer.committed([place]))[place].offset
        rest = await read_some(consumer, 40 - committed)
    return firsts, committed + len(rest)


@scenario(SUBJECT, "automatic commit of processed records", 20)
async def automatic_commit(world: World) -> object:
    topic, group = await create_filled_topic(world, 1, 40), world.new_name("g")
    place = TopicPartition(topic, 0)
    async with member(world, group, topic) as consumer:
        count = 0
        async for _ in consumer:
            count += 1
            if count == 21:
                break
    async with member(world, group) as consumer:
        return (await consumer.committed([place]))[place].offset


@scenario(SUBJECT, "start without committed offsets", ([b"0"], [b"new"], "OffsetOutOfRange OFFSET_OUT_OF_RANGE"))
async def start_without_commits(world: World) -> object:
    topic = await create_filled_topic(world, 1)
    async with member(world, world.new_name("g"), topic) as consumer:
        first = [record.value for record in (await read_some(consumer, 1))[:1]]
    async with (
        member(world, world.new_name("g"), topic, reset="latest") as consumer,
        Producer(world.cluster) as producer,
    ):
        await consumer.poll(0.1)
        await producer.send(topic, b"new")
        last = [record.value for record in await read_some(consumer, 1)]
    async with member(world, world.new_name("g"), topic, reset="fail") as consumer:
        outcome = await outcome_of(read_some(consumer, 1))
    return first, last, outcome


async def slow_user_code(options: Mapping[str, object], world: World) -> object:
    """User code awaits for three session timeouts: no partition is revoked, and no record is processed twice."""
    topic, group = await create_filled_topic(world, 1), world.new_name("g")
    async with member(world, group, topic, session_timeout_s=0.6, **options) as consumer:
        other = member(world, group, topic, session_timeout_s=0.6, **options)
        values = []
        async for record in consumer:
            values.append(record.value)
            if len(values) == 1:
                await world.pause(LONG_S)
            if len(values) == 10:
                break
        before = consumer.identity
        await consumer.commit()
        after = consumer.identity
        await other.close()
    return values == [b"%d" % number for number in range(10)], before == after


scenario(
    SUBJECT, "a member whose handler awaits for three session timeouts stays in the group (classic)", (True, True)
)(partial(slow_user_code, EAGER))
scenario(
    SUBJECT,
    "a member whose handler awaits longer than the session timeout stays in the group (KIP-848 if available)",
    (True, True),
)(partial(slow_user_code, {"protocol": "auto"}))


@scenario(SUBJECT, "a static member keeps its partitions after a restart", (True, True, 0))
async def static(world: World) -> object:
    topic, group = await create_filled_topic(world), world.new_name("g")
    taken = RevocationListener()

    one = Reader(member(world, group, instance_id="one", **EAGER), topic)
    two = Reader(member(world, group, instance_id="two", **EAGER), topic, listener=taken)
    await world.wait_until(lambda: (one.share, two.share) == (2, 2))
    before, generation = one.consumer.assignment, two.consumer.identity.generation
    taken.partitions.clear()
    await one.stop()
    again = Reader(member(world, group, instance_id="one", **EAGER), topic)
    await world.wait_until(lambda: again.share == 2)
    result = again.consumer.assignment == before, two.consumer.identity.generation == generation, len(taken.partitions)
    await again.stop()
    await two.stop()
    return result


@scenario(
    SUBJECT,
    "a second member with the same instance ID fences the first (classic)",
    ["BrokerRefused FENCED_INSTANCE_ID", None],
)
async def fenced(world: World) -> object:
    topic, group = await create_filled_topic(world), world.new_name("g")
    first = Reader(member(world, group, instance_id="one", **EAGER), topic)
    await world.wait_until(lambda: first.share == 4)
    second = Reader(member(world, group, instance_id="one", **EAGER), topic)
    await world.wait_until(lambda: first.error and second.share == 4)
    result = [None if each.error is None else error_text(each.error) for each in (first, second)]
    await first.stop()
    await second.stop()
    return result


UNRELEASED = ("GaveUp < BrokerRefused UNRELEASED_INSTANCE_ID", 4)


@scenario(
    SUBJECT,
    "a second member with the same instance ID waits for the first (KIP-848)",
    UNRELEASED,
    {KAFKA_3: Difference(("fenced the first", 0), NOT_OFFERED)},
)
async def unreleased(world: World) -> object:
    topic, group = await create_filled_topic(world), world.new_name("g")
    first = Reader(member(world, group, instance_id="one"), topic)
    await world.wait_until(lambda: first.share == 4)
    second = member(world, group, instance_id="one", cluster=world.new_cluster(operation_timeout_s=0.5))
    outcome = await outcome_of(second.subscribe([topic]))
    if outcome is None:
        await world.wait_until(lambda: first.error)
        outcome = "fenced the first"
    await second.close()
    result = outcome, first.share
    await first.stop()
    return result


@scenario(SUBJECT, "incompatible protocols", "BrokerRefused INCONSISTENT_GROUP_PROTOCOL")
async def inconsistent(world: World) -> object:
    topic, group = await create_filled_topic(world), world.new_name("g")
    async with member(world, group, topic, **EAGER) as one:
        await read_some(one, 1)
        two = member(world, group, **COOPERATIVE)
        outcome = await outcome_of(two.subscribe([topic]))
        await two.close()
        return outcome


@scenario(SUBJECT, "a new topic matches a pattern subscription", (10, 20))
async def pattern(world: World) -> object:
    prefix, group = world.new_name("p"), world.new_name("g")
    await create_filled_topic(world, 1, name=f"{prefix}-a")
    async with member(
        world, group, pattern=re.compile(re.escape(prefix) + "-.*"), cluster=world.new_cluster(metadata_age_s_max=0.3)
    ) as consumer:
        first = await read_some(consumer, 10)
        await create_filled_topic(world, 1, name=f"{prefix}-b")
        later = await read_some(consumer, 10)
    return len(first), len(first) + len(later)


@scenario(SUBJECT, "a subscribed topic is created later", 10)
async def topic_created_later(world: World) -> object:
    name, group = world.new_name(), world.new_name("g")
    async with member(world, group, name, cluster=world.new_cluster(metadata_age_s_max=0.3)) as consumer:
        reading = Deferred.fromCoroutine(read_some(consumer, 10))
        await world.pause(0.3)
        await create_filled_topic(world, 1, name=name)
        return len(await reading)


@scenario(SUBJECT, "a new subscription replaces the old one", (True, True))
async def resubscribed(world: World) -> object:
    first, second, group = await create_filled_topic(world), await create_filled_topic(world), world.new_name("g")
    async with member(world, group, first) as consumer:
        before = {record.topic for record in await read_some(consumer, 40)}
        await consumer.subscribe([second])
        after = {record.topic for record in await read_some(consumer, 40)}
    return before == {first}, after == {second}


@scenario(SUBJECT, "commit by a removed member", "CommitFailed")
async def late_commit(world: World) -> object:
    """A member whose partitions were reassigned commits nothing."""
    topic, group = await create_filled_topic(world, 1), world.new_name("g")
    place = TopicPartition(topic, 0)
    async with member(world, group, topic, auto_commit_s=None, **EAGER) as one:
        await read_some(one, 1)
        (await Admin(world.cluster).remove_members(group)).raise_first()
        # The error is from the coordinator, or from the member itself if it sent a heartbeat before.
        return str(await outcome_of(one.commit({place: 1}))).split(" < ")[0]
