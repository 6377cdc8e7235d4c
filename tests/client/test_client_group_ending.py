"""A membership that ends with an error, and is stopped by its listener."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from group_readers import ALL, KINDS, Reader, begin, new_brokers
from twisted.internet.defer import Deferred

from kreplica.client.admin import Admin
from kreplica.testing.cluster.cluster import SimulatedCluster


@pytest.fixture
def brokers() -> Iterator[SimulatedCluster]:
    """Three brokers and the topic t with six partitions."""
    simulated = new_brokers()
    yield simulated
    assert simulated.simulation.failures == []
    simulated.stop()


class StopsInOnEnded(Reader):
    """A listener that stops the membership in ``on_ended``."""

    def on_ended(self, error: Exception) -> None:
        super().on_ended(error)
        self.stopped = Deferred.fromCoroutine(self._stop())


@pytest.mark.parametrize("name", ["eager", "cooperative"])
def test_listener_may_stop_a_fenced_member(brokers: SimulatedCluster, name: str) -> None:
    """No heartbeat is sent afterwards, and no timer remains."""
    fenced = StopsInOnEnded(brokers, "fenced", instance_id="i", **KINDS[name])
    brokers.run_until(fenced.start())
    (other,) = begin(brokers, "other", instance_id="i", **KINDS[name])
    brokers.run_until(lambda: fenced.ended is not None)
    brokers.run_until(fenced.stopped)
    brokers.run(1.0)
    assert "FENCED_INSTANCE_ID" in str(fenced.ended)
    assert fenced.host.runtime.reactor.getDelayedCalls() == []
    assert other.numbers == ALL
    other.stop()


def test_ended_member_has_left_the_group(brokers: SimulatedCluster) -> None:
    """The member's successor is the only member."""
    fenced = StopsInOnEnded(brokers, "fenced", instance_id="i", **KINDS["eager"])
    brokers.run_until(fenced.start())
    (other,) = begin(brokers, "other", instance_id="i", **KINDS["eager"])
    brokers.run_until(lambda: fenced.ended is not None)
    brokers.run_until(fenced.stopped)
    described = brokers.run_until(Admin(other.cluster).describe_group("g"))
    assert [member.member_id for member in described.members] == [other.membership.identity.member_id]
    other.stop()
