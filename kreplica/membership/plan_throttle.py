"""Replication throttle of plans, read from ``/kreplica/plan_throttle``."""

from __future__ import annotations

from twisted.logger import Logger

from kreplica.cluster import znodes
from kreplica.cluster.plans.throttle import decode_throttle
from kreplica.membership.znode_watch import Watcher, ZnodeWatch
from kreplica.runtime import Reactor
from kreplica.zookeeper import NoNode, ZooKeeperClient

log = Logger()


class PlanThrottle:
    """Current replication throttle of plans; owned by the broker.

    :ivar bytes_per_second: None without a throttle.
    """

    def __init__(self, reactor: Reactor, client: ZooKeeperClient) -> None:
        self.bytes_per_second: int | None = None
        self._client = client
        self.watch = ZnodeWatch(reactor, "the throttle of plans", self._read)

    async def _read(self, watcher: Watcher) -> None:
        try:
            data, _ = await self._client.get_data(znodes.PLAN_THROTTLE, watcher)
        except NoNode:
            data = b""
            await self._client.exists(znodes.PLAN_THROTTLE, watcher)
        try:
            self.bytes_per_second = decode_throttle(data)
        except znodes.ZnodeError as error:
            self.bytes_per_second = None
            log.warn("ignoring an invalid plan throttle: {error}", error=str(error))
