"""Set of cordoned brokers, to which no new replicas are assigned: the children of ``/kreplica/cordoned``."""

from __future__ import annotations

from kreplica.cluster import znodes
from kreplica.membership.znode_watch import Watcher, ZnodeWatch
from kreplica.runtime import Reactor
from kreplica.zookeeper import NoNode, ZooKeeperClient


class CordonedBrokers:
    """Current set of cordoned brokers; owned by the broker.

    :ivar brokers: broker ids, as last read.
    """

    def __init__(self, reactor: Reactor, client: ZooKeeperClient) -> None:
        self.brokers: frozenset[int] = frozenset()
        self._client = client
        self.watch = ZnodeWatch(reactor, "the list of cordoned brokers", self._read)

    async def _read(self, watcher: Watcher) -> None:
        try:
            names = await self._client.get_children(znodes.CORDONED, watcher)
        except NoNode:
            names = []
            await self._client.exists(znodes.CORDONED, watcher)
        # Ignore names that are not broker ids.
        self.brokers = frozenset(int(name) for name in names if name.isascii() and name.isdecimal())
