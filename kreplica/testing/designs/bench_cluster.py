"""Cluster of one run (virtual time, a ZooKeeper server, light brokers, counters), and the interface of a design."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from kreplica.testing.designs.availability import Availability
from kreplica.testing.designs.counts import Counts
from kreplica.testing.designs.layout import Layout, Partition, Shape
from kreplica.testing.designs.light_broker import LightBroker
from kreplica.testing.designs.light_zookeeper import LightZooKeeper, Rates
from kreplica.testing.simulator.scheduler import Scheduler

QUIET_S = 30.0
"""A cluster has settled if nothing happens within this time: longer than every timer that follows an event."""

SETTLE_S_MAX = 24 * 3600.0


class BenchCluster:
    """The parts of a cluster that do not depend on the design.

    :param by_epoch: True if the design truncates logs by leader epoch.
    :param one_by_one: True if clients wait for each response before they send the next request.
    """

    def __init__(
        self, shape: Shape, rtt_s: float, *, by_epoch: bool, one_by_one: bool, rates: Rates | None = None
    ) -> None:
        self.layout = Layout(shape)
        self.rtt_s = rtt_s
        self.one_by_one = one_by_one
        self.scheduler = Scheduler()
        self.counts = Counts()
        self.zookeeper = LightZooKeeper(self.scheduler, rtt_s, self.counts, rates)
        self.availability = Availability(lambda: self.scheduler.now_s)
        self.brokers: dict[int, LightBroker] = {}
        for broker_id in shape.broker_ids:
            self.brokers[broker_id] = LightBroker(
                broker_id, self.scheduler, rtt_s, self.counts, self.availability, self.brokers, by_epoch=by_epoch
            )

    def settle(self) -> None:
        """Run until nothing happens for ``QUIET_S``.

        :raise TimeoutError: the cluster does not settle within a day of virtual time.
        """
        scheduler = self.scheduler
        until_s = scheduler.now_s + SETTLE_S_MAX
        while scheduler.step(scheduler.now_s + QUIET_S):
            if scheduler.now_s > until_s:
                raise TimeoutError(f"the cluster has not settled after {scheduler.now_s:.3f} s of virtual time")


class Design(Protocol):
    """A cluster with one design, and the operations that the events need."""

    def populate(self) -> None:
        """Write the znodes of a cluster that ran before and was stopped."""

    def start_broker(self, broker_id: int) -> None: ...

    def kill_broker(self, broker_id: int) -> None:
        """End the process; its session expires at once."""

    def shut_down_broker(self, broker_id: int) -> None:
        """Stop the broker as an operator would."""

    def expire_session(self, broker_id: int) -> None:
        """Expire a broker's session; its process continues and learns of the expiry half a round trip later."""

    def create_topic(self, topic: str, partitions: Sequence[Partition]) -> None: ...

    def delete_topic(self, topic: str, partitions: Sequence[Partition]) -> None: ...

    def elect_preferred(self) -> None: ...

    def reassign(self, targets: Mapping[Partition, tuple[int, ...]]) -> None: ...
