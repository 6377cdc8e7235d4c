"""Administrators create, delete and replace side topics, and change their settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from twisted.internet.defer import Deferred

from kreplica.testing.storms.clients.side_topics import SideTopic
from kreplica.testing.storms.cluster_run import REPLICAS
from kreplica.testing.storms.expected_state import Expected, RequestResult
from kreplica.testing.storms.faults.fault import End
from kreplica.testing.storms.replicated_run import ReplicatedRun

Operation = Callable[[ReplicatedRun, Random], End | None]

NAME_COUNT = 3
FEWER_REPLICAS_CHANCE = 0.2
WITH_ASSIGNMENT_CHANCE = 0.3
ALL_SETTINGS_CHANCE = 0.3
SEGMENT_BYTES = ("2000", "5000", "20000")
RETENTION_BYTES = ("2000", "10000")


def create(run: ReplicatedRun, random: Random) -> None:
    """Create a topic, whose name may have been used before."""
    free = [name for name in _names() if not run.side_topics.topic(name).current]
    if not free:
        return
    topic = run.side_topics.topic(random.choice(free))
    settings = _settings(run, random)
    replicas = REPLICAS - 1 if random.random() < FEWER_REPLICAS_CHANCE else REPLICAS
    partitions = random.randint(1, 3)
    assignment = []
    if random.random() < WITH_ASSIGNMENT_CHANCE:
        assignment = [random.sample(sorted(run.cluster.brokers), replicas) for _ in range(partitions)]
    run.note(f"creation of {topic.name}: {partitions} partitions of {replicas} replicas {assignment} {settings}")
    client = run.side_topics.administrator(random)
    request = client.create_topic(topic.name, partitions, settings, replication_factor=replicas, assignment=assignment)
    changes = {topic.exists: True, **_all_settings(topic, settings)}
    topic.partitions_min, topic.may_shrink = 1, False
    run.side_topics.send(client, request, changes).addCallback(note_result, run, f"{topic.name} is created")


def delete(run: ReplicatedRun, random: Random) -> None:
    topic = pick_or_create_topic(run, random)
    if topic is not None:
        _delete(run, random, topic)


def replace(run: ReplicatedRun, random: Random) -> None:
    """Delete a topic; if this succeeds, create a topic."""
    topic = pick_or_create_topic(run, random)
    if topic is None:
        return

    def deleted(result: RequestResult) -> None:
        if result is RequestResult.DONE:
            create(run, random)

    _delete(run, random, topic).addCallback(deleted)


def change_settings(run: ReplicatedRun, random: Random) -> None:
    """Change one setting of a topic, or replace all of them."""
    topic = pick_or_create_topic(run, random)
    if topic is None:
        return
    settings = _settings(run, random)
    client = run.side_topics.administrator(random)
    if random.random() < ALL_SETTINGS_CHANCE:
        run.note(f"the settings of {topic.name} are replaced by {settings}")
        changes = _all_settings(topic, settings)
        request = client.replace_settings(topic.name, settings)
    else:
        settings = {name: settings[name] for name in random.sample(sorted(settings), 1)}
        run.note(f"a setting of {topic.name} is changed: {settings}")
        changes = {topic.settings[name]: value for name, value in settings.items()}
        request = client.change_settings(topic.name, settings)
    if "retention.bytes" in settings:
        run.side_topics.mark_trimmed(topic.name)
    run.side_topics.send(client, request, changes).addCallback(note_result, run, f"{topic.name} has {settings}")


# --- choices and requests --------------------------------------------------------------------------------------------


def _names() -> list[str]:
    return [f"side-{number}" for number in range(1, NAME_COUNT + 1)]


def pick_or_create_topic(run: ReplicatedRun, random: Random) -> SideTopic | None:
    """Select an existing topic; if there is none, request the creation of one and return None."""
    existing = run.side_topics.existing
    if existing:
        return random.choice(existing)
    create(run, random)
    return None


def _settings(run: ReplicatedRun, random: Random) -> dict[str, str]:
    """Draw settings of a topic whose data must survive any single failure.

    The topic needs ``flush.messages`` in either of two cases: machines may lose power at any time, or one in-sync
    replica is enough, because a power loss may then hit the only replica in the ISR.
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


def _all_settings(topic: SideTopic, settings: Mapping[str, str]) -> dict[Expected[Any], Any]:
    """Return the changes of a request that sets ``settings`` and removes all other settings."""
    return {expected: settings.get(name) for name, expected in topic.settings.items()}


def _delete(run: ReplicatedRun, random: Random, topic: SideTopic) -> Deferred[RequestResult]:
    run.note(f"the deletion of {topic.name} is requested")
    client = run.side_topics.administrator(random)
    deletion = run.side_topics.send(client, client.delete_topic(topic.name), {topic.exists: False})

    def completed(result: RequestResult) -> RequestResult:
        note_result(result, run, f"{topic.name} is deleted")
        return result

    return deletion.addCallback(completed)


def note_result(result: RequestResult, run: ReplicatedRun, text: str) -> None:
    run.note(f"{text}: {result.value}")
