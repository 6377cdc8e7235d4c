"""What administrators do to topics while everything fails: make, delete, grow, shrink them, change their settings.

All but the main topic, whose partitions stay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from twisted.internet.defer import Deferred

from kreplica.cluster import znodes
from kreplica.cluster.partition_requests import encode_addition, encode_removal
from kreplica.service.broker import Broker
from kreplica.testing.cluster_state import assignment_of
from kreplica.testing.storms.expected import Answer, Expected
from kreplica.testing.storms.faults.fault import End
from kreplica.testing.storms.replicated_run import REPLICAS, ReplicatedRun
from kreplica.testing.storms.side_topics import DELETE_DELAY_MS, SideTopic
from kreplica.zookeeper import NodeExists, ZooKeeperError

Operation = Callable[[ReplicatedRun, Random], End | None]

NAMES = 3
PARTITIONS_MAX = 4
FEWER_REPLICAS_CHANCE = 0.2
BY_HAND_CHANCE = 0.3
BY_ZNODE_CHANCE = 0.5
READ_ONLY_MS_MAX = 6000
TAKEN_BACK_CHANCE = 0.3
REPLACED_CHANCE = 0.3
SEGMENT_BYTES = ("2000", "5000", "20000")
RETENTION_BYTES = ("2000", "10000")


def create(run: ReplicatedRun, random: Random) -> None:
    """Have a topic made, under a name that was in use before or not."""
    free = [name for name in _names() if not run.side_topics.topic(name).current]
    if not free:
        return
    topic = run.side_topics.topic(random.choice(free))
    settings = _settings(run, random)
    replicas = REPLICAS - 1 if random.random() < FEWER_REPLICAS_CHANCE else REPLICAS
    partitions = random.randint(1, 3)
    assignment = []
    if random.random() < BY_HAND_CHANCE:
        assignment = [random.sample(sorted(run.cluster.brokers), replicas) for _ in range(partitions)]
    run.tell(f"{topic.name} is to be made with {partitions} partitions of {replicas} replicas {assignment} {settings}")
    client = run.side_topics.administrator(random)
    all_settings = {**settings, "file.delete.delay.ms": str(DELETE_DELAY_MS)}
    asked = client.create_topic(
        topic.name, partitions, all_settings, replication_factor=replicas, assignment=assignment
    )
    expected = {topic.exists: True, **_all_of(topic, settings)}
    topic.partitions_min, topic.may_shrink = 1, False
    run.side_topics.ask(client, asked, expected).addCallback(_tell, run, f"{topic.name} is made")


def delete(run: ReplicatedRun, random: Random) -> None:
    """Have a topic deleted."""
    topic = _some_topic(run, random)
    if topic is not None:
        _delete(run, random, topic)


def replace(run: ReplicatedRun, random: Random) -> None:
    """Have a topic deleted and, once it is gone, made again under the same name."""
    topic = _some_topic(run, random)
    if topic is None:
        return

    def again(answer: Answer) -> None:
        if answer is Answer.DONE:
            create(run, random)

    _delete(run, random, topic).addCallback(again)


def grow(run: ReplicatedRun, random: Random) -> None:
    """Have partitions added to a topic, by request or by znode."""
    topic = _some_topic(run, random)
    assignment = None if topic is None else assignment_of(run.cluster, topic.name)
    if topic is None or assignment is None or len(assignment.partitions) >= PARTITIONS_MAX:
        return
    count = random.randint(len(assignment.partitions) + 1, PARTITIONS_MAX)
    run.tell(f"{topic.name} is to have {count} partitions")
    if random.random() < BY_ZNODE_CHANCE:
        replicas = len(assignment.partitions[0])
        wanted = {
            number: encode_addition(random.sample(sorted(run.cluster.brokers), replicas))
            for number in range(len(assignment.partitions), count)
        }
        requests = [(znodes.partitions_add_path(topic.name, number), data) for number, data in wanted.items()]
        _write(run, random, [(znodes.partitions_add_path(topic.name), b""), *requests])
        return
    client = run.side_topics.administrator(random)

    def grown(answer: Answer) -> None:
        _tell(answer, run, f"{topic.name} has {count} partitions")
        if answer is Answer.DONE:
            topic.partitions_min = count

    run.side_topics.ask(client, client.create_partitions(topic.name, count)).addCallback(grown)


def shrink(run: ReplicatedRun, random: Random) -> End | None:
    """Have the last partitions of a topic removed, after a while in which they are only read; maybe take that back."""
    topic = _some_topic(run, random)
    assignment = None if topic is None else assignment_of(run.cluster, topic.name)
    if topic is None or assignment is None or len(assignment.partitions) < 2:
        return None
    count = len(assignment.partitions)
    wait_ms = random.randrange(READ_ONLY_MS_MAX)
    numbers = range(random.randint(1, count - 1), count)
    run.tell(f"partitions {list(numbers)} of {topic.name} are to be removed after {wait_ms} ms")
    topic.may_shrink = True
    parent = znodes.partitions_remove_path(topic.name)
    paths = [znodes.partitions_remove_path(topic.name, number) for number in reversed(numbers)]
    _write(run, random, [(parent, b""), *((path, encode_removal(wait_ms)) for path in paths)])
    if random.random() > TAKEN_BACK_CHANCE:
        return None
    return lambda: _erase(run, random, paths)


def change_settings(run: ReplicatedRun, random: Random) -> None:
    """Have settings of a topic changed while it is written to: single ones, or all of them."""
    topic = _some_topic(run, random)
    if topic is None:
        return
    settings = _settings(run, random)
    client = run.side_topics.administrator(random)
    if random.random() < REPLACED_CHANCE:
        run.tell(f"{topic.name} is to have the settings {settings}")
        expected = _all_of(topic, settings)
        asked = client.replace_settings(topic.name, {**settings, "file.delete.delay.ms": str(DELETE_DELAY_MS)})
    else:
        settings = {name: settings[name] for name in random.sample(sorted(settings), 1)}
        run.tell(f"{topic.name} is to have {settings}")
        expected = {topic.settings[name]: value for name, value in settings.items()}
        asked = client.change_settings(topic.name, settings)
    if "retention.bytes" in settings:
        run.side_topics.trimmed(topic.name)
    run.side_topics.ask(client, asked, expected).addCallback(_tell, run, f"{topic.name} has {settings}")


# --- how -------------------------------------------------------------------------------------------------------------


def _names() -> list[str]:
    return [f"side-{number}" for number in range(1, NAMES + 1)]


def _some_topic(run: ReplicatedRun, random: Random) -> SideTopic | None:
    """A topic that there is; where there is none, one is made, and this was all."""
    living = run.side_topics.living
    if living:
        return random.choice(living)
    create(run, random)
    return None


def _settings(run: ReplicatedRun, random: Random) -> dict[str, str]:
    """Of a topic that no single failure may harm.

    It is synced where machines may lose power at any time; and where one replica is enough, for it may be the one whose
    machine goes down, after the others have left the in-sync set.
    """
    settings = {
        "segment.bytes": random.choice(SEGMENT_BYTES),
        "min.insync.replicas": random.choice("112"),
    }
    if run.synced or settings["min.insync.replicas"] == "1" or random.random() < 0.2:
        settings["flush.messages"] = "1"
    if random.random() < 0.3:
        settings["retention.bytes"] = random.choice(RETENTION_BYTES)
    return settings


def _all_of(topic: SideTopic, settings: Mapping[str, str]) -> dict[Expected[Any], Any]:
    """These settings and no others."""
    return {expected: settings.get(name) for name, expected in topic.settings.items()}


def _delete(run: ReplicatedRun, random: Random, topic: SideTopic) -> Deferred[Answer]:
    run.tell(f"{topic.name} is to be deleted")
    client = run.side_topics.administrator(random)
    answered = run.side_topics.ask(client, client.delete_topic(topic.name), {topic.exists: False})

    def deleted(answer: Answer) -> Answer:
        _tell(answer, run, f"{topic.name} is deleted")
        return answer

    return answered.addCallback(deleted)


def _tell(answer: Answer, run: ReplicatedRun, text: str) -> None:
    run.tell(f"{text}: {answer.value}")


def _broker(run: ReplicatedRun, random: Random) -> Broker | None:
    running = [machine.program for _, machine in sorted(run.cluster.brokers.items()) if machine.running]
    return random.choice(running) if running else None


def _write(run: ReplicatedRun, random: Random, nodes: list[tuple[str, bytes]]) -> None:
    """Make znodes one after the other, through some broker's session; nobody is obliged to do what they ask."""
    broker = _broker(run, random)
    if broker is not None:
        Deferred.fromCoroutine(_make(broker, nodes)).addErrback(run.failed)


async def _make(broker: Broker, nodes: list[tuple[str, bytes]]) -> None:
    for path, data in nodes:
        try:
            await broker.client.create(path, data)
        except NodeExists:
            continue
        except ZooKeeperError:
            return


def _erase(run: ReplicatedRun, random: Random, paths: list[str]) -> None:
    broker = _broker(run, random)
    if broker is not None:
        run.tell(f"{', '.join(paths)} are taken back")
        Deferred.fromCoroutine(_remove(broker, paths)).addErrback(run.failed)


async def _remove(broker: Broker, paths: list[str]) -> None:
    for path in paths:
        try:
            await broker.client.delete(path)
        except ZooKeeperError:
            continue
