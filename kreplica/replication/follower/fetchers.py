"""Assigns each followed partition to the fetcher of its leader."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from twisted.internet.defer import Deferred, DeferredList

from kreplica.model import NO_LEADER, Endpoint, TopicPartition
from kreplica.replication.follower.fetcher import Fetcher, FetcherDependencies
from kreplica.replication.follower.fetcher_config import FetcherConfig
from kreplica.replication.partition import Partition
from kreplica.replication.throttle import ReplicationThrottle
from kreplica.runtime import Runtime


class Fetchers:
    """Fetchers of one broker, one per leader; ``Partitions`` starts and stops following through them.

    :param broker_epoch: returns this broker's current epoch, which leaders check before they add it to an ISR.
    :param endpoint_of: returns the address of a broker's inter-broker listener, or None if it is not known yet.
    :param throttle: None for no throttling.
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
        self._dependencies = FetcherDependencies(runtime, broker_id, broker_epoch, endpoint_of, config, throttle)
        self._reactor = runtime.reactor
        self._by_leader: dict[int, Fetcher] = {}
        self._by_partition: dict[TopicPartition, Fetcher] = {}
        self._closing: dict[Deferred[None], None] = {}
        self._closed = False

    def __len__(self) -> int:
        """Return the number of leaders."""
        return len(self._by_leader)

    def __iter__(self) -> Iterator[Fetcher]:
        return iter(self._by_leader.values())

    def start(self, partition: Partition) -> None:
        """Start fetching a partition from its current leader; a repeated call restarts it in the new epoch."""
        self.stop(partition)
        leader = partition.leadership.leader
        if leader == NO_LEADER or self._closed:
            return
        fetcher = self._by_leader.get(leader)
        if fetcher is None:
            fetcher = self._by_leader[leader] = Fetcher(self._dependencies, leader)
        self._by_partition[partition.topic_partition] = fetcher
        fetcher.add(partition)

    def stop(self, partition: Partition) -> None:
        """Stop fetching a partition; does nothing if it is not fetched."""
        fetcher = self._by_partition.pop(partition.topic_partition, None)
        if fetcher is None:
            return
        fetcher.remove(partition.topic_partition)
        if not len(fetcher):
            # Usually the partition is added again at once, in a new epoch of the same leader.
            self._reactor.callLater(0, self._close_if_idle, fetcher)

    def leader_of(self, key: TopicPartition) -> int | None:
        """Return the ID of the broker that a partition is fetched from, or None."""
        fetcher = self._by_partition.get(key)
        return fetcher.leader_id if fetcher is not None else None

    async def close(self) -> None:
        """Stop all fetchers and close their connections."""
        self._closed = True
        self._by_partition.clear()
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
