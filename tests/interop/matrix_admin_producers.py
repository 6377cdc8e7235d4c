"""Matrix scenarios: offsets of groups, producers and their transactions."""

from __future__ import annotations

from matrix_members import EAGER, create_filled_topic, member
from matrix_reading import read_some
from matrix_table import scenario
from matrix_world import World, error_text, outcome_of

from kreplica.client import Producer, ProducerOptions, TopicPartition
from kreplica.client.admin import (
    AclOperation,
    Admin,
    ConfigChange,
    ConfigResource,
    GroupState,
    GroupType,
    Replica,
    TransactionState,
)
from kreplica.client_core.offsets import CommittedOffset

SUBJECT = "admin: producers and features"


def failures(outcomes: object) -> dict[object, str]:
    """Return the errors by item of the request."""
    failed = outcomes.failed  # type: ignore[attr-defined]
    return {place: error_text(failed[item]) for place, item in enumerate(outcomes) if item in failed}  # type: ignore[call-overload]


@scenario(
    SUBJECT,
    "commits, reads and deletes offsets of a group; returns its lag",
    ({0: (1, ""), 1: (2, "why")}, {0: 9, 1: 8}, {0: (1, "")}, {"a": 1, "b": 0}),
)
async def group_offsets(world: World) -> object:
    admin, topic, group = Admin(world.cluster), await create_filled_topic(world, 2), world.new_name("g")
    first, second = world.partitions(topic, 2)
    (await admin.alter_group_offsets(group, {first: 1, second: CommittedOffset(2, metadata="why")})).raise_first()

    async def committed_offsets() -> object:
        offsets = await admin.group_offsets(group)
        return {each.partition: (offsets[each].offset, offsets[each].metadata) for each in sorted(offsets)}

    before = await committed_offsets()
    lag = (await admin.group_lag(group)).raise_first()
    lags = {each.partition: lag[each].lag for each in sorted(lag)}
    (await admin.delete_group_offsets(group, [second])).raise_first()
    several = (await admin.list_group_offsets({group: [first], world.new_name("g"): None})).raise_first()
    counts = dict(zip("ab", map(len, several.values()), strict=True))
    return before, lags, await committed_offsets(), counts


@scenario(
    SUBJECT,
    "invalid offset requests",
    {
        "no topic": {0: "GaveUp < BrokerRefused UNKNOWN_TOPIC_OR_PARTITION"},
        "a group with members": {0: "BrokerRefused UNKNOWN_MEMBER_ID"},
        "a topic that is read": {0: "BrokerRefused GROUP_SUBSCRIBED_TO_TOPIC"},
        "no group": {0: "BrokerRefused GROUP_ID_NOT_FOUND"},
    },
)
async def refused_offsets(world: World) -> object:
    admin, topic, group = Admin(world.cluster), await create_filled_topic(world), world.new_name("g")
    partition, none = TopicPartition(topic, 0), TopicPartition(world.new_name(), 0)
    async with member(world, group, topic, **EAGER) as consumer:
        await read_some(consumer, 1)
        return {
            "no topic": failures(await admin.alter_group_offsets(world.new_name("g"), {none: 1}, timeout_s=0.5)),
            "a group with members": failures(await admin.alter_group_offsets(group, {partition: 1})),
            "a topic that is read": failures(await admin.delete_group_offsets(group, [partition])),
            "no group": failures(await admin.delete_group_offsets(world.new_name("g"), [partition])),
        }


@scenario(SUBJECT, "lists groups by state and type", (True, False, True))
async def listed_groups(world: World) -> object:
    admin, topic, group = Admin(world.cluster), await create_filled_topic(world), world.new_name("g")
    (await admin.alter_group_offsets(group, {TopicPartition(topic, 0): 1})).raise_first()

    def is_listed(groups: object) -> bool:
        return group in [each.group_id for each in groups]  # type: ignore[attr-defined]

    return (
        is_listed(await admin.list_groups(states=[GroupState.EMPTY], types=[GroupType.CLASSIC])),
        is_listed(await admin.list_groups(states=[GroupState.STABLE])),
        is_listed(await admin.list_groups()),
    )


@scenario(SUBJECT, "fences a producer; its transaction is aborted", ("ProducerUnusable", ["Empty"], True))
async def fenced(world: World) -> object:
    admin, topic, name = Admin(world.cluster), await world.topic(), world.new_name("x")
    async with Producer(world.cluster, ProducerOptions(transactional_id=name)) as producer:
        await producer.begin()
        await producer.send(topic, b"v")
        identity = (await admin.fence_producers([name]))[name]
        refused = await outcome_of(producer.commit())
    known = await admin.describe_transactions([name])
    return str(refused).split()[0], [each.state.value for each in known.succeeded.values()], identity.producer_epoch > 0


@scenario(SUBJECT, "lists transactions and producers of partitions", (True, True, False, False, 0, -1))
async def producers(world: World) -> object:
    admin, topic, name = Admin(world.cluster), await world.topic(), world.new_name("x")
    partition = TopicPartition(topic, 0)

    async def is_listed(**filters: object) -> bool:
        listed = await admin.list_transactions(**filters)  # type: ignore[arg-type]
        return name in [each.transactional_id for each in listed]

    async with Producer(world.cluster, ProducerOptions(transactional_id=name)) as producer:
        await producer.begin()
        await producer.send(topic, b"v")
        (state,) = (await admin.describe_producers([partition]))[partition]
        seen = (
            await is_listed(states=[TransactionState.ONGOING]),
            await is_listed(producer_ids=[state.producer_id]),
            await is_listed(states=[TransactionState.EMPTY]),
            await is_listed(longer_than_ms=600_000),
            state.transaction_start_offset,
        )
        await producer.commit()
    while state.transaction_start_offset >= 0:  # the coordinator responds before the markers are written
        await world.pause(0.02)
        (state,) = (await admin.describe_producers([partition]))[partition]
    return *seen, state.transaction_start_offset


@scenario(SUBJECT, "aborts a transaction in one partition by a marker", ({}, -1))
async def markers(world: World) -> object:
    admin, topic, name = Admin(world.cluster), await world.topic(), world.new_name("x")
    partition = TopicPartition(topic, 0)
    async with Producer(world.cluster, ProducerOptions(transactional_id=name)) as producer:
        await producer.begin()
        await producer.send(topic, b"v")
        (state,) = (await admin.describe_producers([partition]))[partition]
        hanging = await admin.hanging_transactions([partition], open_for_ms=0)
        await admin.abort_transaction(partition, state)
        (state,) = (await admin.describe_producers([partition]))[partition]
        await outcome_of(producer.abort())
    return hanging, state.transaction_start_offset


@scenario(SUBJECT, "replaces settings of a topic", {"retention.ms": "9000"})
async def replaced(world: World) -> object:
    admin = Admin(world.cluster)
    topic = ConfigResource.topic(await world.topic(configs={"segment.bytes": 1 << 20}))
    (await admin.replace_configs({topic: {"retention.ms": "9000"}})).raise_first()
    await admin.alter_config(topic, [ConfigChange.delete("cleanup.policy")])
    while (entries := await admin.describe_config(topic))["retention.ms"].value != "9000":
        await world.pause(0.02)
    return {each.name: each.value for each in entries.values() if each.source.name == "DYNAMIC_TOPIC_CONFIG"}


@scenario(
    SUBJECT,
    "moves a replica to an unknown directory",
    {0: "BrokerRefused LOG_DIR_NOT_FOUND"},
)
async def directories(world: World) -> object:
    admin, topic = Admin(world.cluster), await world.topic()
    return failures(await admin.alter_replica_log_dirs({Replica(TopicPartition(topic, 0), 1): "/not/there"}))


@scenario(SUBJECT, "returns finalized features", True)
async def features(world: World) -> object:
    features = await Admin(world.cluster).describe_features()
    return features.epoch >= 0 and all(each.lowest <= each.highest for each in features.finalized.values())


@scenario(
    SUBJECT,
    "returns authorized operations of cluster, topic and group",
    (True, True, True),
)
async def authorized_operations(world: World) -> object:
    admin, topic, group = Admin(world.cluster), await create_filled_topic(world), world.new_name("g")
    (await admin.alter_group_offsets(group, {TopicPartition(topic, 0): 1})).raise_first()
    described = (
        (await admin.describe_cluster(operations=True)).operations,
        (await admin.describe_topics([topic], operations=True))[topic].operations,
        (await admin.describe_groups([group], operations=True))[group].operations,
    )
    return tuple(each and AclOperation.DESCRIBE in each for each in described)
