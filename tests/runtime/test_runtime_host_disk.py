"""A killed program's files and threads: taken away at once, and closed when no call is under way."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from kreplica.errors import StorageError
from kreplica.runtime import Runtime, count_true_seconds
from kreplica.runtime.disk import FileRange
from kreplica.runtime.hosts.host_disk import HostDisk
from kreplica.runtime.hosts.host_reactor import HostReactor
from kreplica.runtime.hosts.loopback import Loopback
from kreplica.runtime.hosts.machine import Equipment, KilledWhileStarting, Machine, real_equipment
from kreplica.runtime.pause import pause
from tests.support.real_reactor import run


def open_descriptors(directory: Path) -> list[str]:
    """What this process has open below a directory."""
    targets = []
    for number in os.listdir("/proc/self/fd"):
        try:
            targets.append(os.readlink(f"/proc/self/fd/{number}"))
        except FileNotFoundError:
            continue  # the list's own
    return sorted(target for target in targets if target.startswith(str(directory)))


class TestDisk:
    def test_nothing_is_written_after_a_kill(self, tmp_path: Path) -> None:
        """What was written stays; whoever still has the file can neither read nor write nor sync it."""
        disk = HostDisk()
        file = disk.open(str(tmp_path / "log"), create=True)
        file.write_at(0, [b"before"])
        disk.kill()
        for use in (
            lambda: file.write_at(6, [b"after"]),
            lambda: file.read_at(0, 6),
            file.sync,
            lambda: file.truncate(0),
            lambda: disk.open(str(tmp_path / "other"), create=True),
            lambda: disk.write_file(str(tmp_path / "other"), b"after"),
            lambda: disk.rename(str(tmp_path / "log"), str(tmp_path / "other")),
            lambda: disk.remove(str(tmp_path / "log")),
            lambda: disk.remove_tree(str(tmp_path)),
            lambda: disk.make_directories(str(tmp_path / "other")),
            lambda: disk.sync_directory(str(tmp_path)),
            lambda: disk.lock_directory(str(tmp_path)),
        ):
            with pytest.raises(OSError):
                use()
        disk.release()
        assert os.listdir(tmp_path) == ["log"]
        assert (tmp_path / "log").read_bytes() == b"before"

    def test_every_file_is_closed_and_every_lock_is_free(self, tmp_path: Path) -> None:
        """Also those that an answer under way still holds; the next program takes the directory."""
        disk = HostDisk()
        lock = disk.lock_directory(str(tmp_path))
        held = FileRange(disk.open(str(tmp_path / "log"), create=True), 0, 6)
        with pytest.raises(StorageError, match="is in use"):
            HostDisk().lock_directory(str(tmp_path))
        disk.kill()
        disk.release()
        assert open_descriptors(tmp_path) == []
        HostDisk().lock_directory(str(tmp_path)).release()
        held.file.close()
        lock.release()

    def test_a_number_is_not_given_away_under_a_thread(self, tmp_path: Path) -> None:
        """Until ``release``, a descriptor that a thread may be about to use leads to no other file."""
        disk = HostDisk()
        file = disk.open(str(tmp_path / "log"), create=True)
        number = file.descriptor()
        assert number is not None
        disk.kill()
        others = [os.open(tmp_path / "log", os.O_RDWR) for _ in range(4)]
        assert number not in others
        for other in others:
            os.close(other)
        disk.release()
        with pytest.raises(OSError):
            os.fstat(number)


class Program:
    """Writes a file, and waits where it is told to."""

    def __init__(self, runtime: Runtime, directory: Path) -> None:
        self.runtime = runtime
        self.directory = directory
        self.waits: Deferred[None] | None = None

    async def start(self) -> None:
        self.lock = self.runtime.disk.lock_directory(str(self.directory))
        self.file = self.runtime.disk.open(str(self.directory / "log"), create=True)
        if self.waits is not None:
            await self.waits

    async def stop(self) -> None:
        self.file.close()
        self.lock.release()


def machine_at(
    reactor: Any, directory: Path, programs: list[Program], waits: list[Deferred[None]] | None = None
) -> Machine[Program]:
    def build(runtime: Runtime) -> Program:
        programs.append(Program(runtime, directory))
        if waits:
            programs[-1].waits = waits.pop()
        return programs[-1]

    def equip(host: HostReactor) -> Equipment:
        return real_equipment(host, reactor, "boot")

    return Machine(reactor, "machine", Loopback(), build, equip)


class TestMachine:
    def test_starts_again_from_its_directory(self, tmp_path: Path) -> None:
        """Killed and started again and again: each program finds what the one before wrote, and no lock."""
        from twisted.internet import reactor

        async def story() -> None:
            count_true_seconds(reactor)
            programs: list[Program] = []
            machine = machine_at(reactor, tmp_path, programs)
            for number in range(3):
                await machine.start()
                assert machine.program.file.size() == number
                machine.program.file.write_at(number, [b"x"])
                machine.kill()
                assert not machine.running
            assert open_descriptors(tmp_path) == []

        run(story())

    def test_a_call_that_is_under_way_ends_first(self, tmp_path: Path) -> None:
        """A thread in the middle of its work does the step that it is in and no other; then the files are closed."""
        from twisted.internet import reactor

        async def story() -> None:
            count_true_seconds(reactor)
            programs: list[Program] = []
            machine = machine_at(reactor, tmp_path, programs)
            await machine.start()
            program = machine.program
            begun, may_go_on = threading.Event(), threading.Event()
            steps: list[str] = []
            heard: list[object] = []

            def work() -> None:
                begun.set()
                may_go_on.wait(10)
                steps.append("under way")
                program.file.write_at(0, [b"too late"])
                steps.append("another")

            program.runtime.offload.run(work).addBoth(heard.append)
            begun.wait(10)
            for _ in range(8):  # more than there are threads
                program.runtime.offload.run(steps.append, "queued").addBoth(heard.append)
            machine.kill()
            gone = machine.when_gone()
            assert not gone.called
            assert open_descriptors(tmp_path) != []
            may_go_on.set()
            await gone
            assert (steps, heard) == ([*(["queued"] * steps.count("queued")), "under way"], [])
            assert open_descriptors(tmp_path) == []
            assert (tmp_path / "log").read_bytes() == b""

        run(story())

    def test_killed_while_it_starts(self, tmp_path: Path) -> None:
        """Whoever started it is told, nothing is left, and it can be started again."""
        from twisted.internet import reactor

        async def story() -> None:
            count_true_seconds(reactor)
            programs: list[Program] = []
            machine = machine_at(reactor, tmp_path, programs, [Deferred()])
            start = Deferred.fromCoroutine(machine.start())
            while not programs or not hasattr(programs[0], "file"):
                await pause(reactor, 0.001)
            machine.kill()
            with pytest.raises(KilledWhileStarting):
                await start
            assert open_descriptors(tmp_path) == []
            await machine.start()
            await machine.stop()
            assert open_descriptors(tmp_path) == []

        run(story())
