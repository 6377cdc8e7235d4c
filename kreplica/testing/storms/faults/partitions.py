"""What administrators do to the partitions of topics while everything fails: more of them, fewer, and more again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

from twisted.internet.defer import Deferred

from kreplica.cluster import znodes
from kreplica.cluster.partition_requests import encode_addition, encode_removal
from kreplica.service.composition.broker import Broker
from kreplica.testing.clients.wire_client import sleep
from kreplica.testing.cluster.state import assignment_of
from kreplica.testing.storms.clients.side_topics import ADMINISTRATOR, SideTopic
from kreplica.testing.storms.expected_state import Answer
from kreplica.testing.storms.faults.fault import End
from kreplica.testing.storms.faults.topics import some_topic, tell_answer
from kreplica.testing.storms.replicated_run import ReplicatedRun
from kreplica.zookeeper import NodeExists, ZooKeeperError

PARTITIONS_MAX = 4
BY_ZNODE_CHANCE = 0.5
READ_ONLY_MS_MAX = 6000
TAKEN_BACK_CHANCE = 0.3
AGAIN_S = 0.5


def grow(run: ReplicatedRun, random: Random) -> None:
    """Have partitions added to a topic, by request or by znode."""
    topic = some_topic(run, random)
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
        tell_answer(answer, run, f"{topic.name} has {count} partitions")
        if answer is Answer.DONE:
            topic.partitions_min = count

    run.side_topics.ask(client, client.create_partitions(topic.name, count)).addCallback(grown)


def shrink(run: ReplicatedRun, random: Random) -> End | None:
    """Have the last partitions of a topic removed, after a while in which they are only read; maybe take that back."""
    topic = some_topic(run, random)
    assignment = None if topic is None else assignment_of(run.cluster, topic.name)
    if topic is None or assignment is None or len(assignment.partitions) < 2:
        return None
    count = len(assignment.partitions)
    wait_ms = random.randrange(READ_ONLY_MS_MAX)
    numbers = range(random.randint(1, count - 1), count)
    run.tell(f"partitions {list(numbers)} of {topic.name} are to be removed after {wait_ms} ms")
    paths = _remove(run, random, topic, reversed(numbers), wait_ms)
    if random.random() > TAKEN_BACK_CHANCE:
        return None
    return lambda: _take_back(run, random, paths)


def replace(run: ReplicatedRun, random: Random) -> End | None:
    """Have the last partition of a topic removed at once, and one of its number added as soon as that may be."""
    topic = some_topic(run, random)
    assignment = None if topic is None else assignment_of(run.cluster, topic.name)
    if topic is None or assignment is None or len(assignment.partitions) < 2:
        return None
    count = len(assignment.partitions)
    run.tell(f"partition {count - 1} of {topic.name} is to be replaced")
    _remove(run, random, topic, [count - 1], wait_ms=0)
    wanted = True

    def end() -> None:
        nonlocal wanted
        wanted = False

    growing = _grow_again(run, random, topic, count, lambda: wanted)
    Deferred.fromCoroutine(growing).addErrback(run.failed)
    return end


async def _grow_again(
    run: ReplicatedRun, random: Random, topic: SideTopic, count: int, is_wanted: Callable[[], bool]
) -> None:
    reactor = run.cluster.simulation.host(ADMINISTRATOR).reactor
    while is_wanted():
        await sleep(reactor, AGAIN_S)
        if len(topic.current) == count - 1 and is_wanted():
            client = run.side_topics.administrator(random)
            if await run.side_topics.ask(client, client.create_partitions(topic.name, count)) is Answer.DONE:
                run.tell(f"{topic.name} has {count} partitions again")
                return


# --- how -------------------------------------------------------------------------------------------------------------


def _remove(
    run: ReplicatedRun, random: Random, topic: SideTopic, numbers: Iterable[int], wait_ms: int
) -> list[str]:
    """Ask for partitions to be removed.

    :return: the requests.
    """
    topic.may_shrink = True
    parent = znodes.partitions_remove_path(topic.name)
    paths = [znodes.partitions_remove_path(topic.name, number) for number in numbers]
    _write(run, random, [(parent, b""), *((path, encode_removal(wait_ms)) for path in paths)])
    return paths


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


def _take_back(run: ReplicatedRun, random: Random, paths: list[str]) -> None:
    broker = _broker(run, random)
    if broker is not None:
        run.tell(f"{', '.join(paths)} are taken back")
        Deferred.fromCoroutine(_delete(broker, paths)).addErrback(run.failed)


async def _delete(broker: Broker, paths: list[str]) -> None:
    for path in paths:
        try:
            await broker.client.delete(path)
        except ZooKeeperError:
            continue
