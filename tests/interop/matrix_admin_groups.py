"""Matrix scenarios: an administrator's requests about offsets of groups, and about producers."""

from __future__ import annotations

from matrix_admin import only_error
from matrix_members import EAGER, create_filled_topic, member
from matrix_reading import read_some, read_values
from matrix_table import scenario
from matrix_world import World, outcome_of

from kreplica.client import Isolation, Producer, ProducerOptions
from kreplica.client.admin import Admin, ConfigChange, ConfigResource

SUBJECT = "admin: offsets and transactions"


@scenario(
    SUBJECT,
    "sets, reads and deletes offsets of a group; returns its lag",
    ({0: 3, 1: 4}, {0: 7, 1: 6}, {1: 4}, {}),
)
async def group_offsets(world: World) -> object:
    admin, topic, group = Admin(world.cluster), await create_filled_topic(world, 2), world.new_name("g")
    one, other = world.partitions(topic, 2)
    (await admin.alter_group_offsets(group, {one: 3, other: 4})).raise_first()
    first = {place.partition: found.offset for place, found in (await admin.group_offsets(group)).items()}
    lags = {place.partition: each.lag for place, each in (await admin.group_lag(group)).succeeded.items()}
    (await admin.delete_group_offsets(group, [one])).raise_first()
    second = {place.partition: found.offset for place, found in (await admin.group_offsets(group)).items()}
    return first, lags, second, dict(await admin.group_offsets(world.new_name("g")))


@scenario(
    SUBJECT,
    "offsets of a group with members cannot be changed",
    ("BrokerRefused UNKNOWN_MEMBER_ID", "BrokerRefused GROUP_SUBSCRIBED_TO_TOPIC"),
)
async def offsets_of_active_group(world: World) -> object:
    admin, topic, group = Admin(world.cluster), await create_filled_topic(world, 1), world.new_name("g")
    (place,) = world.partitions(topic)
    async with member(world, group, topic, **EAGER) as consumer:
        await read_some(consumer, 10)
        await consumer.commit()
        changed = await admin.alter_group_offsets(group, {place: 3})
        deleted = await admin.delete_group_offsets(group, [place])
    return only_error(changed.failed), only_error(deleted.failed)


@scenario(SUBJECT, "unknown group", ("BrokerRefused GROUP_ID_NOT_FOUND",) * 2)
async def unknown_group(world: World) -> object:
    admin, group, topic = Admin(world.cluster), world.new_name("g"), await world.topic()
    deleted = await outcome_of(admin.delete_group(group))
    return deleted, only_error((await admin.delete_group_offsets(group, world.partitions(topic))).failed)


@scenario(SUBJECT, "lists transactional IDs and producers of a partition", ("Ongoing", True, True, "CompleteAbort"))
async def producers(world: World) -> object:
    admin, topic, name = Admin(world.cluster), await world.topic(), world.new_name("x")
    (place,) = world.partitions(topic)
    async with Producer(world.cluster, ProducerOptions(transactional_id=name)) as producer:
        await producer.begin()
        await producer.send(topic, b"v")
        (listed,) = [each for each in await admin.list_transactions() if each.transactional_id == name]
        (state,) = (await admin.describe_producers([place]))[place]
        known = state.producer_id == listed.producer_id, state.transaction_start_offset == 0
        await producer.abort()
    while (after := (await admin.describe_transactions([name]))[name].state.value) == "PrepareAbort":
        await world.pause(0.02)
    return listed.state.value, *known, after


@scenario(SUBJECT, "fences a producer and aborts its transaction", ("ProducerUnusable", []))
async def fencing(world: World) -> object:
    admin, topic, name = Admin(world.cluster), await world.topic(), world.new_name("x")
    producer = Producer(world.cluster, ProducerOptions(transactional_id=name))
    await producer.begin()
    await producer.send(topic, b"v")
    (await admin.fence_producers([name])).raise_first()
    outcome = str(await outcome_of(producer.commit())).split(" ", 1)[0]
    await producer.close()
    return outcome, await read_values(world, topic, Isolation.READ_COMMITTED)


@scenario(SUBJECT, "transactions of live producers are not reported as hanging", {})
async def hanging(world: World) -> object:
    admin, topic = Admin(world.cluster), await world.topic()
    async with Producer(world.cluster, ProducerOptions(transactional_id=world.new_name("x"))) as producer:
        await producer.begin()
        await producer.send(topic, b"v")
        found = await admin.hanging_transactions(world.partitions(topic), open_for_ms=0)
        await producer.abort()
    return {place.partition: len(states) for place, states in found.items() if states}


@scenario(SUBJECT, "unknown transactional ID", "BrokerRefused TRANSACTIONAL_ID_NOT_FOUND")
async def unknown_transactional_id(world: World) -> object:
    return only_error((await Admin(world.cluster).describe_transactions([world.new_name("x")])).failed)


@scenario(SUBJECT, "replaces all settings of a topic", (("5000", "604800000"), ("604800000", "70000")))
async def replaced(world: World) -> object:
    admin, resource = Admin(world.cluster), ConfigResource.topic(await world.topic())
    names = ("retention.ms", "max.message.bytes")
    await admin.alter_config(resource, [ConfigChange.set("retention.ms", "5000")])
    seen = []
    for value in ("5000", "604800000"):
        if seen:
            (await admin.replace_configs({resource: {"max.message.bytes": "70000"}})).raise_first()
        while (entries := await admin.describe_config(resource))[names[0]].value != value:
            await world.pause(0.02)
        seen.append(entries)
    return (seen[0][names[0]].value, seen[1][names[0]].value), tuple(seen[1][each].value for each in names)
