"""Files and threads of a killed program: revoked at once, and closed when no call is in progress."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from kreplica.errors import StorageError
from kreplica.runtime import Runtime, use_monotonic_clock
from kreplica.runtime.disk import FileRange
from kreplica.runtime.hosts.host_disk import HostDisk
from kreplica.runtime.hosts.host_reactor import HostReactor
from kreplica.runtime.hosts.loopback import Loopback
from kreplica.runtime.hosts.machine import KilledWhileStarting, Machine, ProgramResources, real_resources
from kreplica.runtime.pause import pause
from tests.support.real_reactor import run


def open_descriptors(directory: Path) -> list[str]:
    """Return the open files of this process below a directory."""
    targets = []
    for number in os.listdir("/proc/self/fd"):
        try:
            targets.append(os.readlink(f"/proc/self/fd/{number}"))
        except FileNotFoundError:
            continue  # the descriptor of the listing itself
    return sorted(target for target in targets if target.startswith(str(directory)))


class TestDisk:
    def test_nothing_is_written_after_a_kill(self, tmp_path: Path) -> None:
        """Written data stays; later reads, writes and syncs through open files fail."""
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

    def test_files_are_closed_and_locks_released(self, tmp_path: Path) -> None:
        """This includes files of pending responses; the next program can lock the directory."""
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

    def test_descriptor_is_not_reused_while_a_thread_may_use_it(self, tmp_path: Path) -> None:
        """Until ``release`` it refers to no other file."""
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
    """Writes a file, and waits at given points."""

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

    def create_resources(host: HostReactor) -> ProgramResources:
        return real_resources(host, reactor, "boot")

    return Machine(reactor, "machine", Loopback(), build, create_resources)


class TestMachine:
    def test_program_restarts_from_its_directory(self, tmp_path: Path) -> None:
        """After each kill the next program finds the files of the previous one, and no lock."""
        from twisted.internet import reactor

        async def story() -> None:
            use_monotonic_clock(reactor)
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

    def test_call_in_progress_ends_first(self, tmp_path: Path) -> None:
        """A thread finishes its current step only; then the files are closed."""
        from twisted.internet import reactor

        async def story() -> None:
            use_monotonic_clock(reactor)
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
            for _ in range(8):  # more calls than threads
                program.runtime.offload.run(steps.append, "queued").addBoth(heard.append)
            machine.kill()
            gone = machine.when_released()
            assert not gone.called
            assert open_descriptors(tmp_path) != []
            may_go_on.set()
            await gone
            assert (steps, heard) == ([*(["queued"] * steps.count("queued")), "under way"], [])
            assert open_descriptors(tmp_path) == []
            assert (tmp_path / "log").read_bytes() == b""

        run(story())

    def test_kill_during_a_start(self, tmp_path: Path) -> None:
        """The caller gets an error, nothing is left, and the program can be started again."""
        from twisted.internet import reactor

        async def story() -> None:
            use_monotonic_clock(reactor)
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
