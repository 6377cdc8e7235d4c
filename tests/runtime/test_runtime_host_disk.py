"""Files of a killed program are revoked immediately, and closed once no call is in progress."""

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
        """Written data is kept; later reads, writes and syncs through open files fail."""
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
        """Files of pending responses are closed as well, and the next program can lock the directory."""
        disk = HostDisk()
        lock = disk.lock_directory(str(tmp_path))
        pending_range = FileRange(disk.open(str(tmp_path / "log"), create=True), 0, 6)
        with pytest.raises(StorageError, match="is in use"):
            HostDisk().lock_directory(str(tmp_path))
        disk.kill()
        disk.release()
        assert open_descriptors(tmp_path) == []
        HostDisk().lock_directory(str(tmp_path)).release()
        pending_range.file.close()
        lock.release()

    def test_descriptor_is_not_reused_while_a_thread_may_use_it(self, tmp_path: Path) -> None:
        """Until ``release``, the descriptor refers to no other file."""
        disk = HostDisk()
        file = disk.open(str(tmp_path / "log"), create=True)
        number = file.descriptor()
        assert number is not None
        disk.kill()
        new_descriptors = [os.open(tmp_path / "log", os.O_RDWR) for _ in range(4)]
        assert number not in new_descriptors
        for descriptor in new_descriptors:
            os.close(descriptor)
        disk.release()
        with pytest.raises(OSError):
            os.fstat(number)


class Program:
    """A program that locks a directory, opens a file, and may wait during its start."""

    def __init__(self, runtime: Runtime, directory: Path) -> None:
        self.runtime = runtime
        self.directory = directory
        self.start_waits: Deferred[None] | None = None

    async def start(self) -> None:
        self.lock = self.runtime.disk.lock_directory(str(self.directory))
        self.file = self.runtime.disk.open(str(self.directory / "log"), create=True)
        if self.start_waits is not None:
            await self.start_waits

    async def stop(self) -> None:
        self.file.close()
        self.lock.release()


def make_machine(
    reactor: Any, directory: Path, programs: list[Program], start_waits: list[Deferred[None]] | None = None
) -> Machine[Program]:
    def build(runtime: Runtime) -> Program:
        programs.append(Program(runtime, directory))
        if start_waits:
            programs[-1].start_waits = start_waits.pop()
        return programs[-1]

    def create_resources(host: HostReactor) -> ProgramResources:
        return real_resources(host, reactor, "boot")

    return Machine(reactor, "machine", Loopback(), build, create_resources)


class TestMachine:
    def test_program_restarts_from_its_directory(self, tmp_path: Path) -> None:
        """After each kill, the next program finds the files of the previous one and no lock."""
        from twisted.internet import reactor

        async def scenario() -> None:
            use_monotonic_clock(reactor)
            programs: list[Program] = []
            machine = make_machine(reactor, tmp_path, programs)
            for number in range(3):
                await machine.start()
                assert machine.program.file.size() == number
                machine.program.file.write_at(number, [b"x"])
                machine.kill()
                assert not machine.running
            assert open_descriptors(tmp_path) == []

        run(scenario())

    def test_call_in_progress_ends_first(self, tmp_path: Path) -> None:
        """A thread finishes only its current call; then the files are closed."""
        from twisted.internet import reactor

        async def scenario() -> None:
            use_monotonic_clock(reactor)
            programs: list[Program] = []
            machine = make_machine(reactor, tmp_path, programs)
            await machine.start()
            program = machine.program
            has_started, may_continue = threading.Event(), threading.Event()
            steps: list[str] = []
            results: list[object] = []

            def work() -> None:
                has_started.set()
                may_continue.wait(10)
                steps.append("in progress")
                program.file.write_at(0, [b"too late"])
                steps.append("next")

            program.runtime.offload.run(work).addBoth(results.append)
            has_started.wait(10)
            for _ in range(8):  # more calls than threads
                program.runtime.offload.run(steps.append, "queued").addBoth(results.append)
            machine.kill()
            released = machine.when_released()
            assert not released.called
            assert open_descriptors(tmp_path) != []
            may_continue.set()
            await released
            assert (steps, results) == ([*(["queued"] * steps.count("queued")), "in progress"], [])
            assert open_descriptors(tmp_path) == []
            assert (tmp_path / "log").read_bytes() == b""

        run(scenario())

    def test_kill_during_a_start(self, tmp_path: Path) -> None:
        """The caller gets an error, no file stays open, and the program can be started again."""
        from twisted.internet import reactor

        async def scenario() -> None:
            use_monotonic_clock(reactor)
            programs: list[Program] = []
            machine = make_machine(reactor, tmp_path, programs, [Deferred()])
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

        run(scenario())
