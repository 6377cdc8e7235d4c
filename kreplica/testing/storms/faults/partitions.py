"""Administrators add, remove and replace partitions of side topics."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

from twisted.internet.defer import Deferred

from kreplica.cluster import znodes
from kreplica.cluster.partition_requests import encode_addition, encode_removal
from kreplica.runtime.pause import pause
from kreplica.service.composition.broker import Broker
from kreplica.testing.cluster.state import assignment_of
from kreplica.testing.storms.clients.side_topics import ADMINISTRATOR, SideTopic
from kreplica.testing.storms.expected_state import RequestResult
from kreplica.testing.storms.faults.fault import End
from kreplica.testing.storms.faults.topics import note_result, pick_or_create_topic
from kreplica.testing.storms.replicated_run import ReplicatedRun
from kreplica.zookeeper import NodeExists, ZooKeeperError

PARTITIONS_MAX = 4
BY_ZNODE_CHANCE = 0.5
READ_ONLY_MS_MAX = 6000
CANCEL_CHANCE = 0.3
RETRY_S = 0.5


def grow(run: ReplicatedRun, random: Random) -> None:
    topic = pick_or_create_topic(run, random)
    assignment = None if topic is None else assignment_of(run.cluster, topic.name)
    if topic is None or assignment is None or len(assignment.partitions) >= PARTITIONS_MAX:
        return
    count = random.randint(len(assignment.partitions) + 1, PARTITIONS_MAX)
    run.note(f"{count} partitions are requested for {topic.name}")
    if random.random() < BY_ZNODE_CHANCE:
        replicas = len(assignment.partitions[0])
        additions = {
            number: encode_addition(random.sample(sorted(run.cluster.brokers), replicas))
            for number in range(len(assignment.partitions), count)
        }
        requests = [(znodes.partitions_add_path(topic.name, number), data) for number, data in additions.items()]
        _write(run, random, [(znodes.partitions_add_path(topic.name), b""), *requests])
        return
    client = run.side_topics.administrator(random)

    def completed(result: RequestResult) -> None:
        note_result(result, run, f"{topic.name} has {count} partitions")
        if result is RequestResult.DONE:
            topic.partitions_min = count

    run.side_topics.send(client, client.create_partitions(topic.name, count)).addCallback(completed)


def shrink(run: ReplicatedRun, random: Random) -> End | None:
    """Remove the last partitions of a topic after a read-only period; sometimes cancel the removal at the end."""
    topic = pick_or_create_topic(run, random)
    assignment = None if topic is None else assignment_of(run.cluster, topic.name)
    if topic is None or assignment is None or len(assignment.partitions) < 2:
        return None
    count = len(assignment.partitions)
    wait_ms = random.randrange(READ_ONLY_MS_MAX)
    numbers = range(random.randint(1, count - 1), count)
    run.note(f"the removal of partitions {list(numbers)} of {topic.name} is requested, after {wait_ms} ms")
    paths = _remove(run, random, topic, reversed(numbers), wait_ms)
    if random.random() > CANCEL_CHANCE:
        return None
    return lambda: _cancel(run, random, paths)


def replace(run: ReplicatedRun, random: Random) -> End | None:
    """Remove the last partition of a topic at once, and add a partition with its number as soon as possible."""
    topic = pick_or_create_topic(run, random)
    assignment = None if topic is None else assignment_of(run.cluster, topic.name)
    if topic is None or assignment is None or len(assignment.partitions) < 2:
        return None
    count = len(assignment.partitions)
    run.note(f"the replacement of partition {count - 1} of {topic.name} is requested")
    _remove(run, random, topic, [count - 1], wait_ms=0)
    is_active = True

    def end() -> None:
        nonlocal is_active
        is_active = False

    growing = _grow_again(run, random, topic, count, lambda: is_active)
    Deferred.fromCoroutine(growing).addErrback(run.record_failure)
    return end


async def _grow_again(
    run: ReplicatedRun, random: Random, topic: SideTopic, count: int, is_active: Callable[[], bool]
) -> None:
    reactor = run.cluster.simulation.host(ADMINISTRATOR).reactor
    while is_active():
        await pause(reactor, RETRY_S)
        if len(topic.current) == count - 1 and is_active():
            client = run.side_topics.administrator(random)
            if await run.side_topics.send(client, client.create_partitions(topic.name, count)) is RequestResult.DONE:
                run.note(f"{topic.name} has {count} partitions again")
                return


# --- request znodes --------------------------------------------------------------------------------------------------


def _remove(
    run: ReplicatedRun, random: Random, topic: SideTopic, numbers: Iterable[int], wait_ms: int
) -> list[str]:
    """Request the removal of partitions, and return the paths of the request znodes."""
    topic.may_shrink = True
    parent = znodes.partitions_remove_path(topic.name)
    paths = [znodes.partitions_remove_path(topic.name, number) for number in numbers]
    _write(run, random, [(parent, b""), *((path, encode_removal(wait_ms)) for path in paths)])
    return paths


def _random_broker(run: ReplicatedRun, random: Random) -> Broker | None:
    running = [machine.program for _, machine in sorted(run.cluster.brokers.items()) if machine.running]
    return random.choice(running) if running else None


def _write(run: ReplicatedRun, random: Random, nodes: list[tuple[str, bytes]]) -> None:
    """Create znodes one after another with a random broker's session; the controller may reject the requests."""
    broker = _random_broker(run, random)
    if broker is not None:
        Deferred.fromCoroutine(_create(broker, nodes)).addErrback(run.record_failure)


async def _create(broker: Broker, nodes: list[tuple[str, bytes]]) -> None:
    for path, data in nodes:
        try:
            await broker.client.create(path, data)
        except NodeExists:
            continue
        except ZooKeeperError:
            return


def _cancel(run: ReplicatedRun, random: Random, paths: list[str]) -> None:
    broker = _random_broker(run, random)
    if broker is not None:
        run.note(f"{', '.join(paths)} are cancelled")
        Deferred.fromCoroutine(_delete(broker, paths)).addErrback(run.record_failure)


async def _delete(broker: Broker, paths: list[str]) -> None:
    for path in paths:
        try:
            await broker.client.delete(path)
        except ZooKeeperError:
            continue
