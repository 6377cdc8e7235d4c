"""Contents of the simulated disk after power losses, kills, full disks and media errors."""

from __future__ import annotations

import errno
import time
from random import Random

import pytest

from kreplica.errors import StorageError
from kreplica.testing.simulator.disk import MemoryDisk

SEEDS = range(200)


def outcomes(prepare: str, paths: list[str]) -> set[tuple[bytes | None, ...]]:
    """Run this code on a disk, and return the file contents that power losses with many seeds leave."""
    seen = set()
    for seed in SEEDS:
        disk = MemoryDisk(directories=["/d", "/e"])
        exec(prepare, {"disk": disk})
        disk.power_loss(Random(seed))
        seen.add(tuple(disk.read_file(path) if disk.exists(path) else None for path in paths))
    return seen


class TestPowerLoss:
    def test_synced_data_survives(self) -> None:
        """Synced bytes under a synced name are not lost in any power loss."""
        prepare = """
file = disk.open("/d/log", create=True)
file.write_at(0, [b"a" * 5000])
file.write_at(100, [b"b" * 50])
file.truncate(4000)
file.sync()
disk.sync_directory("/d")
"""
        data = b"a" * 100 + b"b" * 50 + b"a" * 3850
        assert outcomes(prepare, ["/d/log"]) == {(data,)}

    def test_an_unsynced_tail_is_kept_dropped_torn_or_zero(self) -> None:
        """Any sectors of the unsynced tail may remain; bytes before it are unchanged."""
        prepare = """
file = disk.open("/d/log", create=True)
file.write_at(0, [b"s" * 1000])
file.sync()
disk.sync_directory("/d")
file.write_at(1000, [b"t" * 2000])
"""
        tails = {
            data[1000:] for (data,) in outcomes(prepare, ["/d/log"]) if data is not None and data[:1000] == b"s" * 1000
        }
        assert len(outcomes(prepare, ["/d/log"])) == len(tails)
        assert {b"", b"t" * 2000, bytes(2000)} <= tails
        torn = {tail.rstrip(b"\0") for tail in tails} - {b"", b"t" * 2000}
        assert {(1000 + len(tail)) % 512 for tail in torn} == {0}
        assert len(torn) >= 3

    def test_a_later_write_may_arrive_before_an_earlier_one(self) -> None:
        """Writes may reach the disk out of order: recovery must not trust a hole because intact bytes follow it."""
        prepare = """
file = disk.open("/d/log", create=True)
file.sync()
disk.sync_directory("/d")
for number in range(4):
    file.write_at(number * 4096, [bytes([number + 1]) * 4096])
"""
        assert any(
            data is not None and data[:4096] == bytes(4096) and data[4096:8192] == b"\2" * 4096
            for (data,) in outcomes(prepare, ["/d/log"])
        )

    def test_overwritten_bytes_may_return(self) -> None:
        """An unsynced overwrite may leave old bytes, new bytes, or a mixture by sector."""
        prepare = """
file = disk.open("/d/log", create=True)
file.write_at(0, [b"o" * 2048])
file.sync()
disk.sync_directory("/d")
file.write_at(0, [b"n" * 2048])
"""
        assert outcomes(prepare, ["/d/log"]) == {(b"n" * 512 * k + b"o" * 512 * (4 - k),) for k in range(5)}

    def test_a_truncation_may_not_have_happened(self) -> None:
        """An unsynced truncation may be undone, with later appends kept or not."""
        prepare = """
file = disk.open("/d/log", create=True)
file.write_at(0, [b"o" * 100])
file.sync()
disk.sync_directory("/d")
file.truncate(50)
"""
        assert outcomes(prepare, ["/d/log"]) == {(b"o" * 100,), (b"o" * 50,)}

    def test_a_new_file_is_lost_unless_its_directory_is_synced(self) -> None:
        """A file with synced bytes is lost if its directory was not synced."""
        prepare = """
file = disk.open("/d/log", create=True)
file.write_at(0, [b"x"])
file.sync()
"""
        assert outcomes(prepare, ["/d/log"]) == {(b"x",), (None,)}

    def test_names_keep_their_order_within_a_directory(self) -> None:
        """If a new file survives, so do those created earlier in its directory; directories are independent."""
        prepare = """
for path in ("/d/1", "/e/1", "/d/2", "/e/2"):
    disk.open(path, create=True).close()
"""
        seen = outcomes(prepare, ["/d/1", "/d/2", "/e/1", "/e/2"])
        assert not any(first is None and second is not None for first, second, _, _ in seen)
        assert (None, None, b"", b"") in seen
        assert (b"", None, b"", b"") in seen
        assert (b"", b"", None, None) in seen

    def test_a_rename_is_atomic(self) -> None:
        """After a rename between directories, the file has either the old or the new name."""
        prepare = """
disk.write_file("/d/log", b"x")
disk.rename("/d/log", "/e/log")
"""
        assert outcomes(prepare, ["/d/log", "/e/log"]) == {(b"x", None), (None, b"x")}

    def test_syncing_one_directory_of_a_rename_is_enough(self) -> None:
        """A rename that is durable in one directory is not undone in the other."""
        prepare = """
disk.write_file("/d/log", b"x")
disk.rename("/d/log", "/e/log")
disk.sync_directory("/e")
"""
        assert outcomes(prepare, ["/d/log", "/e/log"]) == {(None, b"x")}

    def test_a_removed_file_may_return(self) -> None:
        """An unsynced removal may be undone; the file then has its durable bytes."""
        assert outcomes('disk.write_file("/d/log", b"x"); disk.remove("/d/log")', ["/d/log"]) == {(b"x",), (None,)}

    def test_write_file_with_sync_is_durable_and_atomic(self) -> None:
        """A file has its new content after write_file, and either the old or the new content before the last sync."""
        old = 'disk.write_file("/d/c", b"o" * 3000)\n'
        assert outcomes(old + 'disk.write_file("/d/c", b"n" * 3000)', ["/d/c"]) == {(b"n" * 3000,)}
        during = (
            old
            + """
file = disk.open("/d/c.tmp", create=True)
file.write_at(0, [b"n" * 3000])
file.sync()
disk.rename("/d/c.tmp", "/d/c")
"""
        )
        assert outcomes(during, ["/d/c"]) == {(b"o" * 3000,), (b"n" * 3000,)}

    def test_write_file_without_sync_may_leave_a_partial_file(self) -> None:
        """Without syncs, the file may be empty or have only a part of its content."""
        seen = outcomes('disk.write_file("/d/c", b"o"); disk.write_file("/d/c", b"n" * 3000, sync=False)', ["/d/c"])
        assert {(b"o",), (b"",), (b"n" * 3000,)} <= seen

    def test_a_failed_sync_is_never_repaired(self) -> None:
        """After fsync has failed once, a later success proves nothing: earlier bytes may be lost."""
        prepare = """
file = disk.open("/d/log", create=True)
disk.sync_directory("/d")
file.write_at(0, [b"a" * 4096])
disk.fail("sync", "/d/*", times=1)
try:
    file.sync()
except OSError:
    pass
file.write_at(4096, [b"b" * 4096])
file.sync()
"""
        seen = {data for (data,) in outcomes(prepare, ["/d/log"]) if data is not None}
        assert {data[4096:] for data in seen} == {b"b" * 4096}
        assert {b"a" * 4096, bytes(4096)} <= {data[:4096] for data in seen}

    def test_pages_of_a_failed_sync_are_dropped_from_memory(self) -> None:
        """After a failed sync its pages are clean: programs read the device's bytes, or their own later writes."""
        seen = set()
        for seed in range(30):
            disk = MemoryDisk(directories=["/d"])
            file = disk.open("/d/log", create=True)
            disk.sync_directory("/d")
            file.write_at(0, [b"a" * 4096])
            disk.fail("sync", "/d/*", times=1)
            with pytest.raises(OSError, match="Input/output"):
                file.sync()
            file.write_at(4096, [b"b" * 4096])
            disk.drop_caches(Random(seed))
            seen.add(file.read_at(0, 4096))
            assert file.read_at(4096, 4096) == b"b" * 4096
            file.sync()
            disk.power_loss(Random(seed))
            assert disk.read_file("/d/log")[4096:] == b"b" * 4096
        assert {b"a" * 4096, bytes(4096)} <= seen

    def test_a_seed_determines_the_loss(self) -> None:
        """The same seed loses the same bytes, so that a seed which found a bug finds it again."""

        def lose(seed: int) -> list[bytes]:
            disk = MemoryDisk(directories=["/d"])
            for name in "abcdef":
                disk.open(f"/d/{name}", create=True).write_at(0, [name.encode() * 3000])
            disk.power_loss(Random(seed))
            return [disk.read_file(f"/d/{name}") for name in disk.list_directory("/d")]

        assert [lose(seed) for seed in range(20)] == [lose(seed) for seed in range(20)]
        assert len({tuple(lose(seed)) for seed in range(20)}) > 5

    def test_remaining_data_is_durable(self) -> None:
        """A second power loss loses nothing more, and write-back by the kernel makes everything durable."""
        disk = MemoryDisk(directories=["/d"])
        disk.open("/d/log", create=True).write_at(0, [b"x" * 10_000])
        disk.power_loss(Random(1))
        names = disk.list_directory("/d")
        left = [disk.read_file(f"/d/{name}") for name in names]
        disk.power_loss(Random(2))
        assert [disk.read_file(f"/d/{name}") for name in disk.list_directory("/d")] == left
        disk.open("/d/other", create=True).write_at(0, [b"y" * 10_000])
        disk.write_back()
        for seed in range(20):
            disk.power_loss(Random(seed))
        assert disk.read_file("/d/other") == b"y" * 10_000


class TestKill:
    def test_a_killed_process_loses_nothing_it_wrote(self) -> None:
        """After a kill, the process's files are closed and its locks released, and its written bytes remain."""
        disk = MemoryDisk(directories=["/d"])
        lock = disk.lock_directory("/d")
        file = disk.open("/d/log", create=True)
        file.write_at(0, [b"abc"])
        assert disk.open_paths == ["/d/log"]
        disk.kill()
        assert disk.open_paths == []
        with pytest.raises(OSError, match="Bad file descriptor"):
            file.write_at(3, [b"def"])
        new = disk.lock_directory("/d")
        lock.release()
        with pytest.raises(StorageError):
            disk.lock_directory("/d")
        new.release()
        assert disk.read_file("/d/log") == b"abc"


class TestFaults:
    def test_a_full_disk_writes_partially(self) -> None:
        """A write that does not fit fails after writing a part; removed files free their space when they are closed."""
        disk = MemoryDisk(directories=["/d"], capacity_bytes=1000)
        disk.write_file("/d/old", b"o" * 600)
        open_file = disk.open("/d/old")
        file = disk.open("/d/log", create=True)
        with pytest.raises(OSError, match="No space left") as caught:
            file.write_at(0, [b"n" * 300, b"n" * 300])
        assert caught.value.errno == errno.ENOSPC
        assert file.size() == 400
        assert disk.usage("/d") == (1000, 0)
        assert file.write_at(0, [b"m" * 400]) == 400
        disk.remove("/d/old")
        assert disk.usage("/d") == (1000, 0)
        open_file.close()
        assert disk.usage("/d") == (1000, 600)
        file.allocate(900)
        assert disk.usage("/d") == (1000, 100)
        with pytest.raises(OSError, match="No space left"):
            file.allocate(1001)
        file.truncate(10)
        assert disk.usage("/d") == (1000, 990)

    def test_chosen_operations_fail(self) -> None:
        """A fault affects only the chosen operation, path and number of calls."""
        disk = MemoryDisk(directories=["/d", "/e"])
        files = [disk.open(path, create=True) for path in ("/d/log", "/e/log")]
        disk.fail("read", "/d/*", errno.EIO)
        disk.fail("sync", "*/log", errno.EROFS, times=2)
        assert files[1].read_at(0, 1) == b""
        for _ in range(3):
            with pytest.raises(OSError, match="Input/output error"):
                files[0].read_at(0, 1)
        for file in files:
            with pytest.raises(OSError, match="Read-only"):
                file.sync()
        files[0].sync()
        disk.clear_faults()
        files[0].read_at(0, 1)

    def test_the_end_of_a_fault_affects_no_other_fault(self) -> None:
        """When a fault ends, an equal fault of the same disk stays active; ending a fault twice has no effect."""
        disk = MemoryDisk(directories=["/d"])
        file = disk.open("/d/log", create=True)
        end_reads, end_syncs, end_other_syncs = (disk.fail(name, "/d/*") for name in ("read", "sync", "sync"))
        end_reads()
        file.read_at(0, 1)
        end_syncs()
        end_syncs()
        with pytest.raises(OSError, match="Input/output error"):
            file.sync()
        end_other_syncs()
        file.sync()

    def test_a_flipped_bit_stays_flipped(self) -> None:
        """A flipped bit persists across restarts."""
        disk = MemoryDisk(directories=["/d"])
        disk.write_file("/d/log", b"\0\0\0")
        disk.flip_bit("/d/log", 1, 7)
        disk.power_loss(Random(0))
        assert disk.read_file("/d/log") == b"\0\x80\0"

    def test_checks_read_the_bytes_before_the_flip(self) -> None:
        """A test can read the original bytes until the flipped bit is overwritten; programs read the flipped one."""
        disk = MemoryDisk(directories=["/d"])
        file = disk.open("/d/log", create=True)
        file.write_at(0, [b"\0" * 8])
        file.sync()
        disk.sync_directory("/d")
        for position in (1, 5, 6):
            disk.flip_bit("/d/log", position)
        assert (file.read_at(0, 8), disk.stored("/d/log")) == (b"\0\1\0\0\0\1\1\0", bytes(8))
        assert disk.damaged_files() == ["/d/log"]
        file.write_at(0, [b"xxx"])
        file.truncate(6)
        assert (file.read_at(0, 8), disk.stored("/d/log")) == (b"xxx\0\0\1", b"xxx\0\0\0")
        disk.flip_bit("/d/log", 5)
        assert disk.damaged_files() == []

    def test_an_evicted_file_is_cold_until_read(self) -> None:
        """After an eviction, a file's pages are not cached until they are read again."""
        disk = MemoryDisk(directories=["/d"])
        file = disk.open("/d/log", create=True)
        disk.evict("/d/log")
        assert not file.is_cached(0, 1)
        assert file.read_cached(0, 1) is None
        file.read_at(0, 1)
        assert file.is_cached(0, 1)


def test_appending_to_a_large_file_does_not_copy_it() -> None:
    """Ten thousand appends and syncs to a 64 MB file are fast; with one copy each, they would take minutes."""
    disk = MemoryDisk(directories=["/d"])
    file = disk.open("/d/log", create=True)
    file.truncate(64 << 20)
    file.sync()
    started = time.process_time()
    for number in range(10_000):
        file.write_at((64 << 20) + number * 100, [b"x" * 100])
        file.sync()
    assert time.process_time() - started < 5
