"""Whom this broker follows: one fetcher for each leader, and every partition with the fetcher of its leader."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred, DeferredList

from kreplica.model import NO_LEADER, Endpoint, TopicPartition
from kreplica.replication.follower.fetcher import Fetcher, Follower
from kreplica.replication.follower.fetcher_config import FetcherConfig
from kreplica.replication.partition import Partition
from kreplica.replication.throttle import ReplicationThrottle
from kreplica.runtime import Runtime


class Fetchers:
    """Owned by the broker; what ``Partitions`` starts and stops following through.

    :param broker_id: this broker.
    :param broker_epoch: its epoch as it is now, which leaders check before they let it into an in-sync set.
    :param endpoint_of: where a broker listens for other brokers; None where that is not known yet.
    :param throttle: None where nothing is throttled.
    """

    def __init__(
        self,
        runtime: Runtime,
        broker_id: int,
        broker_epoch: Callable[[], int],
        endpoint_of: Callable[[int], Endpoint | None],
        config: FetcherConfig,
        throttle: ReplicationThrottle | None = None,
    ) -> None:
        self._follower = Follower(runtime, broker_id, broker_epoch, endpoint_of, config, throttle)
        self._reactor = runtime.reactor
        self._by_leader: dict[int, Fetcher] = {}
        self._of_partition: dict[TopicPartition, Fetcher] = {}
        self._closing: dict[Deferred[None], None] = {}
        self._closed = False

    def __len__(self) -> int:
        """How many leaders are fetched from."""
        return len(self._by_leader)

    def start(self, partition: Partition) -> None:
        """Fetch a partition from the leader that it has now; again, with a new epoch, begins anew."""
        self.stop(partition)
        leader = partition.leadership.leader
        if leader == NO_LEADER or self._closed:
            return
        fetcher = self._by_leader.get(leader)
        if fetcher is None:
            fetcher = self._by_leader[leader] = Fetcher(self._follower, leader)
        self._of_partition[partition.topic_partition] = fetcher
        fetcher.add(partition)

    def stop(self, partition: Partition) -> None:
        """Take in nothing more for a partition; one that is not fetched is fine."""
        fetcher = self._of_partition.pop(partition.topic_partition, None)
        if fetcher is None:
            return
        fetcher.remove(partition.topic_partition)
        if not len(fetcher):
            # Most often it starts again at once, in a new epoch of the same leader.
            self._reactor.callLater(0, self._close_if_idle, fetcher)

    def leader_of(self, key: TopicPartition) -> int | None:
        """The broker that a partition is fetched from; None where it is not."""
        fetcher = self._of_partition.get(key)
        return fetcher.leader_id if fetcher is not None else None

    async def close(self) -> None:
        """Fetch nothing more, and close all connections."""
        self._closed = True
        self._of_partition.clear()
        for fetcher in list(self._by_leader.values()):
            self._close(fetcher)
        await DeferredList(list(self._closing))

    def _close_if_idle(self, fetcher: Fetcher) -> None:
        if not len(fetcher) and self._by_leader.get(fetcher.leader_id) is fetcher:
            self._close(fetcher)

    def _close(self, fetcher: Fetcher) -> None:
        del self._by_leader[fetcher.leader_id]
        closing = fetcher.close()
        if not closing.called:
            self._closing[closing] = None
            closing.addBoth(lambda _: self._closing.pop(closing, None))
