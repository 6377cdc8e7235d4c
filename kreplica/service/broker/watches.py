"""Watches the cordoned brokers and the throttle of plans in ZooKeeper."""

from __future__ import annotations

from kreplica.membership.cordoned_brokers import CordonedBrokers
from kreplica.membership.plan_throttle import PlanThrottle
from kreplica.runtime import Reactor
from kreplica.runtime.gather import gather
from kreplica.zookeeper import ZooKeeperClient


class Watches:
    """The watches of one broker; owned by the broker, started once the persistent znodes exist."""

    def __init__(self, reactor: Reactor, client: ZooKeeperClient) -> None:
        self.cordoned = CordonedBrokers(reactor, client)
        self.plan_throttle = PlanThrottle(reactor, client)
        self._all = (self.cordoned.watching, self.plan_throttle.watching)

    async def start(self) -> None:
        """Read the cordoned brokers and the throttle, and watch for changes."""
        await gather([watching.start() for watching in self._all])

    def session_renewed(self) -> None:
        """Read everything again, because changes may have been missed."""
        for watching in self._all:
            watching.session_renewed()

    async def stop(self) -> None:
        """Stop watching."""
        for watching in self._all:
            watching.stop()
