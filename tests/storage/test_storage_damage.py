"""Damage in stored batches: how it is detected, how other batches are read, and how the log is replaced."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace

import pytest
from storage_world import SMALL, fill, flush, read_bytes, values_of
from twisted.internet.defer import Deferred

from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import ZERO_UUID, TopicPartition
from kreplica.runtime.disk import FileRange
from kreplica.storage import LogDirectories, StorageConfig
from kreplica.storage.directories.failed_logs import set_aside
from kreplica.storage.directories.scrubbing import PASS_STEPS_MIN
from kreplica.storage.formats.batch_scanning import HEADERS_READ_SIZE
from kreplica.storage.log.checks import check_batch
from kreplica.storage.log.log import Log
from kreplica.storage.log.retention import delete_expired
from kreplica.storage.log.timestamp_search import MAX_TIMESTAMP, offset_for_timestamp
from kreplica.storage.log_config import LogConfig
from kreplica.storage.segments.damage import WHOLE_SEGMENT, Damage
from kreplica.testing.simulator.disk import MemoryDisk
from kreplica.testing.simulator.memory_file import MemoryFile
from kreplica.testing.simulator.simulation import Simulation

KEY, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)
RECORD_BYTES = 100
SLOW = StorageConfig(scrub_bytes_per_second=1000)
EVERYTHING = 1 << 20


class World:
    """One broker's log directory, and the damage that it reported."""

    def __init__(self, storage: StorageConfig | None = None, config: LogConfig = SMALL) -> None:
        self.simulation = Simulation(1)
        self.host = self.simulation.host("broker")
        self.disk: MemoryDisk = self.host.disk
        self.found: list[Damage] = []
        self.offline: list[TopicPartition] = []
        self._storage = storage or StorageConfig(scrub_bytes_per_second=EVERYTHING)
        self.config = config
        self.start()

    def start(self) -> None:
        self.directories = LogDirectories(self.host.runtime, ["/data/logs"], self._storage)
        opening = self.directories.open("cluster", 1, lambda _: self.config)
        self.simulation.run_until(Deferred.fromCoroutine(opening))
        self.directories.on_damage(lambda _, damage: self.found.append(damage))
        self.directories.on_offline(self.offline.extend)
        self.directories.start(lambda: {key: log.log_end_offset for key, log in self.directories.logs.items()})

    def log(self, key: TopicPartition = KEY, count: int = 30) -> Log:
        log = self.directories.create(key, ZERO_UUID, self.config)
        fill(log, count, size=RECORD_BYTES)
        return log

    def flip(self, log: Log, segment: int, position: int, bit: int = 2) -> str:
        path = log.segments[segment].path()
        self.disk.flip_bit(path, position, bit)
        return path

    def run(self, seconds: float) -> None:
        self.simulation.run(seconds)

    def wait(self, work: object) -> object:
        return self.simulation.run_until(work)


@pytest.fixture
def world() -> World:
    return World()


class TestScrubbing:
    @pytest.mark.parametrize("position", [0, 7, 8, 11, 15, 16, 17, 22, 60, 100])
    @pytest.mark.parametrize("segment", [0, 2, -1])
    def test_every_flipped_bit_is_found(self, world: World, segment: int, position: int) -> None:
        """The bits are in offsets, lengths, epochs, checksums and records, in closed segments and in the active one."""
        log = world.log()
        path = world.flip(log, segment, position)
        world.run(5)
        assert {damage.path for damage in world.found} == {path}
        assert {damage.base_offset for damage in world.found} == {log.segments[segment].base_offset}

    def test_intact_logs_have_no_findings(self, world: World) -> None:
        """Nothing is found even if logs grow, are truncated and rolled, and their leaders change meanwhile."""
        log = world.log()
        for turn in range(40):
            log.begin_leader_epoch(turn)
            fill(log, 7, epoch=turn, size=RECORD_BYTES)
            world.run(3)
            log.truncate_to(log.log_end_offset - turn % 5)
            while log.appends_blocked:  # until the high watermark on disk is below the new end
                world.run(0.01)
            log.advance_log_start_offset(log.log_start_offset + 3)
        world.run(2 * PASS_STEPS_MIN)
        assert world.found == []

    def test_scrub_rate_is_limited(self) -> None:
        """The rate is in bytes per second; damage that is still there is reported again in the next pass."""
        world = World(SLOW)
        log = world.log(count=60)
        world.flip(log, 7, 100)
        seconds = log.segments.size_bytes // SLOW.scrub_bytes_per_second
        assert seconds > 5
        world.run(seconds / 2)
        assert world.found == []
        world.run(seconds)
        assert len(world.found) == 1
        world.run(4 * seconds)
        assert len(world.found) > 1

    def test_single_failed_read_is_not_damage(self, world: World) -> None:
        """The batch is read again before it is reported."""
        log = world.log()
        world.disk.fail("read", log.segments[1].path(), errno.EIO, times=1)
        world.run(5)
        assert world.found == []

    def test_rate_0_disables_scrubbing(self) -> None:
        world = World(StorageConfig(scrub_bytes_per_second=0))
        world.flip(world.log(), 1, 100)
        world.run(100)
        assert world.found == []


class TestReading:
    def rejection(self, read: Callable[[], object]) -> ErrorCode:
        with pytest.raises(KafkaError) as rejected:
            read()
        return rejected.value.code

    def test_batches_around_the_damage_are_readable(self, world: World) -> None:
        """Reading stops before the damaged batch, returns an error with its offset there, and can continue after it."""
        log = world.log()
        segment = log.segments[1]
        headers = [header for _, header in segment.headers()]
        position = headers[0].size + headers[1].size
        path = world.flip(log, 1, position + 70)
        world.run(3)
        log.damage.exclude(world.found[0])
        assert values_of(log, offset_max=segment.base_offset)[-1][0] == segment.base_offset - 1
        assert log.read(headers[0].base_offset, size_max=EVERYTHING, offset_max=30).size == position
        with pytest.raises(KafkaError, match=f"{path}, position {position}") as rejected:
            log.read(headers[2].base_offset, size_max=EVERYTHING, offset_max=30)
        assert rejected.value.code is ErrorCode.CORRUPT_MESSAGE
        following = headers[3].base_offset
        assert log.read(following, size_max=EVERYTHING, offset_max=30).first_offset == following
        fill(log, 1)

    def test_invalid_length_is_damage(self, world: World) -> None:
        """A reader does not silently skip the records."""
        log = world.log()
        path = world.flip(log, 1, 8, 7)
        with pytest.raises(Damage, match=path):
            log.read(log.segments[1].base_offset, size_max=EVERYTHING, offset_max=30)

    @pytest.mark.parametrize("timestamp_ms", [1018, MAX_TIMESTAMP])
    def test_search_error_names_the_damaged_segment(self, world: World, timestamp_ms: int) -> None:
        """If the error named the segment in which the search started, the intact segments in between would be set
        aside."""
        log = world.log()
        segment = log.segments[3 if timestamp_ms > 0 else -1]
        world.disk.fail("read", segment.path(), errno.EIO)
        with pytest.raises(Damage) as found:
            offset_for_timestamp(log, timestamp_ms, log.log_end_offset)
        assert (found.value.base_offset, found.value.position) == (segment.base_offset, WHOLE_SEGMENT)

    def test_second_look_reads_little(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Since a leader does this for each partition in a response, it reads only the batch and the next one."""
        log = World(config=LogConfig()).log(count=200)
        sizes: list[int] = []
        read_at = MemoryFile.read_at

        def counted(file: MemoryFile, position: int, size: int) -> bytes:
            sizes.append(size)
            return read_at(file, position, size)

        monkeypatch.setattr(MemoryFile, "read_at", counted)
        check_batch(log, 0)
        assert max(sizes) <= HEADERS_READ_SIZE < log.segments.size_bytes

    def test_segment_that_becomes_readable_again(self, world: World) -> None:
        """If the device returns correct data again, no read is rejected."""
        log = world.log()
        path = log.segments[1].path()
        world.disk.fail("read", path, errno.EIO)
        world.run(3)
        log.damage.exclude(world.found[0])
        offset = log.segments[1].base_offset
        world.disk.clear_faults()
        assert self.rejection(lambda: log.read(offset, size_max=9, offset_max=30)) is ErrorCode.CORRUPT_MESSAGE
        world.run(2 * PASS_STEPS_MIN)
        assert isinstance(log.read(offset, size_max=EVERYTHING, offset_max=30).ranges[0], FileRange)

    def test_truncated_damage_is_forgotten(self, world: World) -> None:
        """Records written in its place are served, even if no batch starts where the damage was."""
        log = world.log()
        active = log.segments.active
        position, header = list(active.headers())[-1]
        log.damage.exclude(Damage(active.path(), active.base_offset, position, "test"))
        log.truncate_to(header.base_offset)
        assert not list(log.damage.by_segment.values())
        log.truncate_to(active.base_offset + 1)
        fill(log, 1, size=RECORD_BYTES + 70)
        fill(log, 3, size=RECORD_BYTES)
        assert values_of(log)[-1][0] == log.log_end_offset - 1

    @pytest.mark.parametrize("position", [WHOLE_SEGMENT, 100])
    def test_damage_below_a_truncation_remains(self, world: World, position: int) -> None:
        """Damage that is removed along with its segment is forgotten."""
        log = world.log()
        segment = log.segments[1]
        log.damage.exclude(Damage(segment.path(), segment.base_offset, position, "test"))
        log.truncate_to(segment.base_offset + 4)
        assert list(log.damage.by_segment.values())
        log.advance_log_start_offset(segment.base_offset + 4)
        log.roll(2000)
        delete_expired(log, 2000, log.log_end_offset)
        assert not list(log.damage.by_segment.values())


class TestPeriodicWork:
    """Work that reads timestamps reports an unreadable segment, and the log directory stays online."""

    def unreadable(self, config: LogConfig, segment: int = 1, **storage: int) -> tuple[World, Log, str]:
        """Restart a broker with two logs, and make reads fail for a segment that recovery did not read."""
        world = World(StorageConfig(scrub_bytes_per_second=0, **storage))
        log = world.log()
        path = log.segments[segment].path()
        world.log(OTHER)
        flush(log)
        world.directories.directories[0].checkpoints.request()
        world.run(0.5)
        world.host.kill()
        world.config = config
        world.start()
        world.disk.fail("read", path, errno.EIO)
        return world, world.directories.logs[KEY], path

    def check(self, world: World, path: str) -> None:
        assert [(damage.path, damage.position) for damage in world.found] == [(path, WHOLE_SEGMENT)]
        assert world.directories.directories[0].offline is None
        assert sorted(world.directories.logs) == [KEY, OTHER]

    def test_retention(self) -> None:
        config = replace(SMALL, retention_ms=0)
        world, _, path = self.unreadable(config, log_retention_check_interval_ms=1000)
        world.run(1.5)
        self.check(world, path)

    @pytest.mark.parametrize(("segment", "setting"), [(1, "min_compaction_lag_ms"), (0, "max_compaction_lag_ms")])
    def test_choice_of_a_log_to_compact(self, segment: int, setting: str) -> None:
        config = replace(SMALL, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=2, **{setting: 1})
        world, _, path = self.unreadable(config, segment, log_cleaner_backoff_ms=1000)
        world.run(1.5)
        self.check(world, path)

    @pytest.mark.parametrize("timestamp_ms", [1018, MAX_TIMESTAMP])
    def test_search_by_time(self, timestamp_ms: int) -> None:
        """The error names the segment that cannot be read, not the one in which the search started."""
        _, log, path = self.unreadable(SMALL)
        with pytest.raises(Damage, match=path):
            offset_for_timestamp(log, timestamp_ms, log.log_end_offset)


class TestSettingAside:
    def test_log_is_restarted_before_the_damage(self, world: World) -> None:
        """Batches before the damaged segment are kept; this segment and all later ones are kept under other names."""
        log, other = world.log(), world.log(OTHER)
        world.flip(log, 2, 100)
        world.run(3)
        bases = [segment.base_offset for segment in log.segments]
        before = read_bytes(log, offset_max=bases[2])
        world.directories.take_offline(KEY, world.found[0])
        assert world.offline == [KEY]
        assert list(world.directories.logs) == [OTHER]
        assert world.directories.failed_logs() == [KEY]
        with pytest.raises(KafkaError):
            fill(log, 1)
        assert world.wait(world.directories.set_damage_aside(KEY)) is True
        again = world.directories.logs[KEY]
        assert again.log_end_offset == bases[2]
        assert read_bytes(again) == before
        kept = [name for name in world.disk.list_directory(log.path) if name.endswith(".damaged")]
        assert [int(name.split(".")[0]) for name in kept] == bases[2:]
        fill(again, 5, first=bases[2])
        fill(other, 1)
        world.run(5)
        assert world.directories.failed_logs() == []

    def test_log_is_restored(self, world: World) -> None:
        """The log contains all its readable records again."""
        log = world.log()
        world.flip(log, 2, 100)
        world.run(3)
        world.directories.take_offline(KEY, world.found[0])
        assert world.wait(world.directories.bring_online(KEY)) is True
        assert world.directories.logs[KEY] is log
        assert list(log.damage.by_segment.values()) == world.found[:1]
        fill(log, 1)

    def test_restart_is_recorded_in_checkpoints(self, world: World) -> None:
        """A broker that starts before the log has new records does not scan more, and restores no deleted record."""
        log = world.log()
        flush(log)
        log.advance_log_start_offset(3)
        world.directories.take_offline(KEY, Damage("/data/logs/orders-0/x.log", 0, WHOLE_SEGMENT, "test"))
        world.log(OTHER)
        world.run(70)
        world.host.kill()
        world.start()
        again = world.directories.logs[KEY]
        assert (again.durability.recovery_point, again.log_start_offset) == (30, 3)

    @pytest.mark.parametrize("way", ["bring_online", "set_damage_aside"])
    def test_device_failed_before_the_restore(self, world: World, way: str) -> None:
        """The log stays set aside and its files are unchanged until the device works again."""
        world.log()
        world.log(OTHER)
        world.directories.take_offline(KEY, Damage("/data/logs/orders-0/x.log", 0, WHOLE_SEGMENT, "test"))
        world.disk.fail("sync", "/data/*", errno.EIO, times=1)
        world.directories.flush(OTHER)
        world.run(3)
        assert world.offline == [KEY, OTHER]
        names = world.disk.list_directory("/data/logs/orders-0")
        assert world.wait(getattr(world.directories, way)(KEY)) is False
        assert not world.directories.logs
        assert world.disk.list_directory("/data/logs/orders-0") == names

    def test_device_fails_during_the_restore(self, world: World) -> None:
        """After the next start, the directory is offline."""
        world.log()
        world.directories.take_offline(KEY, Damage("/data/logs/orders-0/x.log", 0, WHOLE_SEGMENT, "test"))
        world.disk.fail("write", "/data/logs/*checkpoint*", errno.EIO)
        assert world.wait(world.directories.set_damage_aside(KEY)) is False
        assert world.directories.directories[0].offline is not None
        assert not world.directories.logs

    def test_deleting_a_log_set_aside(self, world: World) -> None:
        """The damaged segments are deleted with the topic."""
        world.log()
        world.directories.take_offline(KEY, Damage("/data/logs/orders-0/x.log", 0, WHOLE_SEGMENT, "test"))
        world.wait(world.directories.delete(KEY))
        assert world.directories.failed_logs() == []
        world.run(100)
        assert world.disk.list_directory("/data/logs") == sorted(
            name for name in world.disk.list_directory("/data/logs") if "orders" not in name
        )

    @pytest.mark.parametrize("renames", range(1, 20))
    def test_kill_while_segments_are_set_aside(self, world: World, renames: int) -> None:
        """Whenever the process is killed, the log ends before the damage and has no gap."""
        log = world.log()
        before = values_of(log)
        done = _interrupted(world.disk, renames, lambda: set_aside(world.disk, log.path, 8, 1))
        world.host.kill()
        world.start()
        again = values_of(world.directories.logs[KEY])
        assert again == before[: len(again)]
        assert done or len(again) >= 8


def _interrupted(disk: MemoryDisk, operations: int, work: Callable[[], None]) -> bool:
    """Kill the process after this number of renames and removals; return True if the work was complete by then."""
    left = [operations]

    def counted(original: Callable[..., None]) -> Callable[..., None]:
        def call(*args: str) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
            original(*args)

        return call

    rename, remove = disk.rename, disk.remove
    disk.rename, disk.remove = counted(rename), counted(remove)  # type: ignore[method-assign]
    try:
        work()
    except KeyboardInterrupt:
        return False
    finally:
        disk.rename, disk.remove = rename, remove  # type: ignore[method-assign]
    return True


class TestStart:
    def test_unreadable_log_at_the_start(self, world: World) -> None:
        """Other logs are opened; this one is opened as soon as it can be read, or without its unreadable segments."""
        log = world.log()
        world.log(OTHER)
        path = log.segments.active.path()
        world.host.kill()
        world.disk.fail("read", path, errno.EIO)
        world.start()
        assert list(world.directories.logs) == [OTHER]
        assert world.wait(world.directories.bring_online(KEY)) is False
        world.disk.clear_faults()
        assert world.wait(world.directories.bring_online(KEY)) is True
        assert world.directories.logs[KEY].log_end_offset == 30

    @pytest.mark.parametrize(("position", "is_durable"), [(70, True), (17, True), (8, False), (26, False)])
    def test_damaged_log_without_a_better_copy(self, world: World, position: int, is_durable: bool) -> None:
        """The log is used without the damaged batches below the recovery point, if their boundaries are certain."""
        log = world.log()
        flush(log)
        world.directories.directories[0].checkpoints.request()
        world.run(1)
        before = values_of(log)
        batch_size = next(iter(log.segments.active.headers()))[1].size
        world.flip(log, -1, batch_size + position)
        world.host.kill()
        world.start()
        assert dict(world.directories.logs) == {}
        assert world.wait(world.directories.bring_online(KEY)) is is_durable
        if is_durable:
            again = world.directories.logs[KEY]
            assert again.log_end_offset == 30
            base_offset = again.segments.active.base_offset
            assert [damage.base_offset for damage in again.damage.by_segment.values()] == [base_offset]
            with pytest.raises(KafkaError, match="wrong CRC"):
                again.read(base_offset + 1, size_max=EVERYTHING, offset_max=30)
            last = again.read(base_offset + 2, size_max=EVERYTHING, offset_max=30)
            assert last.first_offset == base_offset + 2
            assert values_of(again, offset_max=base_offset + 1) == before[: base_offset + 1]

    def test_loss_is_reported(self, world: World) -> None:
        """The broker's registration must show that it may have lost records."""
        log = world.log()
        (directory,) = world.directories.directories
        assert directory.truncated_logs == []
        world.flip(log, -1, log.segments.active.size - 5)
        world.host.kill()
        world.start()
        assert world.directories.directories[0].truncated_logs == [KEY]
