"""Watches cluster-wide state other than settings: cordoned brokers and the throttle of plans."""

from __future__ import annotations

from kreplica.membership.cordoned_brokers import CordonedBrokers
from kreplica.membership.plan_throttle import PlanThrottle
from kreplica.runtime import Reactor
from kreplica.runtime.gather import gather
from kreplica.zookeeper import ZooKeeperClient


class Watches:
    """Owned by the broker; started when the persistent paths are there."""

    def __init__(self, reactor: Reactor, client: ZooKeeperClient) -> None:
        self.cordoned = CordonedBrokers(reactor, client)
        self.plan_throttle = PlanThrottle(reactor, client)
        self._all = (self.cordoned.watching, self.plan_throttle.watching)

    async def start(self) -> None:
        """Read both, and watch for changes."""
        await gather([watching.start() for watching in self._all])

    def session_renewed(self) -> None:
        """Changes may have been missed."""
        for watching in self._all:
            watching.session_renewed()

    async def stop(self) -> None:
        """Stop watching."""
        for watching in self._all:
            watching.stop()
