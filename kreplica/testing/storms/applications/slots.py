"""Slots for applications: each is occupied by one process after the other."""

from __future__ import annotations

from collections.abc import Callable

from kreplica.client_core.errors import ClientError
from kreplica.testing.simulator.simulation import Host
from kreplica.testing.storms.applications.application import Application
from kreplica.testing.storms.applications.history import ApplicationHistory, MemberHistory
from kreplica.testing.storms.clients.slots import Slot
from kreplica.testing.storms.cluster_run import ClusterRun


class ApplicationTask:
    """The task of a slot that runs an application, and reports resources that it has not released."""

    def __init__(self, application: Application, history: ApplicationHistory) -> None:
        self.application = application
        self._history = history

    async def run(self) -> None:
        application = self.application
        try:
            await application.run()
        except ClientError:
            if not application.is_superseded:
                raise
        leaks = application.leaks()
        if leaks:
            self._history.leaks.append(f"{application.name} did not release: {'; '.join(leaks)}")

    def finish(self) -> None:
        self.application.finish()


class ApplicationSlot(Slot):
    """A slot for applications.

    :param make: makes an application with the given unique name.
    :param group: history of the group whose members the applications are.
    """

    def __init__(
        self,
        run: ClusterRun,
        name: str,
        make: Callable[[Host, str], Application],
        history: ApplicationHistory,
        group: MemberHistory | None = None,
    ) -> None:
        super().__init__(run, name, self._make_task)
        self._make_application = make
        self._history = history
        self._group = group
        self._incarnations = 0
        self._applications: dict[str, Application] = {}

    @property
    def application(self) -> Application:
        return self._applications[self.hosts[-1]]

    def is_paused(self, member: str) -> bool:
        """Return True if a member's process is paused."""
        hosts = [name for name, each in self._applications.items() if member.partition(".")[0] == each.name]
        return any(self._run.cluster.simulation.host(name).is_paused for name in hosts)

    def start(self) -> None:
        for application in self._applications.values():
            application.is_superseded = True
        self._ended_on(self.hosts[0])
        super().start()

    def kill(self) -> None:
        super().kill()
        self._ended_on(self.hosts[-1])

    def keep_newest(self) -> None:
        self._ended_on(self.hosts[0])
        super().keep_newest()

    def _make_task(self, host: Host) -> ApplicationTask:
        self._incarnations += 1
        application = self._make_application(host, f"{self.name}#{self._incarnations}")
        self._applications[host.name] = application
        return ApplicationTask(application, self._history)

    def _ended_on(self, host: str) -> None:
        application = self._applications.pop(host, None)
        if application is not None and self._group is not None:
            self._group.ended(application.name)
