"""Contract of ``Disk``, tested with files of the operating system and of the simulator."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from kreplica.errors import StorageError
from kreplica.runtime.disk import IOV_MAX, Buffer, Disk, FileRange, write_pieces
from kreplica.runtime.os_disk import OsDisk
from kreplica.testing.simulator.disk import MemoryDisk


@pytest.fixture(params=["os", "memory"])
def disk(request: pytest.FixtureRequest) -> Disk:
    return OsDisk() if request.param == "os" else MemoryDisk(directories=["/base"])


@pytest.fixture
def base(disk: Disk, tmp_path: Path) -> str:
    return str(tmp_path) if isinstance(disk, OsDisk) else "/base"


def open_paths(disk: Disk, base: str) -> list[str]:
    """Return the open files of the real or simulated process below the directory."""
    if isinstance(disk, MemoryDisk):
        return disk.open_paths
    links = (Path("/proc/self/fd", name) for name in os.listdir("/proc/self/fd"))
    return [os.readlink(link) for link in links if link.is_symlink() and os.readlink(link).startswith(base)]


class TestFiles:
    def test_written_bytes_are_read(self, disk: Disk, base: str) -> None:
        """Bytes may be written at any position in several buffers of any type, and all readers see them."""
        file = disk.open(f"{base}/log", create=True)
        assert file.write_at(0, [b"abc", bytearray(b"def"), memoryview(b"xghix")[1:4]]) == 9
        assert file.write_at(3, [b"DE"]) == 2
        assert file.read_at(0, 100) == b"abcDEfghi"
        assert file.read_at(2, 3) == b"cDE"
        assert file.read_at(9, 5) == b""
        assert file.read_at(50, 5) == b""
        assert file.size() == 9
        assert disk.read_file(f"{base}/log") == b"abcDEfghi"

    @pytest.mark.parametrize("count", [IOV_MAX, IOV_MAX + 1, 3 * IOV_MAX + 7])
    def test_more_buffers_than_one_system_call_accepts(self, disk: Disk, base: str, count: int) -> None:
        """The write is complete and in order."""
        file = disk.open(f"{base}/log", create=True)
        pieces = [b"%d," % number for number in range(count)]
        assert file.write_at(3, pieces) == len(b"".join(pieces))
        assert disk.read_file(f"{base}/log") == bytes(3) + b"".join(pieces)

    def test_file_opened_twice_is_shared(self, disk: Disk, base: str) -> None:
        first = disk.open(f"{base}/log", create=True)
        second = disk.open(f"{base}/log")
        first.write_at(0, [b"seen"])
        assert second.read_at(0, 4) == b"seen"

    def test_returned_bytes_are_a_copy(self, disk: Disk, base: str) -> None:
        """Later writes do not change returned bytes, and changes of a written buffer do not change the file."""
        file = disk.open(f"{base}/log", create=True)
        buffer = bytearray(b"one")
        file.write_at(0, [memoryview(buffer)])
        before = file.read_at(0, 3)
        buffer[:] = b"two"
        assert file.read_at(0, 3) == b"one"
        file.write_at(0, [buffer])
        assert before == b"one"

    def test_write_beyond_the_end_leaves_zeros(self, disk: Disk, base: str) -> None:
        file = disk.open(f"{base}/log", create=True)
        file.write_at(4, [b"x"])
        assert file.read_at(0, 10) == b"\0\0\0\0x"

    def test_truncate_shortens_and_extends(self, disk: Disk, base: str) -> None:
        """A shorter file loses its tail; a longer one ends in zeros."""
        file = disk.open(f"{base}/log", create=True)
        file.write_at(0, [b"abcdef"])
        file.truncate(2)
        assert file.size() == 2
        file.truncate(4)
        assert file.read_at(0, 10) == b"ab\0\0"

    def test_allocate_keeps_the_length(self, disk: Disk, base: str) -> None:
        file = disk.open(f"{base}/log", create=True)
        file.write_at(0, [b"abc"])
        file.allocate(1 << 16)
        assert file.size() == 3
        file.write_at(3, [b"def"])
        assert disk.read_file(f"{base}/log") == b"abcdef"

    def test_new_file_is_cached(self, disk: Disk, base: str) -> None:
        """Written bytes are read without waiting for the device."""
        file = disk.open(f"{base}/log", create=True)
        file.write_at(0, [b"abc"])
        assert file.is_cached(0, 3)

    def test_cached_read_returns_everything_or_nothing(self, disk: Disk, base: str) -> None:
        """A read that includes bytes beyond the end of the file returns nothing."""
        file = disk.open(f"{base}/log", create=True)
        file.write_at(0, [b"abc"])
        assert file.read_cached(1, 2) == b"bc"
        assert file.read_cached(1, 3) is None
        assert file.read_cached(9, 1) is None

    def test_open_requires_the_file(self, disk: Disk, base: str) -> None:
        """A missing file is an error unless it is created."""
        with pytest.raises(FileNotFoundError):
            disk.open(f"{base}/log")
        with pytest.raises(FileNotFoundError):
            disk.open(f"{base}/nowhere/log", create=True)
        with pytest.raises(IsADirectoryError):
            disk.open(base)
        disk.open(f"{base}/log", create=True).close()
        assert disk.open(f"{base}/log", create=True).size() == 0

    def test_closed_file_cannot_be_used(self, disk: Disk, base: str) -> None:
        """Every operation except close fails."""
        file = disk.open(f"{base}/log", create=True)
        file.write_at(0, [b"abc"])
        file.close()
        file.close()
        for use in (file.size, file.sync, lambda: file.read_at(0, 1), lambda: file.write_at(0, [b"x"])):
            with pytest.raises(OSError) as caught:
                use()
            assert caught.value.errno == errno.EBADF

    def test_range_keeps_its_file_open(self, disk: Disk, base: str) -> None:
        """A pending response keeps its bytes even if the log has closed and removed the file."""
        file = disk.open(f"{base}/log", create=True)
        file.write_at(0, [b"0123456789"])
        piece = FileRange(file, 2, 5)
        del file
        disk.remove(f"{base}/log")
        assert piece.read() == b"23456"
        piece.file.truncate(4)
        assert piece.read() == b"23"

    def test_unreferenced_file_is_closed(self, disk: Disk, base: str) -> None:
        """Closing an unreferenced file frees its space if it was removed."""
        file = disk.open(f"{base}/log", create=True)
        assert open_paths(disk, base) == [f"{base}/log"]
        del file
        assert open_paths(disk, base) == []

    def test_negative_positions_are_refused(self, disk: Disk, base: str) -> None:
        """A negative position or length is an error and changes nothing."""
        file = disk.open(f"{base}/log", create=True)
        for use in (lambda: file.read_at(-1, 1), lambda: file.write_at(-1, [b"x"]), lambda: file.truncate(-1)):
            with pytest.raises(OSError) as caught:
                use()
            assert caught.value.errno == errno.EINVAL
        assert file.size() == 0

    def test_sync_changes_nothing_visible(self, disk: Disk, base: str) -> None:
        file = disk.open(f"{base}/log", create=True)
        file.write_at(0, [b"abc"])
        file.sync()
        disk.sync_directory(base)
        assert disk.read_file(f"{base}/log") == b"abc"

    def test_write_file_replaces_the_contents(self, disk: Disk, base: str) -> None:
        for sync in (True, False):
            disk.write_file(f"{base}/checkpoint", b"a long first text", sync=sync)
            disk.write_file(f"{base}/checkpoint", b"short", sync=sync)
            assert disk.read_file(f"{base}/checkpoint") == b"short"
        assert disk.list_directory(base) == ["checkpoint"]


class TestNames:
    def test_directories(self, disk: Disk, base: str) -> None:
        """Directories are created with their parents, listed in order, and are not files."""
        disk.make_directories(f"{base}/b/c")
        disk.make_directories(f"{base}/b/c")
        disk.write_file(f"{base}/a", b"")
        assert disk.list_directory(base) == ["a", "b"]
        assert disk.is_directory(f"{base}/b/c")
        assert disk.exists(f"{base}/b/c")
        assert not disk.is_directory(f"{base}/a")
        assert not disk.exists(f"{base}/z")
        assert not disk.exists(f"{base}/a/z")
        with pytest.raises(FileExistsError):
            disk.make_directories(f"{base}/a")
        with pytest.raises(NotADirectoryError):
            disk.list_directory(f"{base}/a")
        with pytest.raises(FileNotFoundError):
            disk.list_directory(f"{base}/z")
        with pytest.raises(IsADirectoryError):
            disk.read_file(f"{base}/b")
        with pytest.raises(NotADirectoryError):
            disk.sync_directory(f"{base}/a")

    def test_removed_file_stays_readable_while_open(self, disk: Disk, base: str) -> None:
        """A consumer can finish reading a segment that retention has removed."""
        file = disk.open(f"{base}/log", create=True)
        file.write_at(0, [b"abc"])
        disk.remove(f"{base}/log")
        assert not disk.exists(f"{base}/log")
        assert file.read_at(0, 3) == b"abc"
        with pytest.raises(FileNotFoundError):
            disk.remove(f"{base}/log")
        with pytest.raises(IsADirectoryError):
            disk.remove(base)

    def test_remove_tree(self, disk: Disk, base: str) -> None:
        """Removing a missing directory is not an error."""
        disk.make_directories(f"{base}/t-0/deep")
        disk.write_file(f"{base}/t-0/deep/log", b"x")
        disk.remove_tree(f"{base}/t-0")
        disk.remove_tree(f"{base}/t-0")
        assert disk.list_directory(base) == []
        disk.write_file(f"{base}/file", b"x")
        with pytest.raises(NotADirectoryError):
            disk.remove_tree(f"{base}/file")

    def test_rename_replaces(self, disk: Disk, base: str) -> None:
        """A renamed file replaces an existing one, and open files remain valid."""
        disk.write_file(f"{base}/old", b"old")
        disk.write_file(f"{base}/new", b"new")
        file = disk.open(f"{base}/new")
        disk.rename(f"{base}/new", f"{base}/old")
        disk.rename(f"{base}/old", f"{base}/old")
        assert disk.list_directory(base) == ["old"]
        assert disk.read_file(f"{base}/old") == b"new"
        file.write_at(0, [b"N"])
        assert disk.read_file(f"{base}/old") == b"New"
        assert file.path == f"{base}/new"

    def test_rename_moves_directories(self, disk: Disk, base: str) -> None:
        """A directory moves with its contents, as for a deleted topic."""
        disk.make_directories(f"{base}/t-0")
        disk.write_file(f"{base}/t-0/log", b"x")
        disk.rename(f"{base}/t-0", f"{base}/t-0-delete")
        assert disk.read_file(f"{base}/t-0-delete/log") == b"x"
        disk.make_directories(f"{base}/full")
        disk.write_file(f"{base}/full/log", b"x")
        for old, new, number in (
            ("t-0-delete", "full", errno.ENOTEMPTY),
            ("t-0-delete", "full/log", errno.ENOTDIR),
            ("full/log", "t-0-delete", errno.EISDIR),
            ("full", "full/inside", errno.EINVAL),
            ("none", "some", errno.ENOENT),
        ):
            with pytest.raises(OSError) as caught:
                disk.rename(f"{base}/{old}", f"{base}/{new}")
            assert caught.value.errno == number

    def test_usage_and_dates(self, disk: Disk, base: str) -> None:
        """The size of the device and the date of a file are returned; a missing path is an error."""
        disk.write_file(f"{base}/log", b"x" * 10_000)
        total, free = disk.usage(base)
        assert 0 < free < total
        assert disk.status(f"{base}/log").size == 10_000
        assert disk.status(f"{base}/log").modified_ns >= 0
        with pytest.raises(FileNotFoundError):
            disk.usage(f"{base}/none")
        with pytest.raises(FileNotFoundError):
            disk.status(f"{base}/none")

    def test_directory_is_locked_once(self, disk: Disk, base: str) -> None:
        """A second lock is refused with the name of the directory until the first one is released."""
        lock = disk.lock_directory(base)
        with pytest.raises(StorageError, match=base):
            disk.lock_directory(base)
        lock.release()
        lock.release()
        again = disk.lock_directory(base)
        lock.release()
        with pytest.raises(StorageError):
            disk.lock_directory(base)
        again.release()
        with pytest.raises(FileNotFoundError):
            disk.lock_directory(f"{base}/none")


@pytest.mark.parametrize("bytes_max", [1, 3, 1000])
def test_partial_write_is_continued(bytes_max: int) -> None:
    """After a partial write, writing continues at the right position of the right buffer."""
    stored = bytearray(2)
    pieces = [b"%d," % number for number in range(IOV_MAX + 5)]

    def pwritev(buffers: Sequence[Buffer], position: int) -> int:
        assert position == len(stored)
        data = b"".join(buffers)[:bytes_max]
        stored.extend(data)
        return len(data)

    assert write_pieces(pwritev, 2, pieces, "/log") == len(b"".join(pieces))
    assert stored == bytes(2) + b"".join(pieces)
    with pytest.raises(OSError, match="wrote no bytes"):
        write_pieces(lambda buffers, position: 0, 0, [b"x"], "/log")
