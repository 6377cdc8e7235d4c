"""Matrix scenarios: an administrator's requests about brokers and replicas."""

from __future__ import annotations

from matrix_admin import only_error
from matrix_consumer import create_filled_topic
from matrix_table import scenario
from matrix_world import World, error_text

from kreplica.client import EARLIEST, LATEST
from kreplica.client.admin import Admin, NewTopic
from kreplica.client_core.offsets import MAX_TIMESTAMP
from kreplica.model import TopicPartition

SUBJECT = "admin: cluster"


@scenario(SUBJECT, "describes the cluster", ([1, 2, 3], True, True))
async def description(world: World) -> object:
    found = await Admin(world.cluster).describe_cluster()
    return sorted(found.brokers), found.controller_id in found.brokers, bool(found.cluster_id)


@scenario(SUBJECT, "returns the API versions of brokers", ([1, 2, 3], True, True))
async def versions(world: World) -> object:
    found = await Admin(world.cluster).broker_versions()
    (one, *_) = found.succeeded.values()
    return sorted(found.succeeded), one.apis["Produce"].highest >= 9, one.apis["Fetch"].highest >= 12


@scenario(SUBJECT, "returns offsets by timestamp", (0, 10, 9, 4))
async def offsets(world: World) -> object:
    admin, topic = Admin(world.cluster), await create_filled_topic(world, 1)
    place = TopicPartition(topic, 0)
    times = [(await admin.list_offsets({place: each}))[place] for each in (EARLIEST, LATEST, MAX_TIMESTAMP)]
    await admin.delete_records({place: 4})
    times.append((await admin.list_offsets({place: EARLIEST}))[place])
    return tuple(each.offset for each in times)


@scenario(SUBJECT, "reassigns replicas", ((3, 2), {}, "BrokerRefused INVALID_REPLICA_ASSIGNMENT"))
async def reassignment(world: World) -> object:
    admin, topic = Admin(world.cluster), world.new_name()
    place = TopicPartition(topic, 0)
    (await admin.create_topics([NewTopic(topic, assignment={0: [1, 2]})])).raise_first()
    await world.wait_until_in_sync(topic)
    (await admin.alter_reassignments({place: [3, 2]})).raise_first()
    while await admin.list_reassignments([place]):
        await world.pause(0.05)
    refused = await admin.alter_reassignments({place: [3, 77]})
    while (replicas := (await admin.describe_topic(topic)).partitions[0].replicas) != (3, 2):
        await world.pause(0.05)
    return replicas, dict(await admin.list_reassignments([place])), *map(error_text, refused.failed.values())


@scenario(
    SUBJECT,
    "cancels a reassignment that does not exist",
    ("BrokerRefused NO_REASSIGNMENT_IN_PROGRESS", "BrokerRefused UNKNOWN_TOPIC_OR_PARTITION"),
)
async def cancelling(world: World) -> object:
    admin, place = Admin(world.cluster), TopicPartition(await world.topic(), 0)
    missing = TopicPartition(world.new_name(), 0)
    found = [await admin.alter_reassignments({each: None}) for each in (place, missing)]
    return tuple(error_text(error) for each in found for error in each.failed.values())


@scenario(SUBJECT, "elects the preferred leader", (False, "BrokerRefused UNKNOWN_TOPIC_OR_PARTITION", True, True))
async def election(world: World) -> object:
    admin, topic, other = Admin(world.cluster), await world.topic(), world.new_name()
    place, missing = TopicPartition(topic, 0), TopicPartition(other, 0)
    unneeded = (await admin.elect_leaders([place]))[place]
    (refused,) = (await admin.elect_leaders([missing])).failed.values()
    replicas = (await admin.describe_topic(topic)).partitions[0].replicas
    (await admin.alter_reassignments({place: [*replicas[1:], replicas[0]]})).raise_first()
    while await admin.list_reassignments([place]):
        await world.pause(0.05)
    elected = (await admin.elect_leaders([place]))[place]
    while (await admin.describe_topic(topic)).partitions[0].leader != replicas[1]:
        await world.pause(0.05)
    return unneeded, error_text(refused), elected, True


@scenario(SUBJECT, "describes log directories", ([1, 2, 3], True))
async def log_dirs(world: World) -> object:
    admin, topic = Admin(world.cluster), await create_filled_topic(world, 1)
    place = TopicPartition(topic, 0)
    found = await admin.describe_log_dirs(partitions=[place])
    sizes = {
        broker: [each.replicas[place].size_bytes for each in dirs if place in each.replicas]
        for broker, dirs in found.succeeded.items()
    }
    return sorted(sizes), all(len(each) == 1 and each[0] > 0 for each in sizes.values())


@scenario(SUBJECT, "unknown broker", "GaveUp < LeaderUnknown")
async def no_such_broker(world: World) -> object:
    return only_error((await Admin(world.cluster).describe_log_dirs([77], timeout_s=0.5)).failed)
