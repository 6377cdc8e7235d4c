"""Journal files are bounded, complete except for a torn last line, and harmless to the controller."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from twisted.logger import globalLogPublisher

from kreplica.controller.journal import files as journal_files
from kreplica.controller.journal import lines as journal_lines
from kreplica.controller.journal import rotation
from kreplica.controller.journal.files import RETRY_SECONDS, JournalFiles, JournalSettings
from kreplica.controller.journal.lines import LARGE_CHARACTERS, decode_line, encode_line
from kreplica.controller.journal.value_json import DeferredJson
from kreplica.errors import KreplicaError
from kreplica.runtime.disk import IOV_MAX
from kreplica.settings.setting import Setting
from kreplica.testing.cluster.cluster import SimulatedCluster
from kreplica.testing.replay.reading import JournalUnreadable, read_journal, read_journals
from kreplica.testing.replay.replay import replay_all
from kreplica.testing.simulator.simulation import Simulation
from tests.support.controller_scene import ControllerScene

DIRECTORY = "/data/journal"
CONTROLLER = 101
HEAD = {"journal": 1, "kreplica": "1", "broker": 1, "wall_clock_ms": 0, "s": 0.0, "config": {}, "state": None}


@contextmanager
def errors() -> Iterator[list[str]]:
    """Return the logged errors."""
    received: list[str] = []

    def seen(event: dict) -> None:
        if event["log_level"].name == "error":
            received.append(event["log_format"].format(**event))

    globalLogPublisher.addObserver(seen)
    try:
        yield received
    finally:
        globalLogPublisher.removeObserver(seen)


def scene_with_journal(bytes_max: int = 2**20) -> ControllerScene:
    scene = ControllerScene()
    scene.controllers[CONTROLLER].journal = JournalSettings(DIRECTORY, CONTROLLER, bytes_max)
    return scene


def disk_of(scene: ControllerScene):
    return scene.controllers[CONTROLLER].host.disk


def make_topics(scene: ControllerScene, count: int) -> None:
    for number in range(count):
        scene.make_topic(f"orders-{number}", {0: (1, 2, 3)})


# --- bounds -----------------------------------------------------------------------------------------------------------


def test_the_oldest_files_are_removed(monkeypatch):
    """The journal stays within its limit during a long term, and the remaining files can be replayed."""
    monkeypatch.setattr(journal_files, "FILE_COUNT", 8)
    bytes_max = 100_000
    scene = scene_with_journal(bytes_max)
    scene.start()
    make_topics(scene, 40)
    names = disk_of(scene).list_directory(DIRECTORY)
    sizes = [len(disk_of(scene).read_file(f"{DIRECTORY}/{name}")) for name in names]
    assert sum(sizes) <= bytes_max
    assert len(names) > 1
    assert "00000001" not in names[0]
    outcomes = list(replay_all(read_journals(disk_of(scene), DIRECTORY)))
    assert [outcome.difference for outcome in outcomes] == [None] * len(names)


def test_a_limit_too_small_for_one_file_ends_the_journal():
    """The journal ends with one error in the log."""
    scene = scene_with_journal(bytes_max=4000)
    with errors() as received:
        scene.start()
        make_topics(scene, 3)
    assert received == [
        "the controller's journal ends here: the limit of 4000 bytes is too small for a single file"
    ]
    assert scene.state("orders-2", 0).leader == 1


def test_a_process_starts_a_new_file():
    """Files of earlier processes and other files in the directory are kept."""
    scene = scene_with_journal()
    scene.start()
    disk = disk_of(scene)
    disk.write_file(f"{DIRECTORY}/notes.txt", b"mine")
    disk.write_file(f"{DIRECTORY}/controller-journal-7-00000009.jsonl", b"another broker's")
    scene.controllers[CONTROLLER].kill()
    scene.await_expiry()
    scene.run(scene.controllers[CONTROLLER].start())
    scene.settle()
    assert disk.list_directory(DIRECTORY) == [
        "controller-journal-101-00000001.jsonl",
        "controller-journal-101-00000002.jsonl",
        "controller-journal-7-00000009.jsonl",
        "notes.txt",
    ]


def test_removed_old_files(monkeypatch):
    """The journal is continued after an operator has removed old files."""
    monkeypatch.setattr(journal_files, "FILE_COUNT", 8)
    scene = scene_with_journal(100_000)
    scene.start()
    disk = disk_of(scene)
    with errors() as received:
        make_topics(scene, 10)
        removed = disk.list_directory(DIRECTORY)[:-1]
        for name in removed:
            disk.remove(f"{DIRECTORY}/{name}")
        for number in range(10, 40):
            scene.make_topic(f"orders-{number}", {0: (1, 2, 3)})
    assert removed
    assert received == []
    assert not set(removed) & set(disk.list_directory(DIRECTORY))


def test_a_failed_snapshot_ends_only_the_journal(monkeypatch):
    """An error while encoding the state does not affect the controller."""

    def state_of(*_: object) -> Iterator[None]:
        yield
        raise KeyError("an unknown timer")

    monkeypatch.setattr(journal_files, "FILE_COUNT", 8)
    monkeypatch.setattr(rotation, "state_of", state_of)
    scene = scene_with_journal(100_000)
    scene.start()
    with errors() as received:
        make_topics(scene, 40)
    assert [text for text in received if "the controller's journal ends here" in text] == received
    assert len(received) == 1
    assert disk_of(scene).list_directory(DIRECTORY) == ["controller-journal-101-00000001.jsonl"]


def test_a_limit_of_zero_disables_the_journal():
    """``kreplica.controller.journal.max.bytes=0`` disables the journal; otherwise it is in the first log directory."""
    kept = {}
    for bytes_max in (0, 2**20):
        cluster = SimulatedCluster(1, overrides=[f"kreplica.controller.journal.max.bytes={bytes_max}"])
        cluster.start()
        cluster.run(2)
        names = cluster.brokers[1].host.disk.list_directory("/data/logs")
        kept[bytes_max] = [name for name in names if "journal" in name]
        cluster.stop()
    assert kept == {0: [], 2**20: ["controller-journal-1-00000001.jsonl"]}


def test_a_broker_that_cannot_start_writes_no_journal():
    """Nothing is written before the directory is known to belong to this broker."""
    options = ["kreplica.controller.journal.max.bytes=1048576", "listeners=PLAINTEXT://nowhere:9092"]
    cluster = SimulatedCluster(1, overrides=options)
    cluster.run_until(cluster.zookeeper.start())
    with pytest.raises(KreplicaError):
        cluster.run_until(cluster.brokers[1].start())
    cluster.run(2)
    disk = cluster.brokers[1].host.disk
    assert [name for name in disk.list_directory("/data/logs") if "journal" in name] == []


def test_a_separate_directory():
    """``kreplica.controller.journal.directory`` is created if it does not exist."""
    options = ["kreplica.controller.journal.max.bytes=1048576", "kreplica.controller.journal.directory=/data/a/b"]
    cluster = SimulatedCluster(1, overrides=options)
    cluster.start()
    cluster.run(2)
    assert cluster.brokers[1].host.disk.list_directory("/data/a/b") == ["controller-journal-1-00000001.jsonl"]


def test_no_secrets(monkeypatch):
    """Passwords in the configuration are not recorded."""
    monkeypatch.setattr(Setting, "requires_protection", lambda *_: False)
    options = ["kreplica.controller.journal.max.bytes=1048576", "ssl.keystore.password=swordfish"]
    cluster = SimulatedCluster(1, overrides=options)
    cluster.start()
    cluster.run_until(cluster.client().create_topic("orders", 1, {}, replication_factor=1))
    cluster.run(2)
    data = cluster.brokers[1].host.disk.read_file("/data/logs/controller-journal-1-00000001.jsonl")
    assert b"orders" in data
    assert b"swordfish" not in data
    assert cluster.brokers[1].program.client.session_password.hex().encode() not in data


# --- the disk ---------------------------------------------------------------------------------------------------------


def test_a_full_disk_leaves_a_gap():
    """A full disk causes one log line and does not affect topics; a new file is started when there is space, and all
    files can be replayed.
    """
    scene = scene_with_journal()
    scene.start()
    make_topics(scene, 1)
    disk = disk_of(scene)
    with errors() as received:
        end = disk.fail("write", f"{DIRECTORY}/*", errno.ENOSPC)
        scene.make_topic("later", {0: (2, 3, 1)})
        scene.settle(3 * RETRY_SECONDS)
        scene.make_topic("latest", {0: (2, 3, 1)})
        scene.settle(3 * RETRY_SECONDS)
        end()
        for name in ("noticed", "noted", "kept"):
            scene.make_topic(name, {0: (2, 3, 1)})
            scene.settle()
    assert len(received) == 1
    gap = "the controller's journal has a gap from here on; a new file is tried every 60 s: [Errno 28] "
    assert received[0].startswith(gap)
    assert scene.state("latest", 0).leader == 2
    files = read_journals(disk, DIRECTORY)
    assert [file.note for file in files] == ["", ""]
    assert not files[1].continues(files[0])
    first, second = replay_all(files)
    assert (first.difference, second.difference) == (None, None)
    assert first.events == 3
    assert second.events > 0
    assert "kept" in str(files[1].lines)
    assert len(disk.list_directory(DIRECTORY)) == 2, "a file without space for its header is removed"


@pytest.mark.parametrize("number", [errno.EIO, errno.EINVAL, errno.EMFILE])
def test_a_failed_write_leaves_a_gap(number):
    """A single failed write loses a part of the journal, and recording continues in a new file."""
    scene = scene_with_journal()
    scene.start()
    disk = disk_of(scene)
    with errors() as received:
        disk.fail("write", f"{DIRECTORY}/*", number, times=1)
        make_topics(scene, 1)
        scene.settle(3 * RETRY_SECONDS)
        for name in ("noticed", "noted", "kept"):
            scene.make_topic(name, {0: (2, 3, 1)})
            scene.settle()
    assert [text.partition(f"[Errno {number}]")[0] for text in received] == [
        "the controller's journal has a gap from here on; a new file is tried every 60 s: "
    ]
    files = read_journals(disk, DIRECTORY)
    assert "kept" in str(files[-1].lines)
    assert [outcome.difference for outcome in replay_all(files)] == [None, None]


def test_more_entries_than_one_system_call_writes():
    """More than ``IOV_MAX`` lines in one write are all written, even if the disk rejects that many buffers at once."""
    simulation = Simulation(1)
    host = simulation.host("a")
    files = JournalFiles(host.runtime, JournalSettings(DIRECTORY, 1, 2**20), lambda: HEAD)
    with errors() as received:
        for _ in range(2 * IOV_MAX):
            files.note({"in": "call"})
        simulation.run_until(files.close())
    assert received == []
    (journal,) = read_journals(host.disk, DIRECTORY)
    assert [line["n"] for line in journal.lines] == list(range(1, 2 * IOV_MAX + 1))


def test_a_disk_that_is_too_slow(monkeypatch):
    """The journal ends when too many entries are waiting to be written."""
    monkeypatch.setattr(journal_files, "WEIGHT_MAX", 10)
    host = Simulation(1).host("a")
    files = JournalFiles(host.runtime, JournalSettings(DIRECTORY, 1, 2**20), dict)
    with errors() as received:
        for _ in range(20):
            files.note({})
    assert received == ["the controller's journal ends here: the disk is too slow for the number of entries"]


def test_a_torn_last_line_is_ignored():
    """A power failure during a write tears the last line; the reader reports this and reads the other lines."""
    scene = scene_with_journal()
    scene.start()
    (path,) = [f"{DIRECTORY}/{name}" for name in disk_of(scene).list_directory(DIRECTORY)]
    data = disk_of(scene).read_file(path)
    whole = read_journal(path, data)
    assert whole.note == ""
    last = data.rstrip(b"\n").rfind(b"\n") + 1
    for size in range(last + 1, len(data)):
        torn = read_journal(path, data[:size])
        assert torn.lines == whole.lines[:-1]
        count = len(whole.lines) + 1
        assert torn.note.startswith(f"{path}: line {count} of {count} cannot be read; the rest is skipped: ")


@pytest.mark.parametrize("damage", [b"", b'{"n":3}\n', b"{\n", b'{"n":2,"packed":"AAAA"}\n', b"[]\n"])
def test_damage_before_the_last_line(damage):
    """Reading stops at a missing or damaged line, which the reader reports."""
    lines = [encode_line(0, HEAD), *(encode_line(n, {"in": "call"}) for n in range(1, 6))]
    lines[2] = damage
    found = read_journal("j", b"".join(lines))
    assert [line["n"] for line in found.lines] == [1]
    assert found.note.startswith("j: line 3 of ")


def test_another_format():
    """A journal in a later format is rejected with its version."""
    with pytest.raises(JournalUnreadable, match="j: format 2, but this version reads 1"):
        read_journal("j", encode_line(0, {"journal": 2}))
    with pytest.raises(JournalUnreadable, match="j: not a controller"):
        read_journal("j", encode_line(0, {}))
    with pytest.raises(JournalUnreadable, match="j: is empty"):
        read_journal("j", b"")


def test_a_file_without_a_header_does_not_hide_the_others():
    """A process that is killed while it creates a file leaves an unreadable one; the others can be read."""
    scene = scene_with_journal()
    scene.start()
    disk_of(scene).write_file(f"{DIRECTORY}/controller-journal-101-00000002.jsonl", b"{")
    received: list[str] = []
    assert len(read_journals(disk_of(scene), DIRECTORY, received.append)) == 1
    assert "00000002.jsonl: line 1 of 1 cannot be read" in received[0]


def test_large_entries_are_compressed():
    """A response with a thousand partitions is compressed to a tenth of its size."""
    entry = {"in": "answer", "value": [f"orders-{number}" for number in range(10_000)]}
    line = encode_line(1, entry)
    assert len(line) < 10 * LARGE_CHARACTERS // 4
    assert decode_line(line) == {"n": 1, **entry}


def test_lines_are_encoded_in_slices(monkeypatch):
    """Long lists are encoded in slices, so that other threads can run; the result is the same."""
    sizes: list[int] = []
    text = journal_lines._text

    def counted(value: object) -> str:
        sizes.append(len(value) if isinstance(value, list) else 1)
        return text(value)

    rows = [[f"orders-{number}", number] for number in range(1000)]
    context = DeferredJson(lambda value: {"topics": value, "none": {}}, rows)
    entry = {"state": {"context": context}, "few": [1, {"a": None}]}
    monkeypatch.setattr(journal_lines, "_text", counted)
    line = encode_line(7, entry)
    assert max(sizes) == journal_lines.SLICE
    whole = {"n": 7, "state": {"context": {"topics": rows, "none": {}}}, "few": [1, {"a": None}]}
    assert decode_line(line) == whole


def test_close_writes_waiting_entries():
    """A broker that is stopped normally leaves a complete journal."""
    simulation = Simulation(1)
    host = simulation.host("a")
    files = JournalFiles(host.runtime, JournalSettings(DIRECTORY, 1, 2**20), lambda: HEAD)
    files.note({"in": "call"})
    simulation.run_until(files.close())
    files.note({"in": "never"})
    (journal,) = read_journals(host.disk, DIRECTORY)
    assert journal.lines == [{"n": 1, "in": "call"}]
    assert host.reactor.getDelayedCalls() == []
