"""A broker without logs: it takes roles, records when it leads, and counts the bytes that it would truncate.

Truncation is counted with one batch in flight per partition, as with constant traffic: the log end of a leader is one
batch above that of its followers.  A follower's log end is one batch above its own high
watermark, which it learns with the next fetch.  A replica that truncates to its high watermark therefore discards a
batch each time it starts to follow; one that truncates by leader epoch discards only the batch that the new leader
does not have: the last batch of a former leader.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from kreplica.testing.designs.availability import Availability
from kreplica.testing.designs.counts import Counts
from kreplica.testing.designs.layout import Partition
from kreplica.testing.simulator.scheduler import Process, Scheduler

BATCH_BYTES = 16_384
"""Default ``batch.size`` of a producer."""

FETCH_RETRY_S = 0.1
FETCH_TRIES_MAX = 300


class FetchListener(Protocol):
    """Notified when a follower's first fetch shows that it has caught up."""

    def fetched(self, partition: Partition, follower: int) -> None: ...


class LightBroker:
    """One broker; implements ``roles.Roles``.

    :param by_epoch: True to truncate by leader epoch, False to truncate to the high watermark.
    :param brokers: all brokers by ID; the creator adds this broker, too.
    :ivar process: owner of timers and messages; replaced at each start.
    """

    def __init__(
        self,
        broker_id: int,
        scheduler: Scheduler,
        rtt_s: float,
        counts: Counts,
        availability: Availability,
        brokers: Mapping[int, LightBroker],
        *,
        by_epoch: bool,
    ) -> None:
        self.broker_id = broker_id
        self.process = Process(f"broker-{broker_id}")
        self.alive = False
        self.listener: FetchListener | None = None
        self._scheduler = scheduler
        self._rtt_s = rtt_s
        self._counts = counts
        self._availability = availability
        self._brokers = brokers
        self._by_epoch = by_epoch
        self._leads: dict[Partition, int] = {}
        self._follows: dict[Partition, tuple[int, int]] = {}
        self._has_led: set[Partition] = set()
        """Partitions whose last batch may be missing on all followers."""

    def start(self) -> Process:
        """Start the next process; replicas have no role until a command arrives."""
        self.process = Process(f"broker-{self.broker_id}")
        self.alive = True
        return self.process

    def kill(self) -> None:
        """End the process."""
        self.alive = False
        self._scheduler.kill(self.process)
        self.forget_roles()

    def forget_roles(self) -> None:
        """Stop all replicas, and keep their files."""
        for partition in list(self._leads):
            self.stop(partition)
        self._follows.clear()

    # --- roles -------------------------------------------------------------------------------------------------------

    def lead(self, partition: Partition, epoch: int) -> None:
        self._follows.pop(partition, None)
        if partition not in self._leads:
            self._availability.opened(partition, self.broker_id)
        self._leads[partition] = epoch
        self._has_led.discard(partition)

    def follow(self, partition: Partition, leader: int, epoch: int) -> None:
        if self._follows.get(partition) == (leader, epoch):
            return
        self._stop_leading(partition)
        if partition in self._has_led or not self._by_epoch:
            self._counts.truncated_bytes += BATCH_BYTES
            self._has_led.discard(partition)
        self._follows[partition] = (leader, epoch)
        self._scheduler.post(self.process, self._rtt_s / 2, self._fetch, partition, leader, epoch, 1)

    def stop(self, partition: Partition) -> None:
        self._stop_leading(partition)
        self._follows.pop(partition, None)

    def delete(self, partition: Partition) -> None:
        self.stop(partition)
        self._has_led.discard(partition)

    def _stop_leading(self, partition: Partition) -> None:
        if self._leads.pop(partition, None) is not None:
            self._has_led.add(partition)
            self._availability.closed(partition, self.broker_id)

    # --- fetching ----------------------------------------------------------------------------------------------------

    def leads(self, partition: Partition) -> bool:
        return partition in self._leads

    def follows(self, partition: Partition) -> int | None:
        """Return the leader that this broker follows."""
        role = self._follows.get(partition)
        return None if role is None else role[0]

    def _fetch(self, partition: Partition, leader: int, epoch: int, tries: int) -> None:
        if self._follows.get(partition) != (leader, epoch):
            return
        leader_broker = self._brokers[leader]
        if not leader_broker.alive:
            return
        if leader_broker.accepts_fetches(partition):
            assert leader_broker.listener is not None
            leader_broker.listener.fetched(partition, self.broker_id)
        elif tries < FETCH_TRIES_MAX:
            self._scheduler.post(self.process, FETCH_RETRY_S, self._fetch, partition, leader, epoch, tries + 1)

    electing: Mapping[Partition, object] = {}
    """Partitions whose elected leader, this broker, does not accept writes yet; set by its agent."""

    def accepts_fetches(self, partition: Partition) -> bool:
        return partition in self._leads or partition in self.electing
