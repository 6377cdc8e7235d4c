"""Indexes, leader epochs, checkpoints and identity files are each tested separately."""

from __future__ import annotations

import sys
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kreplica.errors import StorageError
from kreplica.model import TopicPartition
from kreplica.runtime.os_disk import OsDisk
from kreplica.storage.formats.checkpoints import (
    MetaProperties,
    decode_uuid,
    encode_uuid,
    read_clean_shutdown,
    read_meta_properties,
    read_offsets,
    read_topic_id,
    write_clean_shutdown,
    write_meta_properties,
    write_offsets,
    write_topic_id,
)
from kreplica.storage.formats.leader_epochs import LeaderEpochs
from kreplica.storage.formats.names import deleted_name, parse_directory_name
from kreplica.storage.segments.indexes import OffsetIndex, TimeIndex
from kreplica.storage.segments.open_segments import OpenSegments, open_segments_max
from kreplica.storage.segments.segment import Segment
from kreplica.testing.simulator.disk import MemoryDisk

DISK = OsDisk()


@given(
    rows=st.lists(st.tuples(st.integers(1, 50), st.integers(1, 5000)), max_size=40),
    asked=st.integers(0, 2500),
    cut=st.integers(0, 2500),
)
def test_offset_index_lookup(rows, asked, cut):
    """The greatest entry at or below an offset is found, even after truncation, release and reading."""
    disk = MemoryDisk(directories=["/d"])
    index = OffsetIndex("/d/i", 100, disk, new=True)
    entries, offset, position = [], 100, 0
    for step, size in rows:
        offset, position = offset + step, position + size
        index.append(offset, position)
        entries.append((offset, position))
    kept = [entry for entry in entries if entry[0] < 100 + cut]
    if cut % 2:
        assert not index.is_written
        index.write()
        assert index.is_written
        index = OffsetIndex("/d/i", 100, disk)
    index.truncate_to(100 + cut)
    index.write()
    again = OffsetIndex("/d/i", 100, disk)
    expected = max((entry for entry in kept if entry[0] <= 100 + asked), default=(0, 0))[1]
    assert index.lookup(100 + asked) == again.lookup(100 + asked) == expected
    assert again.last == (kept[-1] if kept else (100, 0))


@pytest.mark.parametrize("kind", [OffsetIndex, TimeIndex])
def test_empty_index_is_written_as_a_file(kind):
    """The next start would rebuild a missing index."""
    disk = MemoryDisk(directories=["/d"])
    index = kind("/d/i", 0, disk, new=True)
    assert index.is_empty
    assert not index.is_written
    index.write()
    assert disk.exists("/d/i")
    assert index.is_written


def test_released_segment_writes_its_indexes():
    """A segment drops its indexes only if they can be rebuilt identically."""
    disk = MemoryDisk(directories=["/d"])
    names = {"/d/" + f"{0:020d}" + suffix for suffix in (".index", ".timeindex")}
    segment = Segment("/d", 0, disk, OpenSegments(), size=0, new=True)
    segment.time_index.append(5, 0)
    segment.release()
    assert segment.time_index.last == (5, 0)
    assert segment.offset_index.last == (0, 0)
    segment.write_indexes()
    segment.release()
    assert all(map(disk.exists, names))
    assert segment.time_index.last == (5, 0)
    empty = Segment("/d", 10, disk, OpenSegments(), size=0, new=True)
    assert len(empty.offset_index) == 0
    empty.release()
    empty.write_indexes()
    assert disk.exists(f"/d/{10:020d}.index")
    missing = Segment("/d", 20, disk, OpenSegments(), size=0)
    assert len(missing.offset_index) == 0
    missing.release()
    missing.write_indexes()
    assert disk.exists(f"/d/{20:020d}.index")


@given(stamps=st.lists(st.integers(0, 60), max_size=40), asked=st.integers(0, 70), cut=st.integers(0, 45))
def test_time_index_never_skips_a_record(stamps, asked, cut):
    """All records below the returned offset are earlier than the requested timestamp."""
    disk = MemoryDisk(directories=["/d"])
    index = TimeIndex("/d/t", 0, disk, new=True)
    highest = (-1, 0)
    for offset, stamp in enumerate(stamps):
        if stamp > highest[0]:
            highest = (stamp, offset)
        index.append(*highest)
    index.truncate_to(cut)
    index.write()
    again = TimeIndex("/d/t", 0, disk)
    found = again.lookup(asked)
    assert found == index.lookup(asked)
    assert all(stamp < asked for stamp in stamps[: found + 1]) or found == 0
    assert again.last[0] == max((stamp for stamp in stamps[:cut]), default=-1)


class TestLeaderEpochs:
    @pytest.fixture
    def epochs(self, tmp_path):
        epochs = LeaderEpochs(str(tmp_path), DISK)
        for epoch, start in ((2, 10), (3, 20), (6, 30)):
            epochs.assign(epoch, start)
        return epochs

    def test_end_offsets(self, epochs):
        """The result is the largest epoch that is not above the requested one, and its end offset (KIP-279)."""
        answers = {epoch: epochs.end_offset_for(epoch, 99) for epoch in (-1, 1, 2, 3, 4, 5, 6, 7)}
        assert answers == {
            -1: (-1, -1),
            1: (1, 10),
            2: (2, 20),
            3: (3, 30),
            4: (3, 30),
            5: (3, 30),
            6: (6, 99),
            7: (-1, -1),
        }

    def test_truncation(self, epochs, tmp_path):
        """Truncated epochs are removed from the file too."""
        epochs.truncate_to(20)
        epochs.truncate_start(15)
        assert epochs.entries == ((2, 15),)
        epochs.write()
        assert LeaderEpochs.load(str(tmp_path), DISK).entries == ((2, 15),)
        epochs.truncate_start(99)
        assert epochs.entries == ((2, 99),)
        epochs.clear()
        assert (epochs.entries, epochs.latest, epochs.epoch_of(5)) == ((), -1, -1)

    def test_epoch_without_records_is_removed(self, epochs):
        """The epoch is removed when the next one starts at the same offset."""
        epochs.assign(7, 30)
        epochs.assign(5, 40)
        assert epochs.entries == ((2, 10), (3, 20), (7, 30))
        assert [epochs.epoch_of(offset) for offset in (9, 10, 19, 29, 30, 99)] == [-1, 2, 2, 3, 7, 7]


class TestCheckpoints:
    def test_offsets(self, tmp_path):
        """Offsets by partition are restored; a missing file is treated as empty."""
        path = str(tmp_path / "c")
        offsets = {TopicPartition("a.b-c", 0): 5, TopicPartition("x", 12): 2**40}
        assert read_offsets(DISK, path) == {}
        write_offsets(DISK, path, offsets)
        assert read_offsets(DISK, path) == offsets
        assert (tmp_path / "c").read_text() == "0\n2\na.b-c 0 5\nx 12 1099511627776\n"

    def test_known_keys_are_used(self, tmp_path):
        """The checkpoints of a directory share the keys of its logs."""
        path = str(tmp_path / "c")
        key, other = TopicPartition("a", 1), TopicPartition("b", 1)
        write_offsets(DISK, path, {TopicPartition("a", 1): 5, other: 6})
        read = read_offsets(DISK, path, {key: key})
        assert read == {key: 5, other: 6}
        assert next(iter(read)) is key

    @pytest.mark.parametrize("text", ["", "1\n0\n", "0\n", "0\n2\na 0 1\n", "0\n1\na 0\n", "0\n1\na 0 x\n", "0\nx\n"])
    def test_damaged_checkpoint_is_an_error(self, tmp_path, text):
        """The error names the file."""
        (tmp_path / "c").write_text(text)
        with pytest.raises(StorageError, match="/c: "):
            read_offsets(DISK, str(tmp_path / "c"))

    def test_meta_properties(self, tmp_path):
        """Kafka's file is read, and unknown properties are kept."""
        path = str(tmp_path / "meta.properties")
        assert read_meta_properties(DISK, path) is None
        text = "#\n#Tue Nov 21\ncluster.id=I-2y\\=x\ndirectory.id=abc\nversion=0\nbroker.id=3\n"
        (tmp_path / "meta.properties").write_text(text)
        meta = read_meta_properties(DISK, path)
        assert meta == MetaProperties("I-2y=x", 3, {"directory.id": "abc"})
        write_meta_properties(DISK, path, meta)
        assert read_meta_properties(DISK, path) == meta

    @pytest.mark.parametrize("text", ["version=1\ncluster.id=x\nnode.id=1\n", "version=0\n", ""])
    def test_invalid_meta_properties_are_refused(self, tmp_path, text):
        """The directory of a different kind of cluster is not changed."""
        (tmp_path / "m").write_text(text)
        with pytest.raises(StorageError, match="/m: "):
            read_meta_properties(DISK, str(tmp_path / "m"))

    def test_topic_ids(self, tmp_path):
        """Topic IDs are converted to and from Kafka's 22 characters."""
        path = str(tmp_path / "partition.metadata")
        topic_id = UUID("0123456789abcdef0123456789abcdef")
        assert read_topic_id(DISK, path) is None
        write_topic_id(DISK, path, topic_id)
        assert (tmp_path / "partition.metadata").read_text() == "version: 0\ntopic_id: ASNFZ4mrze8BI0VniavN7w\n"
        assert read_topic_id(DISK, path) == decode_uuid(encode_uuid(topic_id)) == topic_id
        (tmp_path / "partition.metadata").write_text("version: 0\ntopic_id: AS!\n")
        with pytest.raises(StorageError):
            read_topic_id(DISK, path)

    def test_clean_shutdown_marker(self, tmp_path):
        """The marker may contain a broker epoch, contain none (older Kafka), or be absent."""
        path = str(tmp_path / "m")
        assert read_clean_shutdown(DISK, path) is None
        write_clean_shutdown(DISK, path, 42)
        assert read_clean_shutdown(DISK, path) == 42
        for text in ("", "[]", "{", '{"brokerEpoch": "x"}'):
            (tmp_path / "m").write_text(text)
            assert read_clean_shutdown(DISK, path) == -1


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a-0", ("a", 0)),
        ("a-b.c_d-12", ("a-b.c_d", 12)),
        ("a--1", ("a-", 1)),
        ("a", None),
        ("-1", None),
        ("a-01", None),
        ("a-1.0123-delete", None),
        ("a-1.0123-future", None),
        ("lost+found", None),
        ("é-1", None),
    ],
)
def test_directory_names(name, expected):
    """Topic names may contain dashes and dots; the partition number follows the last dash."""
    assert parse_directory_name(name) == expected


def test_names_of_deleted_directories_fit():
    """The longest topic name still gives a valid file name."""
    name = deleted_name(TopicPartition("t" * 249, 7), "f" * 32)
    assert len(name) == 255
    assert name.endswith(f"-7.{'f' * 32}-delete")


def test_open_files_are_bounded():
    """The least recently used file is closed first; a process without file descriptors closes half of them."""

    class Held:
        def __init__(self, name):
            self.name = name

        def release(self):
            released.append(self.name)

    released: list[int] = []
    held = [Held(number) for number in range(6)]
    segments = OpenSegments(4)
    for one in (*held[:4], held[0], *held[4:]):
        segments.touch(one)
    assert released == [1, 2]
    disk = MemoryDisk(directories=["/d"])
    disk.fail("open", "/d/x", number=24, times=1)
    assert segments.open(disk, "/d/x", create=True).size() == 0
    assert released == [1, 2, 3, 0]


def test_open_segments_leave_files_for_connections():
    """The limit is five eighths of the process's file limit, within bounds."""
    assert open_segments_max(0) == open_segments_max(1024) == 4096
    assert open_segments_max(20_000) == 12_500
    assert open_segments_max(sys.maxsize) == 65_536
