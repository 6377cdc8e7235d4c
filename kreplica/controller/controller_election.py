"""Election of the controller: the broker whose session owns the ephemeral znode ``/controller``.

The multi that creates ``/controller`` also increases ``/controller_epoch``.  Every later write of the controller checks
the version of ``/controller_epoch`` (``effects.state_writes``), so a controller that was replaced cannot change the
cluster.  Brokers reject its commands (``replication.controller_fence``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kreplica.cluster import documents, znodes
from kreplica.controller.dependencies import Client
from kreplica.zookeeper import (
    Check,
    Create,
    Delete,
    MultiFailed,
    NodeExists,
    NoNode,
    SetData,
    Stat,
    ZooKeeperError,
)


class Elected(NamedTuple):
    """This broker is the controller.

    :param epoch: the controller epoch of its term.
    :param epoch_znode_version: version of ``/controller_epoch``, which the writes of the term check.
    """

    epoch: int
    epoch_znode_version: int


class Election:
    """Reads ``/controller``, runs for election, and deletes ``/controller`` if an operator requests a resignation.

    :param check_again: queues another call of ``check``.
    :param end_term: ends this broker's current term, if there is one, for the given reason.
    :param pause: called after this broker has resigned; the owner calls ``run_again`` later.
    :ivar controller_id: the elected broker as of the last check, or None.
    """

    def __init__(
        self,
        client: Client,
        broker_id: int,
        wall_clock_ms: Callable[[], int],
        *,
        check_again: Callable[[], None],
        end_term: Callable[[str], None],
        pause: Callable[[], None],
    ) -> None:
        self._client = client
        self._broker_id = broker_id
        self._wall_clock_ms = wall_clock_ms
        self._check_again = check_again
        self._end_term = end_term
        self._pause = pause
        self.controller_id: int | None = None
        self._is_watching = False
        self._has_given_up = False

    def watch_lost(self) -> None:
        """Record that the session that watched ``/controller`` has ended."""
        self._is_watching = False

    def run_again(self) -> None:
        """Run for election in the next check, even after this broker has resigned."""
        self._has_given_up = False

    async def check(self, has_term: bool) -> Elected | None:
        """Read ``/controller``: run for election if it is absent, end the term if it belongs to another broker.

        :param has_term: True if this broker already acts as the controller.
        :return: the term that this broker must start, if any.
        :raise ZooKeeperError: the znodes could not be read or written.
        """
        watch = None if self._is_watching else self.changed
        self._is_watching = True
        try:
            stat = await self._client.exists(znodes.CONTROLLER, watch)
        except ZooKeeperError:
            self._is_watching = False  # whether the watch was set is unknown; a second one does no harm
            raise
        if stat is None:
            return await self._elect()
        try:
            data, stat = await self._client.get_data(znodes.CONTROLLER)
        except NoNode:
            self._check_again()
            return None
        self.controller_id = documents.decode_controller(data)
        if stat.ephemeral_owner != self._client.session_id:
            self._end_term(f"broker {self.controller_id} was elected")
        elif documents.has_resignation(data):
            await self._give_up("its resignation was requested", stat)
        elif self.controller_id != self._broker_id:
            # An operator moves the controller by overwriting the id.
            await self._give_up(f"broker {self.controller_id} was written into {znodes.CONTROLLER}", stat)
        elif not has_term:
            return await self._continue_term(stat)
        return None

    def changed(self, _: object) -> None:
        """Handle a notification from the watch on ``/controller``."""
        self._is_watching = False
        self._check_again()

    async def _elect(self) -> Elected | None:
        if self._has_given_up:
            return None
        self._end_term(f"{znodes.CONTROLLER} was deleted")
        try:
            data, stat = await self._client.get_data(znodes.CONTROLLER_EPOCH)
        except NoNode:
            try:
                await self._client.create(znodes.CONTROLLER_EPOCH, documents.encode_controller_epoch(0))
            except NodeExists:
                pass
            data, stat = await self._client.get_data(znodes.CONTROLLER_EPOCH)
        epoch = documents.decode_controller_epoch(data) + 1
        controller = documents.encode_controller(self._broker_id, self._wall_clock_ms())
        try:
            await self._client.multi(
                [
                    Create(znodes.CONTROLLER, controller, ephemeral=True),
                    SetData(znodes.CONTROLLER_EPOCH, documents.encode_controller_epoch(epoch), stat.version),
                ]
            )
        except MultiFailed:
            # Another broker won the election.
            self._check_again()
            return None
        self.controller_id = self._broker_id
        return Elected(epoch, stat.version + 1)

    async def _continue_term(self, stat: Stat) -> Elected | None:
        """Return the term that starts again after a failed event, or None if another broker has been elected since."""
        epoch, epoch_stat = await self._client.get_data(znodes.CONTROLLER_EPOCH)
        if epoch_stat.mzxid != stat.czxid:
            # One multi writes both znodes, so a later write of the epoch means that another broker was elected.
            await self._client.delete(znodes.CONTROLLER, stat.version)
            return None
        try:
            await self._catch_up(epoch_stat.version)
        except MultiFailed:
            self._check_again()  # another controller was elected
            return None
        return Elected(documents.decode_controller_epoch(epoch), epoch_stat.version)

    async def _catch_up(self, epoch_znode_version: int) -> None:
        """Wait until this broker's ZooKeeper server has applied all writes of its earlier term.

        After a lost connection, the session may continue on a server that lacks these writes.  A write waits for them,
        as a sync does, and also checks the term.

        :raise MultiFailed: another controller was elected.
        """
        await self._client.multi([Check(znodes.CONTROLLER_EPOCH, epoch_znode_version)])

    async def _give_up(self, reason: str, stat: Stat) -> None:
        """End the term, delete ``/controller``, and do not run for election until ``run_again`` is called.

        :param stat: stat of ``/controller``, which belongs to this broker's session.
        """
        self._end_term(reason)
        self.controller_id = None
        _, epoch_stat = await self._client.get_data(znodes.CONTROLLER_EPOCH)
        # Without the check, this could delete the znode of a later term with the same version.
        check = Check(znodes.CONTROLLER_EPOCH, epoch_stat.version)
        try:
            await self._client.multi([check, Delete(znodes.CONTROLLER, stat.version)])
        except MultiFailed:
            self._check_again()
            return
        self._has_given_up = True
        self._pause()
