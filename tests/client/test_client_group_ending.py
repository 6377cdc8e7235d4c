"""Memberships that end with an error and are stopped by their listener."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from group_readers import ALL, KINDS, Reader, new_brokers, start_readers
from twisted.internet.defer import Deferred

from kreplica.client.admin import Admin
from kreplica.testing.cluster.cluster import SimulatedCluster


@pytest.fixture
def brokers() -> Iterator[SimulatedCluster]:
    """Three brokers, and the topic t with six partitions."""
    simulated_cluster = new_brokers()
    yield simulated_cluster
    assert simulated_cluster.simulation.failures == []
    simulated_cluster.stop()


class SelfStoppingReader(Reader):
    """A reader that stops its membership in ``on_ended``."""

    def on_ended(self, error: Exception) -> None:
        super().on_ended(error)
        self.stopping = Deferred.fromCoroutine(self._stop())


@pytest.mark.parametrize("name", ["eager", "cooperative"])
def test_listener_may_stop_a_fenced_member(brokers: SimulatedCluster, name: str) -> None:
    """``on_ended`` may stop the membership, which leaves no timer."""
    fenced = SelfStoppingReader(brokers, "fenced", instance_id="i", **KINDS[name])
    brokers.run_until(fenced.start())
    (other,) = start_readers(brokers, "other", instance_id="i", **KINDS[name])
    brokers.run_until(lambda: fenced.final_error is not None)
    brokers.run_until(fenced.stopping)
    brokers.run(1.0)
    assert "FENCED_INSTANCE_ID" in str(fenced.final_error)
    assert fenced.host.runtime.reactor.getDelayedCalls() == []
    assert other.partition_numbers == ALL
    other.stop()


def test_ended_member_has_left_the_group(brokers: SimulatedCluster) -> None:
    """The fenced member's replacement is the only remaining member."""
    fenced = SelfStoppingReader(brokers, "fenced", instance_id="i", **KINDS["eager"])
    brokers.run_until(fenced.start())
    (other,) = start_readers(brokers, "other", instance_id="i", **KINDS["eager"])
    brokers.run_until(lambda: fenced.final_error is not None)
    brokers.run_until(fenced.stopping)
    described = brokers.run_until(Admin(other.cluster).describe_group("g"))
    assert [member.member_id for member in described.members] == [other.membership.identity.member_id]
    other.stop()
