"""What administrators do to topics while everything fails: make, delete, grow, shrink them, change their settings.

All but the main topic, whose partitions stay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from twisted.internet.defer import Deferred

from kreplica.testing.storms.clients.side_topics import SideTopic
from kreplica.testing.storms.expected_state import Answer, Expected
from kreplica.testing.storms.faults.fault import End
from kreplica.testing.storms.replicated_run import REPLICAS, ReplicatedRun

Operation = Callable[[ReplicatedRun, Random], End | None]

NAMES = 3
FEWER_REPLICAS_CHANCE = 0.2
BY_HAND_CHANCE = 0.3
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
    asked = client.create_topic(topic.name, partitions, settings, replication_factor=replicas, assignment=assignment)
    expected = {topic.exists: True, **_all_of(topic, settings)}
    topic.partitions_min, topic.may_shrink = 1, False
    run.side_topics.ask(client, asked, expected).addCallback(tell_answer, run, f"{topic.name} is made")


def delete(run: ReplicatedRun, random: Random) -> None:
    """Have a topic deleted."""
    topic = some_topic(run, random)
    if topic is not None:
        _delete(run, random, topic)


def replace(run: ReplicatedRun, random: Random) -> None:
    """Have a topic deleted and, once it is gone, made again under the same name."""
    topic = some_topic(run, random)
    if topic is None:
        return

    def again(answer: Answer) -> None:
        if answer is Answer.DONE:
            create(run, random)

    _delete(run, random, topic).addCallback(again)


def change_settings(run: ReplicatedRun, random: Random) -> None:
    """Have settings of a topic changed while it is written to: single ones, or all of them."""
    topic = some_topic(run, random)
    if topic is None:
        return
    settings = _settings(run, random)
    client = run.side_topics.administrator(random)
    if random.random() < REPLACED_CHANCE:
        run.tell(f"{topic.name} is to have the settings {settings}")
        expected = _all_of(topic, settings)
        asked = client.replace_settings(topic.name, settings)
    else:
        settings = {name: settings[name] for name in random.sample(sorted(settings), 1)}
        run.tell(f"{topic.name} is to have {settings}")
        expected = {topic.settings[name]: value for name, value in settings.items()}
        asked = client.change_settings(topic.name, settings)
    if "retention.bytes" in settings:
        run.side_topics.trimmed(topic.name)
    run.side_topics.ask(client, asked, expected).addCallback(tell_answer, run, f"{topic.name} has {settings}")


# --- how -------------------------------------------------------------------------------------------------------------


def _names() -> list[str]:
    return [f"side-{number}" for number in range(1, NAMES + 1)]


def some_topic(run: ReplicatedRun, random: Random) -> SideTopic | None:
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
        tell_answer(answer, run, f"{topic.name} is deleted")
        return answer

    return answered.addCallback(deleted)


def tell_answer(answer: Answer, run: ReplicatedRun, text: str) -> None:
    """Note how a request ended."""
    run.tell(f"{text}: {answer.value}")
