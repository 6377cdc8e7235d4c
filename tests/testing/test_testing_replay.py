"""Replay of a controller's journal: the same code makes the same decisions; otherwise the first difference is shown."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest
from click.testing import CliRunner

from kreplica.cli.diagnostics.replay import command
from kreplica.cluster import documents, znodes
from kreplica.controller.decisions import leader_election, state_changes
from kreplica.controller.decisions.leader_election import Election
from kreplica.controller.event_types import (
    AlterReassignmentsRequested,
    ElectionRequested,
    ElectionType,
    ListReassignmentsRequested,
    ShutdownRequested,
)
from kreplica.controller.journal import files as journal_files
from kreplica.controller.journal.files import JournalSettings
from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import TopicAssignment, TopicPartition
from kreplica.testing.cluster.cluster import SimulatedCluster
from kreplica.testing.replay.reading import JournalUnreadable, read_journals
from kreplica.testing.replay.replay import Outcome, Replay, replay_all
from kreplica.testing.simulator.disk import MemoryDisk
from kreplica.testing.storms.cleanup import deferred_collection
from kreplica.zookeeper import Create
from tests.support.controller_scene import ControllerScene

ORDERS = TopicPartition("orders", 0)
DIRECTORY = "/data/journal"
CONTROLLER = 101


@pytest.fixture(autouse=True)
def _deferred_collection() -> Iterator[None]:
    """Collect garbage after each test: controllers of incomplete replays log errors when they are collected."""
    with deferred_collection():
        yield


def scene_with_journal(brokers: int = 3) -> ControllerScene:
    scene = ControllerScene(brokers=brokers)
    scene.controllers[CONTROLLER].journal = JournalSettings(DIRECTORY, CONTROLLER, 16 * 2**20)
    scene.start()
    return scene


def replay_journals(disk: MemoryDisk, directory: str = DIRECTORY) -> list[Outcome]:
    return list(replay_all(read_journals(disk, directory)))


def equal_entries(outcomes: list[Outcome]) -> int:
    """Check that all outcomes are complete and equal, and return the number of compared entries."""
    for outcome in outcomes:
        assert outcome.difference is None, outcome.difference
        assert outcome.entries == len(outcome.file.lines)
    return sum(outcome.entries for outcome in outcomes)


def kill_broker(scene: ControllerScene, broker: int) -> None:
    scene.brokers[broker].kill()
    scene.await_expiry()


def handle_all_requests(scene: ControllerScene) -> None:
    """Make the controller handle each kind of request and notification once."""
    scene.make_topic("orders", {0: (1, 2, 3), 1: (2, 3, 1)})
    scene.make_topic("refused", {0: (1, 2)})
    assert scene.ask(AlterReassignmentsRequested({ORDERS: (2, 3, 4)})) == {ORDERS: None}
    scene.settle()
    assert ORDERS in scene.ask(ListReassignmentsRequested(None))
    scene.run(scene.brokers[1].write_isr(ORDERS, (1, 2, 3, 4)))
    scene.settle()
    kill_broker(scene, 1)
    scene.brokers[2].errors[TopicPartition("refused", 0)] = ErrorCode.KAFKA_STORAGE_ERROR
    scene.run(scene.brokers[1].start())
    scene.settle()
    wanted = [ORDERS, TopicPartition("orders", 1), TopicPartition("nothing", 0)]
    scene.ask(ElectionRequested(ElectionType.PREFERRED, wanted))
    scene.ask(ShutdownRequested(3, scene.brokers[3].epoch))
    with pytest.raises(KafkaError):
        scene.ask(ShutdownRequested(9))
    scene.run(scene.zookeeper.multi([Create("/admin/delete_topics/orders")]))
    scene.settle()
    scene.brokers[4].silent = True
    kill_broker(scene, 4)


def test_a_replay_makes_the_same_decisions():
    """A replay of requests, broker failures, rejected commands, elections and shutdowns makes the same decisions."""
    scene = scene_with_journal(brokers=4)
    handle_all_requests(scene)
    (outcome,) = replay_journals(scene.controllers[CONTROLLER].host.disk)
    assert equal_entries([outcome]) > 200
    assert outcome.events > 15
    assert outcome.decisions > 60


def test_lost_connections_and_resignations(monkeypatch):
    """A replay covers lost connections after which the controller continues, and those after which it resigns."""
    monkeypatch.setattr(journal_files, "FILE_COUNT", 2**20)
    scene = scene_with_journal()
    scene.make_topic("orders", {0: (1, 2, 3), 1: (2, 3, 1)})
    for steps in (6, 12, 18, 24):
        scene.run(scene.brokers[1].client.delete(znodes.broker_path(1)))
        for _ in range(steps):
            scene.simulation.step()
        scene.simulation.network.drop_connections("controller-101", "coordinator")
        scene.settle(3.0)
        scene.brokers[1].kill()
        scene.run(scene.brokers[1].start())
        scene.settle()
    resumptions = scene.controller.counters.resumptions
    data, stat = scene.run(scene.zookeeper.get_data(znodes.CONTROLLER))
    scene.run(scene.zookeeper.set_data(znodes.CONTROLLER, documents.with_resignation(data), stat.version))
    scene.settle(0.5)
    assert not scene.controllers[CONTROLLER].is_active
    scene.settle(2.0)
    assert (scene.context.controller_epoch, resumptions > 0) == (2, True)
    disk = scene.controllers[CONTROLLER].host.disk
    assert equal_entries(replay_journals(disk)) > 100


def test_each_file_can_be_replayed_alone(monkeypatch):
    """The journal of a long term has several files: each can be replayed alone, and continues the previous one."""
    monkeypatch.setattr(journal_files, "FILE_COUNT", 2**20)
    scene = scene_with_journal(brokers=4)
    handle_all_requests(scene)
    disk = scene.controllers[CONTROLLER].host.disk
    outcomes = replay_journals(disk)
    assert len(outcomes) > 3
    assert all(outcome.file.state is not None for outcome in outcomes[1:])
    equal_entries(outcomes)
    for outcome in outcomes:
        equal_entries(replay_journals(disk, outcome.file.path))


def test_a_file_that_does_not_continue_the_previous_one(monkeypatch):
    """The controller's state at the end of a file must equal the state at the start of the next file."""
    monkeypatch.setattr(journal_files, "FILE_COUNT", 2**20)
    scene = scene_with_journal()
    for number in range(6):
        scene.make_topic(f"orders-{number}", {0: (1, 2, 3)})
    files = read_journals(scene.controllers[CONTROLLER].host.disk, DIRECTORY)
    files[1].state["office"]["context"]["known_epochs"] = []
    first = next(replay_all(files))
    assert first.difference is not None
    assert "known_epochs" in str(first.difference)


# --- different code ---------------------------------------------------------------------------------------------------


def last_replica_leads(assignment, isr, may_lead, **_):
    led = [replica for replica in assignment if replica in isr and replica in may_lead]
    return Election(led[-1], tuple(led)) if led else None


def journal_of_a_failover() -> MemoryDisk:
    scene = scene_with_journal()
    scene.make_topic("orders", {0: (1, 2, 3)})
    kill_broker(scene, 1)
    return scene.controllers[CONTROLLER].host.disk


def test_a_different_election_is_shown(monkeypatch):
    """For a controller with another election rule, the replay shows the first event whose decision differs."""
    disk = journal_of_a_failover()
    monkeypatch.setattr(state_changes, "elect_offline", last_replica_leads)
    (outcome,) = replay_journals(disk)
    difference = outcome.difference
    assert difference is not None
    assert difference.event == 4
    (check, expected), (_, actual) = difference.expected["operations"], difference.actual["operations"]
    assert check[0] == "check"
    assert '"leader":2' in expected[2]
    assert '"leader":3' in actual[2]


def test_a_different_rule_of_eligibility_is_shown(monkeypatch):
    """A controller with another rule for replicas that leave an ISR below its minimum differs."""
    scene = scene_with_journal()
    scene.make_topic("orders", {0: (1, 2, 3)})
    kill_broker(scene, 1)
    kill_broker(scene, 2)
    disk = scene.controllers[CONTROLLER].host.disk
    equal_entries(replay_journals(disk))
    monkeypatch.setattr("kreplica.cluster.eligible_leaders.eligible_after", lambda *_, **__: ())
    (outcome,) = replay_journals(disk)
    assert "eligible_leader_replicas" in str(outcome.difference.expected)
    assert "eligible_leader_replicas" not in str(outcome.difference.actual)


def test_a_different_first_leader_is_shown(monkeypatch):
    """If the first leader of a partition differs, this is shown, not its consequences."""
    disk = journal_of_a_failover()
    monkeypatch.setattr(state_changes, "elect_new", lambda replicas, live: Election(live[-1], tuple(live)))
    (outcome,) = replay_journals(disk)
    assert outcome.difference.event == 3
    assert leader_election.elect_new is not state_changes.elect_new


def test_commands_are_compared_too(monkeypatch):
    """A command with different bytes is a difference, even if the same data was written to ZooKeeper."""
    disk = journal_of_a_failover()
    bodies = "kreplica.controller.effects.command_bodies.Bodies._head"
    monkeypatch.setattr(bodies, lambda self, broker: {"controller_id": 0, "controller_epoch": 0, "broker_epoch": 0})
    (outcome,) = replay_journals(disk)
    assert outcome.difference.expected["in"] == "sent"
    assert outcome.difference.expected["crc"] != outcome.difference.actual["crc"]


def test_a_missing_decision_is_shown(monkeypatch):
    """If the controller makes one decision less, the missing one is shown."""
    disk = journal_of_a_failover()
    monkeypatch.setattr(state_changes, "repairs", lambda *_, **__: [])
    (outcome,) = replay_journals(disk)
    assert outcome.difference.event == 4
    assert outcome.difference.expected["read"] == "unclean_allowed"
    assert outcome.difference.actual["out"] == "command"


# --- sessions ---------------------------------------------------------------------------------------------------------


def make_topic(cluster: SimulatedCluster, name: str) -> None:
    assignment = TopicAssignment(name, UUID(int=len(name)), dict.fromkeys(range(3), (1, 2, 3)))
    write = Create(znodes.topic_path(name), documents.encode_topic(assignment))
    cluster.run_until(cluster.brokers[2].program.client.multi([write]))


def test_replay_of_all_ends_of_a_term():
    """A replay is equal whether the term ended by a lost session or connection, a request, or a shutdown."""
    cluster = SimulatedCluster(7, brokers=3, overrides=["kreplica.controller.journal.max.bytes=16777216"])
    cluster.start()
    make_topic(cluster, "orders")
    cluster.run(2)
    cluster.expire_session(cluster.controller())
    cluster.run(5)
    for number in range(3):
        machine = cluster.brokers[cluster.controller()]
        make_topic(cluster, f"more-{number}")
        cluster.run_until(lambda program=machine.program: not program.controller.queue.idle)
        cluster.simulation.network.drop_connections(machine.host.name, "coordinator")
        cluster.run(5)
    cluster.run_until(cluster.brokers[1].program.client.delete("/controller"))
    cluster.run(5)
    cluster.run_until(cluster.brokers[cluster.controller()].stop())
    cluster.run(5)
    outcomes = [each for m in cluster.brokers.values() for each in replay_journals(m.host.disk, "/data/logs")]
    equal_entries(outcomes)
    entries = [line for outcome in outcomes for line in outcome.file.lines]
    assert any(line.get("state") == "EXPIRED" for line in entries)
    assert any(line.get("error", [""])[0] == "ConnectionLoss" for line in entries if line.get("in") == "answer")
    assert sum(line.get("out") == "took_office" for line in entries) > 3
    assert any(line.get("method") == "stop" for line in entries)


# --- corrupt journals -------------------------------------------------------------------------------------------------


def corrupted(value: Any, random: Random) -> Any:
    """Return the value with a random part removed or changed."""
    if isinstance(value, dict) and value and random.random() < 0.8:
        key = random.choice(list(value))
        return {name: each for name, each in value.items() if name != key or random.random() < 0.7} | (
            {key: corrupted(value[key], random)} if random.random() < 0.7 else {}
        )
    if isinstance(value, list) and value and random.random() < 0.8:
        index = random.randrange(len(value))
        return [*value[:index], corrupted(value[index], random), *value[index + 1 :]]
    return random.choice([None, 7, -1, "x", [], {}, [[]], {"error": ["x"]}, 1.5, True])


@pytest.mark.parametrize("seed", range(8))
def test_corrupt_entries(monkeypatch, seed):
    """The replay of a journal with a corrupt entry ends with a difference, or with an error that names the entry."""
    monkeypatch.setattr(journal_files, "FILE_COUNT", 2**20)
    scene = scene_with_journal()
    scene.make_topic("orders", {0: (1, 2, 3)})
    kill_broker(scene, 1)
    files = read_journals(scene.controllers[CONTROLLER].host.disk, DIRECTORY)
    random = Random(seed)
    for _ in range(60):
        file = random.choice(files)
        lines = list(file.lines)
        number = random.randrange(-1, len(lines))
        if number < 0:
            file = replace(file, head=file.head | {"state": corrupted(file.head["state"] or {}, random)})
        else:
            key = random.choice(list(lines[number]))
            lines[number] = lines[number] | {key: corrupted(lines[number][key], random), "n": number + 1}
        with suppress(JournalUnreadable):
            outcome = Replay(replace(file, lines=lines)).run()
            assert outcome.difference is not None or outcome.entries == len(lines)


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    disk = journal_of_a_failover()
    for name in disk.list_directory(DIRECTORY):
        (tmp_path / name).write_bytes(disk.read_file(f"{DIRECTORY}/{name}"))
    return tmp_path


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(command, [str(each) for each in arguments])
    return result.exit_code, result.output


def test_kreplica_replay(exported):
    """``kreplica replay DIRECTORY`` prints one line if all decisions are equal."""
    code, text = run(exported)
    assert code == 0
    assert text.endswith("decisions: all identical\n")
    assert text.startswith("4 events, ")


def test_kreplica_replay_prints_the_events(exported):
    """``--verbose`` prints why a leader moved; ``--until`` stops before a given event."""
    code, text = run(exported, "--verbose")
    assert code == 0
    story = text.splitlines()
    died = next(number for number, line in enumerate(story) if "/brokers/ids/1 deleted" in line)
    moved = story.index("    orders-0: leader 1 -> 2, epoch 0 -> 1, in sync [1, 2, 3] -> [2, 3]")
    assert died < story.index("event 4: BrokersChanged") < moved
    assert moved < story.index("  sends to broker 2: LeaderAndIsr orders:0", moved)
    code, text = run(exported, "--verbose", "--until", 3)
    assert "event 3: TopicsChanged" in text
    assert "event 4" not in text


def test_kreplica_replay_explains_a_difference(exported, monkeypatch):
    """For a difference, the command prints the event and both decisions, and exits with code 1."""
    monkeypatch.setattr(state_changes, "elect_offline", last_replica_leads)
    code, text = run(exported)
    assert code == 1
    assert "event 4 (BrokersChanged) is the first that differs, at entry " in text
    assert "orders-0: leader 1 -> 2" in text
    assert "orders-0: leader 1 -> 3" in text
    assert '-operations: ["set", "/brokers/topics/orders/partitions/0/state", "{\\"controller_epoch\\":1,' in text


def test_kreplica_replay_of_something_else(tmp_path):
    """For a directory without a journal, or another kind of file, the command prints one line and exits with code 2."""
    code, text = run(tmp_path)
    assert code == 2
    assert "no controller-journal-*.jsonl found" in text
    (tmp_path / "notes.txt").write_text("hello\n")
    code, text = run(tmp_path / "notes.txt")
    assert code == 2
    assert "notes.txt: line 1 of 1 cannot be read" in text
