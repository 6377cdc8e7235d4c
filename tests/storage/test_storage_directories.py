"""A broker's log directories: ownership, contents, start, stop and failure."""

from __future__ import annotations

import errno
from dataclasses import replace
from uuid import UUID

import pytest
from storage_world import batch, fill, flush, read_bytes, records_of, values_of
from twisted.internet.defer import Deferred

from kreplica.errors import ErrorCode, KafkaError, StorageError
from kreplica.model import ZERO_UUID, TopicPartition
from kreplica.storage import LogConfig, LogDirectories, StorageConfig
from kreplica.storage.log.appending import append_as_leader
from kreplica.testing.simulator.simulation import Simulation

CLUSTER = "cluster-one"
TOPIC_ID = UUID(int=77)
KEYS = [TopicPartition("a.b-c", partition) for partition in range(4)]
SMALL = LogConfig(segment_bytes=1000)


class Broker:
    """One broker's directories on a simulated host."""

    def __init__(self, paths=("/data/one", "/data/two"), config=SMALL, seed=3):
        self.simulation = Simulation(seed)
        self.host = self.simulation.host("broker")
        self.disk = self.host.disk
        self.paths = list(paths)
        self.config = config
        self.offline = []
        self.synced = []

    def start(self, cluster=CLUSTER, broker_id=1, storage=None):
        self.directories = LogDirectories(self.host.runtime, self.paths, storage)
        self.directories.on_offline(self.offline.extend)
        self.directories.on_synced(self.synced.extend)
        self.run(self.directories.open(cluster, broker_id, lambda topic: self.config))
        self.directories.start(lambda: {key: log.log_end_offset for key, log in self.logs.items()})
        return self

    @property
    def logs(self):
        return self.directories.logs

    def run(self, coroutine):
        return self.simulation.run_until(Deferred.fromCoroutine(coroutine))

    def create(self, *keys, topic_id=TOPIC_ID):
        return [self.directories.create(key, topic_id, self.config) for key in keys]

    def stop(self, epoch=5):
        self.run(self.directories.close(epoch))

    def after(self, seconds):
        self.simulation.run(seconds)


@pytest.fixture
def broker():
    return Broker().start()


def test_logs_survive_an_orderly_stop(broker):
    """Offsets, IDs, high watermarks and start offsets survive; the marker contains the broker epoch."""
    for log in broker.create(*KEYS):
        fill(log, 20)
    broker.logs[KEYS[0]].advance_log_start_offset(3)
    before = {key: read_bytes(log) for key, log in broker.logs.items()}
    broker.stop(epoch=42)
    broker.start()
    assert broker.directories.clean_broker_epoch == 42
    assert {key: read_bytes(log) for key, log in broker.logs.items()} == before
    assert broker.logs[KEYS[0]].log_start_offset == 3
    assert all(log.durability.recovery_point == 20 for log in broker.logs.values())
    assert all(broker.directories.topic_id(key) == TOPIC_ID for key in KEYS)
    assert all(broker.directories.high_watermark(key) == 20 for key in KEYS)
    assert not broker.disk.exists("/data/one/.kafka_cleanshutdown")
    broker.stop()
    assert not [path for path in broker.disk.open_paths if not path.endswith(".log")]


def test_logs_survive_a_kill(broker):
    """Without the clean-shutdown marker, the logs are recovered, and no written record is lost."""
    for log in broker.create(*KEYS):
        fill(log, 20)
    broker.after(120)
    broker.host.kill()
    broker.start()
    assert broker.directories.clean_broker_epoch is None
    assert [log.log_end_offset for log in broker.logs.values()] == [20] * 4
    assert all(broker.directories.high_watermark(key) == 20 for key in KEYS)


def test_synced_records_survive_power_loss(broker):
    """With ``flush.messages=1``, every record that was reported as synced survives."""
    broker.config = replace(SMALL, flush_messages=1)
    broker.create(*KEYS)
    promised = {}
    for number in range(30):
        for key, log in broker.logs.items():
            append_as_leader(log, batch(f"{number}"), 0, now_ms=1)
            promised[key] = log.durability.recovery_point
        broker.after(0.001)
    assert set(broker.synced) == set(KEYS)
    assert all(promised.values())
    broker.host.power_loss()
    broker.start()
    for key, offset in promised.items():
        assert values_of(broker.logs[key])[:offset] == [(number, str(number)) for number in range(offset)]


def test_directories_of_other_brokers_are_refused(broker):
    """A directory of another cluster or broker is not changed; the error names both."""
    broker.stop()
    with pytest.raises(StorageError, match=r"cluster-one.*cluster-two"):
        broker.start(cluster="cluster-two")
    with pytest.raises(StorageError, match=r"broker 1.*broker 2"):
        broker.start(broker_id=2)
    broker.start()


def test_directory_is_locked(broker):
    """A second broker that uses the same directory fails to start."""
    with pytest.raises(StorageError, match="in use"):
        broker.start()


def test_checkpoint_is_written_only_if_changed(broker):
    (log,) = broker.create(KEYS[0])
    names = ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint")

    def written_ms():
        return {name: broker.disk.status(f"/data/one/{name}") for name in names}

    broker.after(200)
    before = written_ms()
    broker.after(200)
    assert written_ms() == before
    fill(log, 20)
    broker.after(200)
    after = written_ms()
    assert [name for name in names if after[name] == before[name]] == ["log-start-offset-checkpoint"]
    broker.stop()
    broker.start()
    assert broker.directories.high_watermark(KEYS[0]) == 20


def test_new_logs_go_to_the_directory_with_the_fewest(broker):
    """A log that exists is not created a second time."""
    broker.create(*KEYS)
    assert [len(directory.logs) for directory in broker.directories.directories] == [2, 2]
    with pytest.raises(StorageError, match="already"):
        broker.create(KEYS[0])


@pytest.mark.parametrize("start_offset", [0, 15])
def test_checkpoints_of_a_deleted_log_do_not_affect_its_successor(broker, start_offset):
    """The process is killed after the first appends to the new log, but before any periodic checkpoint."""
    (log,) = broker.create(KEYS[0])
    fill(log, 20)
    log.advance_log_start_offset(start_offset)
    broker.after(120)
    broker.run(broker.directories.delete(KEYS[0]))
    (log,) = broker.create(KEYS[0])
    while log.appends_blocked:
        broker.after(0.01)
    fill(log, 3)
    broker.directories.abandon()
    broker.start()
    assert broker.directories.high_watermark(KEYS[0]) == 0
    log = broker.logs[KEYS[0]]
    assert (log.log_start_offset, log.log_end_offset) == (0, 3)


def test_deleted_logs_are_renamed_and_then_removed(broker):
    """The name can be reused at once, even with another topic ID; files are removed after ``file.delete.delay.ms``."""
    (log,) = broker.create(KEYS[0])
    fill(log, 3)
    part = log.read(0, size_max=10_000, offset_max=3).ranges[0]
    broker.run(broker.directories.delete(KEYS[0]))
    assert KEYS[0] not in broker.logs
    with pytest.raises(KafkaError) as caught:
        fill(log, 1)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    (again,) = broker.create(KEYS[0], topic_id=UUID(int=78))
    assert again.log_end_offset == 0
    left = lambda: [name for path in broker.paths for name in broker.disk.list_directory(path) if "-delete" in name]  # noqa: E731
    assert len(left()) == 1
    assert len(records_of(part.read())) == 3
    broker.after(61)
    assert left() == []
    assert broker.directories.topic_id(KEYS[0]) == UUID(int=78)


@pytest.mark.parametrize("seed", range(8))
def test_synced_deletions_survive_power_loss(seed):
    """A confirmed deletion is final: a log that reappears would belong to an older partition of the same name."""
    broker = Broker(config=replace(SMALL, flush_messages=1), seed=seed).start()
    for log in broker.create(*KEYS):
        fill(log, 3)
    broker.after(1)
    broker.run(broker.directories.delete(KEYS[0]))
    assert broker.run(broker.directories.sync_deletions()) == []
    broker.host.power_loss()
    broker.start()
    assert sorted(broker.logs) == KEYS[1:]


def test_a_failed_sync_of_deletions_is_reported(broker):
    """The directory goes offline, and its deletions are not confirmed."""
    broker.create(*KEYS)
    broker.run(broker.directories.delete(KEYS[0]))
    broker.disk.fail("sync_directory", "/data/*")
    assert broker.run(broker.directories.sync_deletions()) == [KEYS[0]]
    assert [directory.offline is not None for directory in broker.directories.directories].count(True) == 1


def test_interrupted_deletions_are_finished(broker):
    """A log renamed before a kill is removed after the next start, and is not opened."""
    broker.create(*KEYS)
    broker.run(broker.directories.delete(KEYS[0]))
    broker.host.kill()
    broker.start()
    broker.after(1)
    assert sorted(broker.logs) == KEYS[1:]
    assert not [name for path in broker.paths for name in broker.disk.list_directory(path) if "-delete" in name]


def test_damaged_log_does_not_affect_others(broker):
    """A log that is damaged below its recovery point is offline; all others are served."""
    for log in broker.create(*KEYS):
        fill(log, 20)
    broker.after(120)
    for log in broker.logs.values():
        flush(log)
    broker.after(120)
    path = broker.logs[KEYS[1]].path
    broker.host.kill()
    last = [name for name in broker.disk.list_directory(path) if name.endswith(".log")][-1]
    broker.disk.flip_bit(f"{path}/{last}", 100)
    broker.start()
    assert sorted(broker.logs) == [KEYS[0], KEYS[2], KEYS[3]]
    (failed,) = [one for one in broker.directories.directories if one.failed_logs]
    assert "damaged" in str(failed.failed_logs[KEYS[1]])
    with pytest.raises(StorageError, match="damaged"):
        broker.create(KEYS[1])


def test_failed_sync_takes_its_directory_offline(broker):
    """The sync is not retried: all logs in this directory are offline; those in the other directory are served."""
    broker.create(*KEYS)
    first, second = broker.directories.directories
    broker.disk.fail("sync", "/data/one/*", number=errno.EIO, times=1)
    for log in broker.logs.values():
        fill(log, 20)
    broker.after(1)
    assert broker.offline == list(first.logs)
    assert sorted(broker.logs) == sorted(second.logs)
    for log in first.logs.values():
        with pytest.raises(KafkaError):
            fill(log, 1)
    for log in second.logs.values():
        fill(log, 1)
    with pytest.raises(StorageError, match="offline"):
        broker.create(broker.offline[0])
    for key in KEYS:
        broker.directories.flush(key)  # the caller need not know which directory is offline
    broker.stop()
    assert broker.disk.exists("/data/two/.kafka_cleanshutdown")
    assert not broker.disk.exists("/data/one/.kafka_cleanshutdown")


@pytest.mark.parametrize("operation", ["open", "read"])
@pytest.mark.parametrize("locked", [True, False])
def test_device_that_is_dead_at_the_start(broker, operation, locked):
    """The other directory is used; the logs on the dead device are back after a start with a working device."""
    for log in broker.create(*KEYS):
        fill(log, 3)
    first, second = (list(directory.logs) for directory in broker.directories.directories)
    broker.stop()
    broker.disk.fail(operation, "/data/two/*", errno.EIO)
    if locked:
        directories = LogDirectories(broker.host.runtime, broker.paths)
        directories.lock()
        directories.abandon()
    broker.start()
    assert [directory.offline is None for directory in broker.directories.directories] == [True, False]
    assert broker.directories.may_have_unknown_logs
    assert sorted(broker.logs) == sorted(first)
    for log in broker.logs.values():
        fill(log, 1)
    broker.after(100)
    broker.stop()
    broker.disk.clear_faults()
    broker.start()
    assert sorted(broker.logs) == sorted(first + second)
    assert not broker.directories.may_have_unknown_logs


@pytest.mark.parametrize("operation", ["open", "read"])
def test_all_devices_are_dead_at_the_start(broker, operation):
    """One line is logged per device."""
    broker.stop()
    broker.disk.fail(operation, "/data/*", errno.EIO)
    with pytest.raises(StorageError, match=r"no log directory can be used: /data/one: .* /data/two: "):
        broker.start()
    broker.disk.clear_faults()
    broker.start()


def test_no_file_descriptors_at_the_start(broker):
    """The device is not treated as failed: the broker does not start, but loses nothing."""
    broker.create(*KEYS)
    broker.stop()
    broker.disk.fail("open", "/data/two/*", errno.EMFILE)
    with pytest.raises(OSError, match="Too many open files"):
        broker.start()
    broker.disk.clear_faults()
    broker.start()
    assert sorted(broker.logs) == KEYS


def test_retention_and_compaction_run_periodically():
    broker = Broker(paths=["/data"], config=replace(SMALL, retention_ms=1000)).start()
    (log,) = broker.create(KEYS[0])
    fill(log, 30)
    compacted = replace(SMALL, cleanup_policy=frozenset({"compact"}))
    other = broker.directories.create(KEYS[1], ZERO_UUID, compacted)
    for number in range(40):
        append_as_leader(other, batch((f"key {number % 2}", f"value {number}".ljust(80))), 0, now_ms=1)
    broker.after(20)
    assert len(values_of(other)) < 20
    assert values_of(other)[-1] == (39, "value 39")
    broker.after(700)
    assert log.log_start_offset == 30
    broker.stop()
    assert b"a.b-c 1 " in broker.disk.read_file("/data/cleaner-offset-checkpoint")
    assert broker.directories.topic_id(KEYS[1]) is None


@pytest.mark.parametrize(("synced", "offset"), [(1, 2), (3, 50)])
def test_log_is_synced_after_a_truncation(synced, offset):
    """With ``flush.messages=1``, this holds even if the log is truncated during a sync or restarts above its end."""
    broker = Broker(paths=["/data"], config=replace(SMALL, flush_messages=1)).start()
    (log,) = broker.create(KEYS[0])
    fill(log, 3)
    broker.simulation.run_until(lambda: log.durability.recovery_point >= synced)
    log.truncate_to(offset) if offset < log.log_end_offset else log.truncate_fully_and_start_at(offset)
    assert (log.durability.recovery_point, log.log_end_offset) == (synced, offset)
    broker.after(1)
    assert log.durability.recovery_point == offset


def test_flush_ms():
    """A log with ``flush.ms`` is synced at least that often."""
    broker = Broker(paths=["/data"], config=replace(SMALL, flush_ms=5000)).start(
        storage=StorageConfig(log_flush_scheduler_interval_ms=1000)
    )
    (log,) = broker.create(KEYS[0])
    fill(log, 1)
    broker.after(1)
    fill(log, 1)
    broker.after(3)
    assert log.durability.recovery_point < 2
    broker.after(5)
    assert log.durability.recovery_point == 2


def test_unknown_directories_are_reported_and_left_alone(broker):
    broker.disk.make_directories("/data/one/lost+found")
    broker.disk.make_directories("/data/one/topic-1.0123-future")
    broker.stop()
    broker.start()
    assert broker.directories.directories[0].strays == ["lost+found", "topic-1.0123-future"]


def test_close_leaves_no_timer(broker):
    broker.create(*KEYS)
    broker.run(broker.directories.delete(KEYS[0]))
    broker.stop()
    assert [call for call in broker.host.reactor.getDelayedCalls() if call.active()] == []


def test_log_in_two_directories_is_refused(broker):
    """Start fails, because it is unknown which of the two copies is correct."""
    broker.create(KEYS[0])
    broker.stop()
    broker.disk.make_directories("/data/two/a.b-c-0")
    with pytest.raises(StorageError, match="two log directories"):
        broker.start()
    broker.disk.remove_tree("/data/two/a.b-c-0")
    broker.start()
