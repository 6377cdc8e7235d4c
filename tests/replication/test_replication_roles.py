"""Effects of the controller's commands on a broker's partitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from leading_scene import leadership
from twisted.internet.defer import CancelledError, Deferred

from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import TopicPartition
from kreplica.replication import Leadership, Partition, Partitions, Purgatory
from kreplica.runtime import time_slice
from kreplica.storage.directories.log_directories import LogDirectories
from kreplica.storage.log.results import only_result
from kreplica.storage.log_config import LogConfig
from kreplica.testing.simulator.simulation import Simulation
from kreplica.wire.batch_building import NEXT_OFFSET, build_batch
from kreplica.wire.records import Record

KEY = TopicPartition("t", 0)
TOPIC_ID = UUID(int=7)


class Settings:
    log = LogConfig()
    min_insync_replicas = 1


class Fetching:
    """Fetchers that record which partitions are followed, in order."""

    def __init__(self) -> None:
        self.story: list[tuple[str, int, int]] = []
        self.fetched: set[TopicPartition] = set()

    def start(self, partition: Partition) -> None:
        assert partition.role.is_follower
        self.story.append(("start", partition.leadership.leader, partition.leadership.leader_epoch))
        self.fetched.add(partition.topic_partition)

    def stop(self, partition: Partition) -> None:
        if partition.topic_partition in self.fetched:
            self.story.append(("stop", partition.leadership.leader, partition.leadership.leader_epoch))
            self.fetched.remove(partition.topic_partition)


class Broker:
    """Broker 1, with logs on a simulated disk."""

    def __init__(self) -> None:
        self.simulation = Simulation(1)
        self.host = self.simulation.host("broker")
        self.fetching = Fetching()
        turns: list[Callable[[], object]] = []
        self.directories = LogDirectories(self.host.runtime, ["/data"])
        self.directories.lock()
        self.run(self.directories.open("cluster", 1, lambda _: LogConfig()))
        self.partitions = Partitions(
            self.host.runtime.reactor,
            1,
            self.directories,
            lambda _: Settings,
            lambda _: True,
            Purgatory(turns.append),
            fetching=self.fetching,
        )

    def run(self, goal: Any) -> Any:
        return self.simulation.run_until(goal)

    def command(self, what: Leadership, key: TopicPartition = KEY) -> ErrorCode:
        return self.run(self.partitions.lead_and_follow({key: what}))[key]  # type: ignore[no-any-return]

    def stopped(self, leader_epoch: int, *, delete: bool) -> ErrorCode:
        return self.run(self.partitions.stop_replica(KEY, leader_epoch=leader_epoch, delete=delete))  # type: ignore[no-any-return]

    @property
    def partition(self) -> Partition:
        found = self.partitions.get(KEY)
        assert found is not None
        return found


def following(leader_epoch: int, leader: int = 2, **more: Any) -> Leadership:
    return leadership(leader_epoch, leader=leader, topic_id=TOPIC_ID, **more)


def leading(leader_epoch: int, **more: Any) -> Leadership:
    return leadership(leader_epoch, topic_id=TOPIC_ID, **more)


def produced(sequence: int) -> bytearray:
    """Return a batch of an idempotent producer."""
    record = Record(NEXT_OFFSET, 1000, None, b"value")
    return bytearray(build_batch([record], producer_id=7, producer_epoch=0, base_sequence=sequence))


@pytest.fixture
def broker() -> Broker:
    return Broker()


def test_follower_restarts_its_fetcher_in_each_epoch_only(broker: Broker) -> None:
    """A repeated command changes nothing; one with a new epoch first cancels pending work."""
    broker.command(following(1))
    broker.command(following(1))
    broker.command(following(1, isr=(2,), partition_epoch=3))
    broker.command(following(2))
    broker.command(leading(3))
    assert broker.fetching.story == [("start", 2, 1), ("stop", 2, 1), ("start", 2, 2), ("stop", 2, 2)]
    assert broker.partition.is_leader


def test_command_of_an_earlier_epoch(broker: Broker) -> None:
    """The controller that sent it does not know the current epoch yet."""
    broker.command(following(5))
    assert broker.command(leading(4)) is ErrorCode.STALE_CONTROLLER_EPOCH
    assert broker.partition.role.is_follower
    assert broker.stopped(4, delete=True) is ErrorCode.FENCED_LEADER_EPOCH
    assert KEY in broker.directories.logs


def test_partition_becomes_read_only(broker: Broker) -> None:
    """The leader epoch is unchanged, and reads continue."""
    broker.command(leading(1))
    broker.command(leading(1, read_only=True))
    assert broker.partition.leadership.read_only
    assert broker.partition.leadership_generation == 0


@pytest.mark.parametrize("log_exists", [False, True], ids=["new topic", "restarted broker"])
def test_batch_before_the_first_command(broker: Broker, log_exists: bool) -> None:
    """Once this broker is leader, batches sent after the rejected one must wait for its retry."""
    if log_exists:
        broker.run(broker.directories.create_directories([(KEY, TOPIC_ID)]))
    rejected = broker.partitions.reject(KEY, produced(3), 1000)
    assert rejected.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    broker.command(leading(1))
    with pytest.raises(KafkaError) as behind:
        only_result(broker.partition.append([produced(4)], 1000, all_in_sync=False))
    assert behind.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    for offset, sequence in enumerate((3, 4)):
        appended = only_result(broker.partition.append([produced(sequence)], 1000, all_in_sync=False))
        assert appended.base_offset == offset


def test_other_topic_of_the_same_name(broker: Broker) -> None:
    """Records of another topic must not be appended to the log on disk (KIP-516)."""
    broker.command(leading(1))
    assert broker.command(leadership(9, topic_id=UUID(int=8))) is ErrorCode.INCONSISTENT_TOPIC_ID
    assert broker.partition.leadership.leader_epoch == 1


def test_partition_without_a_local_replica(broker: Broker) -> None:
    """The command is rejected, and no log is created."""
    assert broker.command(following(1, replicas=(2, 3))) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert broker.partitions.get(KEY) is None


def test_replica_is_removed(broker: Broker) -> None:
    """The replica stops, then its files are deleted, and it can be created again."""
    broker.command(following(1))
    assert broker.stopped(2, delete=False) is ErrorCode.NONE
    assert (broker.partition.role.name, broker.fetching.fetched) == ("stopped", set())
    assert KEY in broker.directories.logs
    assert broker.stopped(2, delete=True) is ErrorCode.NONE
    assert broker.partitions.get(KEY) is None
    assert KEY not in broker.directories.logs
    assert broker.stopped(2, delete=True) is ErrorCode.NONE, "a missing replica is treated as deleted"
    assert broker.command(following(3)) is ErrorCode.NONE


def test_stopped_replica_resumes_in_the_same_epoch(broker: Broker) -> None:
    """The controller may reverse its decision."""
    broker.command(following(1))
    broker.stopped(1, delete=False)
    broker.command(following(1))
    assert broker.fetching.fetched == {KEY}


def test_session_ended(broker: Broker) -> None:
    """Other brokers may be leaders by now: until the next command, only partitions without other replicas stay led."""
    alone = TopicPartition("t", 1)
    broker.command(leading(1))
    broker.command(leading(1, isr=(1,), replicas=(1,)), alone)
    broker.partitions.session_lost()
    assert [(p.topic_partition, p.role.name) for p in broker.partitions] == [(KEY, "stopped"), (alone, "leader")]
    broker.command(leading(1, partition_epoch=4))
    assert broker.partition.is_leader
    assert broker.partition.leadership_generation == 1


def test_directory_fails(broker: Broker) -> None:
    """The directory's partitions report the error to clients and the controller, and are no longer fetched."""
    broker.command(following(1))
    broker.directories.logs[KEY].fail(OSError(5, "Input/output error"))
    broker.simulation.run(1)
    assert broker.partition.role.is_offline
    assert broker.fetching.fetched == set()
    assert broker.command(leading(2)) is ErrorCode.KAFKA_STORAGE_ERROR
    assert broker.stopped(2, delete=True) is ErrorCode.KAFKA_STORAGE_ERROR


def test_session_ends_during_a_command(broker: Broker) -> None:
    """The rest of the command is rejected; the command in the next session is applied."""
    pending = Deferred.fromCoroutine(broker.partitions.lead_and_follow({KEY: leading(1)}))
    assert broker.partitions.get(KEY) is None, "its directory is being created"
    broker.partitions.session_lost()
    assert broker.run(pending) == {KEY: ErrorCode.STALE_BROKER_EPOCH}
    assert broker.partitions.get(KEY) is None
    assert broker.command(leading(1)) is ErrorCode.NONE
    assert broker.partition.is_leader


def test_command_for_many_partitions_yields(broker: Broker) -> None:
    """A partition that fails has its own error and does not affect others."""
    wanted = {TopicPartition("t", number): leading(1) for number in range(300)}
    wanted[TopicPartition("t", 17)] = following(1, replicas=(2, 3))
    errors = broker.run(broker.partitions.lead_and_follow(wanted))
    assert [key.partition for key, error in errors.items() if error is not ErrorCode.NONE] == [17]
    assert sum(partition.is_leader for partition in broker.partitions) == 299


@pytest.mark.parametrize("taken", [3, 5])
def test_cancelled_command(broker: Broker, monkeypatch: pytest.MonkeyPatch, taken: int) -> None:
    """The command's connection is lost: partitions to which it was applied are fetched, because a repeated command does
    not restart them."""
    monkeypatch.setattr(time_slice, "SLICE_SECONDS_MAX", -1.0)  # one partition per iteration
    wanted = {TopicPartition("t", number): following(1) for number in range(5)}
    pending = Deferred.fromCoroutine(broker.partitions.lead_and_follow(wanted))
    pending.addErrback(lambda failure: failure.trap(CancelledError))
    broker.run(lambda: len(list(broker.partitions)) == taken)
    pending.cancel()
    broker.simulation.run(1)
    assert broker.fetching.fetched == {TopicPartition("t", number) for number in range(taken)}
    broker.run(broker.partitions.lead_and_follow(wanted))
    broker.simulation.run(1)
    assert broker.fetching.fetched == wanted.keys()
    assert broker.fetching.story == [("start", 2, 1)] * 5


def test_settings_that_change_twice(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The partitions adopt the settings in slices; in the end, each has the later value."""
    broker.run(broker.partitions.lead_and_follow({TopicPartition("t", number): leading(1) for number in range(300)}))
    for count in (2, 3):
        monkeypatch.setattr(Settings, "min_insync_replicas", count)
        broker.partitions.settings_changed("t")
        broker.partitions.settings_changed("another")
    broker.simulation.run(0)
    assert {partition.min_insync_replicas for partition in broker.partitions} == {3}
    monkeypatch.setattr(Settings, "min_insync_replicas", 1)
    broker.partitions.settings_changed("t")
    broker.simulation.run(0)
    assert {partition.min_insync_replicas for partition in broker.partitions} == {1}
