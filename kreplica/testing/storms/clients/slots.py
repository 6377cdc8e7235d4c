"""Places in a group, in each of which one process after the other works, on two hosts in turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from kreplica.testing.clients.processor import Processor, Superseded
from kreplica.testing.simulator.simulation import Host

if TYPE_CHECKING:
    from kreplica.testing.storms.replicated_run import ReplicatedRun


class Worker(Protocol):
    """What one process does."""

    async def run(self) -> None:
        """Go on until ``finish``."""

    def finish(self) -> None:
        """Leave the group soon, and end."""


class Seat:
    """Empty at first, and whenever its process has ended.

    :param make: makes the worker of a process on a host.
    :ivar hosts: the names of both.
    """

    def __init__(self, run: ReplicatedRun, name: str, make: Callable[[Host], Worker]) -> None:
        self.name = name
        self.hosts = [f"{name}-a", f"{name}-b"]
        self._run = run
        self._make = make
        self._worker: Worker | None = None
        self._is_leaving = False
        self._is_wanted = False

    @property
    def is_taken(self) -> bool:
        """Whether a process works there."""
        return self._worker is not None

    @property
    def host(self) -> Host:
        """Where the last process is, or was."""
        return self._run.cluster.simulation.host(self.hosts[-1])

    def tell(self, what: str) -> None:
        """Note what is done to it."""
        self._run.tell(f"{self.name} {what}")

    def begin(self) -> None:
        """Let a process begin, on the other host; where one works there still, it ends, and so does that before it."""
        self.hosts.reverse()
        self.host.kill()
        if isinstance(self._worker, Processor):
            self._worker.is_superseded = True
        self.tell(f"begins on {self.host.name}")
        self._is_leaving = self._is_wanted = False
        worker = self._worker = self._make(self.host)
        working = Deferred.fromCoroutine(worker.run())
        working.addCallbacks(lambda _: self._ended(worker), lambda failure: self._failed(worker, failure))

    def kill(self) -> None:
        """The process ends at once."""
        self.tell("is killed")
        self._worker = None
        self.host.kill()

    def leave(self) -> None:
        """Let the process leave its group and end."""
        self._is_wanted = False
        if self._worker is not None:
            self.tell("is to leave")
            self._is_leaving = True
            self._worker.finish()

    def fill(self) -> None:
        """Let somebody work there from now on; where somebody is about to leave, from then on."""
        if not self.is_taken:
            self.begin()
        else:
            self._is_wanted = self._is_leaving

    def alone(self) -> None:
        """End whoever worked there before, and let somebody work there."""
        self._run.cluster.simulation.host(self.hosts[0]).kill()
        self.fill()

    def _ended(self, worker: Worker) -> None:
        if worker is self._worker:
            self.tell("has left")
            self._worker = None
            if self._is_wanted:
                self.begin()

    def _failed(self, worker: Worker, failure: Failure) -> None:
        if not failure.check(Superseded):
            self._run.failed(failure)
