"""Where applications work: seats, in each of which one process after the other has its turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kreplica.client_core.errors import ClientError
from kreplica.testing.simulator.simulation import Host
from kreplica.testing.storms.applications.application import Application
from kreplica.testing.storms.applications.history import GroupTellings, Tellings
from kreplica.testing.storms.clients.seats import Seat

if TYPE_CHECKING:
    from kreplica.testing.storms.replicated_run import ReplicatedRun


class Occupant:
    """An application as a seat knows it: it leaves nothing behind where it ends in order."""

    def __init__(self, application: Application, tellings: Tellings) -> None:
        self.application = application
        self._tellings = tellings

    async def run(self) -> None:
        application = self.application
        try:
            await application.run()
        except ClientError:
            if not application.is_superseded:
                raise
        left = application.left_behind()
        if left:
            self._tellings.left_behind.append(f"{application.name} left behind: {'; '.join(left)}")

    def finish(self) -> None:
        self.application.finish()


class Place(Seat):
    """A seat for applications.

    :param make: makes an incarnation, of a name that no other has.
    :param group: whose members work there; None for those of no group.
    """

    def __init__(
        self,
        run: ReplicatedRun,
        name: str,
        make: Callable[[Host, str], Application],
        tellings: Tellings,
        group: GroupTellings | None = None,
    ) -> None:
        super().__init__(run, name, self._occupant)
        self._make_application = make
        self._tellings = tellings
        self._group = group
        self._incarnations = 0
        self._occupants: dict[str, Application] = {}

    @property
    def application(self) -> Application:
        """The last that began there."""
        return self._occupants[self.hosts[-1]]

    def stands_still(self, member: str) -> bool:
        """Whether a member's process is paused."""
        hosts = [name for name, each in self._occupants.items() if member.partition(".")[0] == each.name]
        return any(self._run.cluster.simulation.host(name).is_paused for name in hosts)

    def begin(self) -> None:
        for application in self._occupants.values():
            application.is_superseded = True
        self._is_gone(self.hosts[0])
        super().begin()

    def kill(self) -> None:
        super().kill()
        self._is_gone(self.hosts[-1])

    def alone(self) -> None:
        self._is_gone(self.hosts[0])
        super().alone()

    def _occupant(self, host: Host) -> Occupant:
        self._incarnations += 1
        application = self._make_application(host, f"{self.name}#{self._incarnations}")
        self._occupants[host.name] = application
        return Occupant(application, self._tellings)

    def _is_gone(self, host: str) -> None:
        application = self._occupants.pop(host, None)
        if application is not None and self._group is not None:
            self._group.gone(application.name)
