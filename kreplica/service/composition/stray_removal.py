"""Removes logs that are no longer assigned to a broker, when it starts and when it registers again."""

from __future__ import annotations

from twisted.internet.defer import Deferred, succeed

from kreplica.membership.stray_logs import log_stray_failure, remove_strays, remove_strays_after_reregistration
from kreplica.replication import ControlFence
from kreplica.replication.partitions import DELETE_ANY_EPOCH, Partitions
from kreplica.runtime import Reactor
from kreplica.storage.directories.log_directories import LogDirectories
from kreplica.zookeeper import ZooKeeperClient


class StrayRemoval:
    """Removes stray logs of one broker; at most one search runs at a time.

    ``last_epoch`` is the broker epoch of the last registration; -1 if unknown.
    """

    def __init__(
        self,
        reactor: Reactor,
        client: ZooKeeperClient,
        directories: LogDirectories,
        broker_id: int,
        fence: ControlFence,
        partitions: Partitions,
    ) -> None:
        self._reactor = reactor
        self._client = client
        self._directories = directories
        self._broker_id = broker_id
        self._fence = fence
        self._partitions = partitions
        self._running: Deferred[None] = succeed(None)

    async def at_start(self, last_epoch: int) -> None:
        """Remove logs that were unassigned while this broker was down.

        :raise ZooKeeperError: ZooKeeper cannot be read; nothing was removed.
        :raise OSError: the device fails.
        """
        await remove_strays(self._reactor, self._client, self._directories, self._broker_id, last_epoch)

    def after_reregistration(self, last_epoch: int) -> None:
        """Start removing logs that were unassigned while this broker had no session; failures are logged."""
        self._running.cancel()  # a search started in the previous session; the new search covers everything
        self._running = Deferred.fromCoroutine(
            remove_strays_after_reregistration(
                self._reactor,
                self._client,
                self._directories,
                self._broker_id,
                last_epoch,
                self._fence.in_order,
                lambda key: self._partitions.stop_replica(key, leader_epoch=DELETE_ANY_EPOCH, delete=True),
            )
        )
        self._running.addErrback(log_stray_failure)

    def stop(self) -> None:
        """Cancel the running search."""
        self._running.cancel()
