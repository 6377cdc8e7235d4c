"""Slots for applications; the successive processes of a slot run alternately on two hosts."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred

from kreplica.client_core.errors import ClientError
from kreplica.testing.simulator.simulation import Host
from kreplica.testing.storms.applications.application import Application
from kreplica.testing.storms.applications.history import ApplicationHistory, MemberHistory
from kreplica.testing.storms.cluster_run import ClusterRun


class ApplicationSlot:
    """A slot; it is empty at first.

    :param make: makes an application with the given unique name.
    :param history: records resources that an application has not released.
    :param group: history of the group that the applications join.
    :ivar hosts: names of both hosts; the newest process runs on the last.
    """

    def __init__(
        self,
        run: ClusterRun,
        name: str,
        make: Callable[[Host, str], Application],
        history: ApplicationHistory,
        group: MemberHistory | None = None,
    ) -> None:
        self.name = name
        self.hosts = [f"{name}-a", f"{name}-b"]
        self._run = run
        self._make = make
        self._history = history
        self._group = group
        self._incarnations = 0
        self._applications: dict[str, Application] = {}
        self._current: Application | None = None
        self._is_leaving = False
        self._restarts_after_leave = False

    # --- state -------------------------------------------------------------------------------------------------------

    @property
    def is_occupied(self) -> bool:
        return self._current is not None

    @property
    def application(self) -> Application:
        """The newest application."""
        return self._applications[self.hosts[-1]]

    @property
    def host(self) -> Host:
        """Host of the newest process."""
        return self._run.cluster.simulation.host(self.hosts[-1])

    def is_paused(self, member: str) -> bool:
        """Return True if a member's process is paused."""
        process_name = member.partition(".")[0]
        hosts = [name for name, application in self._applications.items() if process_name == application.name]
        return any(self._run.cluster.simulation.host(name).is_paused for name in hosts)

    def note(self, text: str) -> None:
        """Append an operation on the slot to the timeline."""
        self._run.note(f"{self.name} {text}")

    # --- operations --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Kill any process on the other host and start a new one there; the current process continues as a zombie."""
        for application in self._applications.values():
            application.is_superseded = True
        self._forget_process_on(self.hosts[0])
        self.hosts.reverse()
        self.host.kill()
        self.note(f"starts on {self.host.name}")
        self._is_leaving = self._restarts_after_leave = False
        self._incarnations += 1
        application = self._make(self.host, f"{self.name}#{self._incarnations}")
        self._applications[self.host.name] = self._current = application
        running = Deferred.fromCoroutine(self._run_application(application))
        running.addCallbacks(lambda _: self._on_end(application), self._run.record_failure)

    def kill(self) -> None:
        self.note("is killed")
        self._current = None
        self.host.kill()
        self._forget_process_on(self.hosts[-1])

    def leave(self) -> None:
        """Stop the application gracefully, so that it leaves its group."""
        self._restarts_after_leave = False
        if self._current is not None:
            self.note("leaves")
            self._is_leaving = True
            self._current.finish()

    def fill(self) -> None:
        """Start a process if the slot is empty, or as soon as the current process has left."""
        if not self.is_occupied:
            self.start()
        else:
            self._restarts_after_leave = self._is_leaving

    def keep_newest(self) -> None:
        """Kill the previous process, and start one if the slot is empty."""
        self._forget_process_on(self.hosts[0])
        self._run.cluster.simulation.host(self.hosts[0]).kill()
        self.fill()

    # --- internals ---------------------------------------------------------------------------------------------------

    async def _run_application(self, application: Application) -> None:
        try:
            await application.run()
        except ClientError:
            if not application.is_superseded:
                raise
        leaks = application.leaks()
        if leaks:
            self._history.leaks.append(f"{application.name} did not release: {'; '.join(leaks)}")

    def _on_end(self, application: Application) -> None:
        if application is self._current:
            self.note("has left")
            self._current = None
            if self._restarts_after_leave:
                self.start()

    def _forget_process_on(self, host: str) -> None:
        """Record the end of the process on a host, because it is killed."""
        application = self._applications.pop(host, None)
        if application is not None and self._group is not None:
            self._group.ended(application.name)
