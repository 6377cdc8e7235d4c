"""Matrix scenarios: requests of an administrator and their errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matrix_members import EAGER, create_filled_topic, member
from matrix_reading import read_some
from matrix_table import scenario
from matrix_world import World, error_text, outcome_of

from kreplica.client import Producer, ProducerOptions
from kreplica.client.admin import Admin, ConfigChange, ConfigResource, NewTopic
from kreplica.client.errors import ClientError
from kreplica.model import TopicPartition

SUBJECT = "admin: topics and settings"


def only_error(failed: Mapping[Any, ClientError]) -> str:
    """Return the only error."""
    (error,) = failed.values()
    return error_text(error)


# --- topics ---


@scenario(SUBJECT, "creates, describes, lists and deletes a topic", (3, 3, True, True, False))
async def topics(world: World) -> object:
    admin, name = Admin(world.cluster), world.new_name()
    await admin.create_topic(name, 3, 3)
    await world.wait_until_in_sync(name)
    described = await admin.describe_topic(name)
    listed = name in [each.name for each in await admin.list_topics()]
    by_id = (await admin.describe_topic(described.topic_id)).name == name
    await admin.delete_topic(name)
    while name in (names := [each.name for each in await admin.list_topics()]):
        await world.pause(0.05)
    partitions = described.partitions
    return len(partitions), len(partitions[0].replicas), listed, by_id, name in names


@scenario(SUBJECT, "validate_only creates no topic", (False, "BrokerRefused INVALID_REPLICATION_FACTOR"))
async def validate_only(world: World) -> object:
    admin, name, other = Admin(world.cluster), world.new_name(), world.new_name()
    (await admin.create_topics([NewTopic(name, 2, 3)], validate_only=True)).raise_first()
    refused = await admin.create_topics([NewTopic(other, 2, 9)], validate_only=True)
    names = [each.name for each in await admin.list_topics()]
    return name in names or other in names, only_error(refused.failed)


@scenario(
    SUBJECT,
    "invalid topics",
    {
        "existing": "BrokerRefused TOPIC_ALREADY_EXISTS",
        "bad name": "BrokerRefused INVALID_TOPIC_EXCEPTION",
        "no partitions": "BrokerRefused INVALID_PARTITIONS",
        "many replicas": "BrokerRefused INVALID_REPLICATION_FACTOR",
        "unknown setting": "BrokerRefused INVALID_CONFIG",
        "bad value": "BrokerRefused INVALID_CONFIG",
        "bad assignment": "BrokerRefused INVALID_REPLICA_ASSIGNMENT",
        "deleting none": "BrokerRefused UNKNOWN_TOPIC_OR_PARTITION",
        "describing none": "BrokerRefused UNKNOWN_TOPIC_OR_PARTITION",
    },
)
async def refused_topics(world: World) -> object:
    admin, existing, new = Admin(world.cluster), await world.topic(), world.new_name()
    return {
        "existing": await outcome_of(admin.create_topic(existing, 1, 3)),
        "bad name": await outcome_of(admin.create_topic("not/good", 1, 3)),
        "no partitions": await outcome_of(admin.create_topic(new, 0, 3)),
        "many replicas": await outcome_of(admin.create_topic(new, 1, 9)),
        "unknown setting": await outcome_of(admin.create_topic(new, 1, 3, {"no.such.setting": "1"})),
        "bad value": await outcome_of(admin.create_topic(new, 1, 3, {"retention.ms": "soon"})),
        "bad assignment": only_error((await admin.create_topics([NewTopic(new, assignment={0: [1, 77]})])).failed),
        "deleting none": await outcome_of(admin.delete_topic(new)),
        "describing none": await outcome_of(admin.describe_topic(new)),
    }


@scenario(SUBJECT, "adds partitions", (5, "BrokerRefused INVALID_PARTITIONS"))
async def more_partitions(world: World) -> object:
    admin, name = Admin(world.cluster), await world.topic(2)
    (await admin.create_partitions({name: 5})).raise_first()
    await world.wait_until_in_sync(name, 5)
    fewer = (await admin.create_partitions({name: 3})).failed
    return len((await admin.describe_topic(name)).partitions), only_error(fewer)


# --- settings ---


@scenario(
    SUBJECT,
    "reads and changes settings of a topic",
    (
        ("604800000", "DEFAULT_CONFIG"),
        ("5000", "DYNAMIC_TOPIC_CONFIG"),
        ("delete,compact", "DYNAMIC_TOPIC_CONFIG"),
        ("604800000", "DEFAULT_CONFIG"),
    ),
)
async def settings(world: World) -> object:
    admin = Admin(world.cluster)
    topic = ConfigResource.topic(await world.topic())

    async def change(change: ConfigChange, value: str) -> object:
        """Change a configuration, and return its value when every broker knows it."""
        await admin.alter_config(topic, [change])
        while (entry := (await admin.describe_config(topic))[change.name]).value != value:
            await world.pause(0.02)
        return entry.value, entry.source.name

    before = (await admin.describe_config(topic))["retention.ms"]
    return (
        (before.value, before.source.name),
        await change(ConfigChange.set("retention.ms", "5000"), "5000"),
        await change(ConfigChange.append("cleanup.policy", "compact"), "delete,compact"),
        await change(ConfigChange.delete("retention.ms"), "604800000"),
    )


@scenario(
    SUBJECT,
    "invalid settings",
    {
        "unknown": "BrokerRefused INVALID_CONFIG",
        "bad value": "BrokerRefused INVALID_CONFIG",
        "no topic": "BrokerRefused UNKNOWN_TOPIC_OR_PARTITION",
        "describing no topic": "BrokerRefused UNKNOWN_TOPIC_OR_PARTITION",
    },
)
async def refused_settings(world: World) -> object:
    admin = Admin(world.cluster)
    topic, none = ConfigResource.topic(await world.topic()), ConfigResource.topic(world.new_name())
    return {
        "unknown": await outcome_of(admin.alter_config(topic, [ConfigChange.set("no.such.setting", "1")])),
        "bad value": await outcome_of(admin.alter_config(topic, [ConfigChange.set("retention.ms", "soon")])),
        "no topic": await outcome_of(admin.alter_config(none, [ConfigChange.set("retention.ms", "5000")])),
        "describing no topic": await outcome_of(admin.describe_config(none)),
    }


@scenario(SUBJECT, "reads settings of a broker", (True, True))
async def broker_settings(world: World) -> object:
    admin = Admin(world.cluster)
    entries = await admin.describe_config(ConfigResource.broker(1))
    return entries["min.insync.replicas"].value == "2", entries["log.dirs"].read_only


# --- groups ---


@scenario(
    SUBJECT,
    "lists, describes and deletes a group",
    ("Stable", "range", 1, 4, "BrokerRefused NON_EMPTY_GROUP", "Empty", "BrokerRefused GROUP_ID_NOT_FOUND"),
)
async def groups(world: World) -> object:
    admin, topic, group = Admin(world.cluster), await create_filled_topic(world), world.new_name("g")
    async with member(world, group, topic, **EAGER) as consumer:
        await read_some(consumer, 40)
        described = await admin.describe_group(group)
        not_empty = await outcome_of(admin.delete_group(group))
    (one,) = described.members
    (listed,) = [each for each in await admin.list_groups() if each.group_id == group]
    await admin.delete_group(group)
    seen = described.state.value, described.assignor, len(described.members), len(one.assignment), not_empty
    return (*seen, listed.state.value, await outcome_of(admin.describe_group(group)))


@scenario(SUBJECT, "removes a static member from its group", (1, 0))
async def removed_member(world: World) -> object:
    admin, topic, group = Admin(world.cluster), await create_filled_topic(world), world.new_name("g")
    async with member(world, group, topic, instance_id="one", **EAGER) as consumer:
        await read_some(consumer, 40)
    before = len((await admin.describe_group(group)).members)
    (await admin.remove_members(group)).raise_first()
    return before, len((await admin.describe_group(group)).members)


# --- records ---


@scenario(SUBJECT, "deletes records", ({0: 6}, "BrokerRefused OFFSET_OUT_OF_RANGE"))
async def records(world: World) -> object:
    admin, topic = Admin(world.cluster), await create_filled_topic(world, 1)
    place = TopicPartition(topic, 0)
    deleted = await admin.delete_records({place: 6})
    beyond = await admin.delete_records({place: 60})
    return {place.partition: deleted[place] for place in deleted.succeeded}, only_error(beyond.failed)


# --- transactions ---


@scenario(SUBJECT, "describes an open transaction", ("Ongoing", 1))
async def transactions(world: World) -> object:
    admin, topic, name = Admin(world.cluster), await world.topic(), world.new_name("x")
    async with Producer(world.cluster, ProducerOptions(transactional_id=name)) as producer:
        await producer.begin()
        await producer.send(topic, b"v")
        described = (await admin.describe_transactions([name]))[name]
        await producer.abort()
    return described.state.value, len(described.partitions)
