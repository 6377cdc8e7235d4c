"""After a clean stop, one file describes all logs in a directory; it is never used for a log that has changed since."""

from __future__ import annotations

import copy
from dataclasses import replace
from random import Random

import pytest
from storage_world import SMALL, batch, fill, flush, idempotent, marker, open_log, read_bytes, values_of
from test_storage_directories import CLUSTER, KEYS, TOPIC_ID, Broker
from twisted.internet.defer import Deferred

from kreplica.errors import KafkaError
from kreplica.storage import LogConfig, Origin
from kreplica.storage.directories import closed_logs
from kreplica.storage.directories.closed_logs import FILE_NAME, describe
from kreplica.storage.directories.log_directories import LogDirectories
from kreplica.storage.directories.opening import LogToOpen
from kreplica.storage.formats.checkpoints import CLEAN_SHUTDOWN, write_clean_shutdown
from kreplica.storage.log.appending import append_as_leader
from kreplica.storage.log.segment_replacement import remove_segments
from kreplica.storage.recovery.loading import Loading
from kreplica.testing.simulator.disk import MemoryDisk

PATH = "/data/orders-0"
STEP_COUNT = 12


@pytest.fixture
def broker():
    return Broker().start()


@pytest.fixture
def opened_by_reading(monkeypatch):
    """The names of the logs that were opened by reading their files."""
    names = []
    run = Loading.run

    def noted(self, **state):
        names.append(self._name)
        return run(self, **state)

    monkeypatch.setattr(Loading, "run", noted)
    return names


def test_start_opens_no_file_of_a_log(broker):
    """Logs with several segments can be used even if none of their files can be opened or read at the start."""
    for log in broker.create(*KEYS):
        fill(log, 20, epoch=3)
    before = {key: read_bytes(log) for key, log in broker.logs.items()}
    broker.stop()
    broker.disk.fail("open", "/data/*/*/*")
    broker.disk.fail("read", "/data/*/*/*")
    broker.start()
    assert {key: log.log_end_offset for key, log in broker.logs.items()} == dict.fromkeys(KEYS, 20)
    assert {broker.directories.topic_id(key) for key in KEYS} == {TOPIC_ID}
    broker.disk.clear_faults()
    assert {key: read_bytes(log) for key, log in broker.logs.items()} == before
    broker.stop()


def test_file_is_removed_before_the_logs_are_used(broker, opened_by_reading):
    """A broker that was killed after its start reads its logs at the next start, and finds all appended records."""
    (log,) = broker.create(KEYS[0])
    fill(log, 5)
    broker.stop()
    assert broker.disk.exists(f"/data/one/{FILE_NAME}")
    broker.start()
    assert not opened_by_reading
    assert not broker.disk.exists(f"/data/one/{FILE_NAME}")
    fill(broker.logs[KEYS[0]], 5, first=5)
    broker.host.kill()
    broker.start()
    assert opened_by_reading == [KEYS[0]]
    assert broker.logs[KEYS[0]].log_end_offset == 10


def appended(disk, path):
    """Another broker process appends and closes the log."""
    log = LogToOpen(path, KEYS[0], SMALL, disk, lambda: 9000, clean_shutdown=True).open()[0]
    fill(log, 1, first=5)
    log.close()


def cut(disk, path):
    """The end of the active segment is removed."""
    file = disk.open(f"{path}/{0:020d}.log")
    file.truncate(file.size() - 10)


def replaced(disk, path):
    """A segment file is replaced by one of the same size and content."""
    name = f"{path}/{0:020d}.log"
    disk.write_file(name, disk.read_file(name))


def deleted(disk, path):
    """An operator removes an index."""
    disk.remove(f"{path}/{0:020d}.index")


@pytest.mark.parametrize("change", [appended, cut, replaced, deleted])
def test_changed_log_is_read(broker, opened_by_reading, change):
    """Only a log whose files have changed since the stop is opened by reading its files."""
    config = broker.config = replace(SMALL, segment_bytes=100_000)
    for log in broker.create(*KEYS[:2]):
        fill(log, 5)
    path = broker.logs[KEYS[0]].path
    broker.stop()
    broker.after(1)
    change(broker.disk, path)
    opened_by_reading.clear()
    broker.start()
    assert opened_by_reading == [KEYS[0]]
    expected = {appended: 6, cut: 4}.get(change, 5)
    assert broker.logs[KEYS[0]].log_end_offset == expected
    assert [offset for offset, _ in values_of(broker.logs[KEYS[0]])] == list(range(expected))
    assert config.segment_bytes == 100_000


def of_another_stop(disk, directory):
    write_clean_shutdown(disk, f"{directory}/{CLEAN_SHUTDOWN}", 6)


def without_marker(disk, directory):
    disk.remove(f"{directory}/{CLEAN_SHUTDOWN}")


def damaged(disk, directory):
    disk.flip_bit(f"{directory}/{FILE_NAME}", 60)


def missing(disk, directory):
    disk.remove(f"{directory}/{FILE_NAME}")


def of_a_stop_without_epoch(disk, directory):
    write_clean_shutdown(disk, f"{directory}/{CLEAN_SHUTDOWN}", -1)


@pytest.mark.parametrize("change", [of_another_stop, without_marker, damaged, missing, of_a_stop_without_epoch])
def test_file_that_does_not_belong_to_the_stop_is_ignored(opened_by_reading, change):
    """The logs are opened by reading their files, and the useless file is removed."""
    broker = Broker(paths=["/data/one"]).start()
    (log,) = broker.create(KEYS[0])
    fill(log, 5)
    broker.stop(epoch=5)
    change(broker.disk, "/data/one")
    broker.start()
    assert opened_by_reading == [KEYS[0]]
    assert broker.logs[KEYS[0]].log_end_offset == 5
    assert not broker.disk.exists(f"/data/one/{FILE_NAME}")


def test_full_disk_at_the_stop_costs_only_time(broker, opened_by_reading):
    """If the file cannot be written, the stop is clean nevertheless."""
    (log,) = broker.create(KEYS[0])
    fill(log, 5)
    broker.disk.fail("write", f"*{FILE_NAME}*", 28)
    broker.stop(epoch=8)
    broker.disk.clear_faults()
    broker.start()
    assert broker.directories.clean_broker_epoch == 8
    assert opened_by_reading == [KEYS[0]]


def test_pending_removals_are_completed(broker):
    """A log with files to remove is not described, so that the next start removes them."""
    (log,) = broker.create(KEYS[0])
    fill(log, 20)
    remove_segments(log, log.segments.closed[:1])
    broker.stop()
    broker.start()
    assert not [name for name in broker.disk.list_directory(log.path) if name.endswith(".deleted")]


# --- a reopened log equals one that was read --------------------------------------------------------------------------


def test_reopened_log_is_like_one_that_was_read():
    """Whatever happened before the stop, both ways to open a log result in the same state, and later the same files."""
    described = [compare_after(Random(seed)) for seed in range(150)]
    assert described.count(True) > 75
    assert described.count(False) > 5, "logs with aborted transactions are not described"


def compare_after(random):
    disk = MemoryDisk(directories=["/data"])
    log = open_log(PATH, SMALL, disk)
    closed = None
    for _ in range(random.randint(1, 3)):  # stops
        for _ in range(random.randint(0, STEP_COUNT)):
            random.choice(STEPS)(log, random)
        log.close()
        closed = describe(log)
        if closed is None:
            return False
        other_disk = copy.deepcopy(disk)
        state = {"clean_shutdown": True, "log_start_offset": log.log_start_offset}
        log = open_log(PATH, SMALL, disk, closed=closed, **state)
        read = open_log(PATH, SMALL, other_disk, **state)
        assert state_of(log) == state_of(read)
        seed = random.random()
        for each in (log, read):
            fill(each, 3, epoch=20, first=100)
            STEPS[int(seed * len(STEPS))](each, Random(seed))
            each.close()
        assert state_of(log) == state_of(read)
        assert files_of(disk) == files_of(other_disk)
        log = open_log(PATH, SMALL, disk, **state)
    return True


def state_of(log):
    producers = log.producers
    return (
        (log.log_start_offset, log.log_end_offset, log.durability.recovery_point, log.leader_epochs.entries),
        [(segment.base_offset, segment.size) for segment in log.segments],
        [segment.largest for segment in log.segments if segment.size],
        [segment.first_timestamp_ms for segment in log.segments if segment.size],
        sorted(map(repr, producers.entries)),
        producers.ongoing_transactions,
        producers.replicated_after_gap,
        read_bytes(log),
    )


def files_of(disk):
    return {name: bytes(disk.stored(f"{PATH}/{name}")) for name in disk.list_directory(PATH)}


def append_some(log, random):
    epoch = max(log.leader_epochs.latest, 0) + random.choice([0, 0, 1])
    fill(log, random.randint(1, 8), epoch=epoch, first=random.randint(0, 50))


def append_idempotent(log, random):
    producer_id = random.randint(1, 3)
    entry = log.producers.get(producer_id)
    sequence = entry.last_sequence + 1 if entry is not None and entry.batches else 0
    append_as_leader(log, idempotent(sequence, producer_id=producer_id), max(log.leader_epochs.latest, 0), now_ms=2000)


def append_transaction(log, random):
    producer_id = random.randint(5, 6)
    log.producers.verifications.begin(producer_id, 0, starts_at_zero=False).is_verified = True
    records = batch("in a transaction", producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)
    try:
        append_as_leader(log, records, max(log.leader_epochs.latest, 0), now_ms=2000)
    except KafkaError:
        return  # a repeated sequence number
    if random.random() < 0.7:
        committed = random.random() < 0.8
        records = marker(producer_id, committed=committed)
        append_as_leader(log, records, max(log.leader_epochs.latest, 0), now_ms=2000, origin=Origin.COORDINATOR)


def truncate(log, random):
    if log.log_end_offset > log.log_start_offset:
        log.truncate_to(random.randint(log.log_start_offset, log.log_end_offset))


def advance_start(log, random):
    log.advance_log_start_offset(random.randint(log.log_start_offset, log.log_end_offset))


def restart_at(log, random):
    if random.random() < 0.2:
        log.truncate_fully_and_start_at(log.log_end_offset + 5)


def roll(log, random):
    log.roll(2000)


def sync(log, random):
    flush(log)


STEPS = [
    append_some,
    append_some,
    append_idempotent,
    append_transaction,
    truncate,
    advance_start,
    restart_at,
    roll,
    sync,
]


# --- crashes ----------------------------------------------------------------------------------------------------------


def test_no_synced_record_is_lost_whenever_the_machine_or_process_dies():
    """Starts and stops are interrupted at any time by a kill or a power loss; files of earlier stops are never used."""
    used = sum(random_life(seed) for seed in range(60))
    assert used > 20, "the file was rarely used"


def random_life(seed):
    """Return the number of logs that were reopened without reading their files."""
    random = Random(seed)
    broker = Broker(paths=["/data/one"], config=LogConfig(segment_bytes=2000), seed=seed)
    broker.lost_power = False
    values, synced, used = [], 0, 0
    for epoch in range(8):
        was_intact = not broker.lost_power
        reopened = start(broker, random)
        if reopened is None:
            continue
        used += reopened
        log = broker.logs.get(KEYS[0]) or broker.create(KEYS[0])[0]
        found = [value for _, value in values_of(log)]
        assert found == values[: len(found)]
        assert len(found) >= synced, f"seed {seed}: lost synced records"
        assert not was_intact or len(found) == len(values), f"seed {seed}: a kill lost records"
        values = found
        for _ in range(random.randint(0, 6)):
            values.append(f"{epoch}/{len(values)}")
            append_as_leader(log, batch(values[-1]), epoch, now_ms=1)
            if random.random() < 0.3:
                flush(log)
                synced = log.durability.recovery_point
        synced = max(end(broker, random, epoch, len(values)), synced)
    return used


def start(broker, random):
    """Start the broker, or interrupt its start; return the number of logs whose files were not read."""
    before = closed_logs.reopen
    reopened = []

    def noted(*args, **kwargs):
        parts = before(*args, **kwargs)
        reopened.append(parts is not None)
        return parts

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kreplica.storage.directories.opening.reopen", noted)
        broker.directories = LogDirectories(broker.host.runtime, broker.paths)
        opening = Deferred.fromCoroutine(
            broker.directories.open(CLUSTER, 1, lambda topic: broker.config, lambda path: not broker.lost_power)
        )
        opening.addErrback(lambda failure: None)
        if random.random() < 0.3:
            broker.after(random.random() * 0.02)
            die(broker, random)
            return None
        broker.simulation.run_until(opening)
        broker.lost_power = False
    return sum(reopened)


def end(broker, random, epoch, count):
    """Stop the broker, possibly only partly; return the number of records that must survive."""
    if random.random() < 0.3:
        die(broker, random)
        return 0
    closing = Deferred.fromCoroutine(broker.directories.close(epoch))
    closing.addErrback(lambda failure: None)
    if random.random() < 0.4:
        broker.after(random.random() * 0.05)
        die(broker, random)
        return 0
    broker.simulation.run_until(closing)
    if random.random() < 0.3:
        die(broker, random)
    return count


def die(broker, random):
    if random.random() < 0.5:
        broker.host.kill()
    else:
        broker.host.power_loss()
        broker.lost_power = True
