"""Slots for client processes: each is occupied by one process after the other, on two hosts alternately."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from kreplica.testing.clients.processor import Processor, Superseded
from kreplica.testing.simulator.simulation import Host
from kreplica.testing.storms.cluster_run import ClusterRun


class Task(Protocol):
    async def run(self) -> None:
        """Work until ``finish`` is called."""

    def finish(self) -> None:
        """Make ``run`` leave the group and return."""


class Slot:
    """A slot, which is empty at first.

    :param make: makes the task of a process on a host.
    :ivar hosts: names of both hosts; the last one is that of the newest process.
    """

    def __init__(self, run: ClusterRun, name: str, make: Callable[[Host], Task]) -> None:
        self.name = name
        self.hosts = [f"{name}-a", f"{name}-b"]
        self._run = run
        self._make = make
        self._task: Task | None = None
        self._is_leaving = False
        self._restarts_after_leave = False

    @property
    def is_occupied(self) -> bool:
        return self._task is not None

    @property
    def host(self) -> Host:
        """Host of the newest process."""
        return self._run.cluster.simulation.host(self.hosts[-1])

    def note(self, text: str) -> None:
        """Append an operation on the slot to the timeline."""
        self._run.note(f"{self.name} {text}")

    def start(self) -> None:
        """Start a process on the other host, whose process is killed; the present one continues as a zombie."""
        self.hosts.reverse()
        self.host.kill()
        if isinstance(self._task, Processor):
            self._task.is_superseded = True
        self.note(f"starts on {self.host.name}")
        self._is_leaving = self._restarts_after_leave = False
        task = self._task = self._make(self.host)
        running = Deferred.fromCoroutine(task.run())
        running.addCallbacks(lambda _: self._ended(task), self._failed)

    def kill(self) -> None:
        self.note("is killed")
        self._task = None
        self.host.kill()

    def leave(self) -> None:
        """Make the process leave its group and end."""
        self._restarts_after_leave = False
        if self._task is not None:
            self.note("leaves")
            self._is_leaving = True
            self._task.finish()

    def fill(self) -> None:
        """Start a process if the slot is empty, or as soon as the present process has left."""
        if not self.is_occupied:
            self.start()
        else:
            self._restarts_after_leave = self._is_leaving

    def keep_newest(self) -> None:
        """Kill the previous process, and start one if the slot is empty."""
        self._run.cluster.simulation.host(self.hosts[0]).kill()
        self.fill()

    def _ended(self, task: Task) -> None:
        if task is self._task:
            self.note("has left")
            self._task = None
            if self._restarts_after_leave:
                self.start()

    def _failed(self, failure: Failure) -> None:
        if not failure.check(Superseded):
            self._run.failed(failure)
