"""Positions are not validated at a former leader."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred

from kreplica.client.client_runtime import runtime_of
from kreplica.client.cluster import Cluster
from kreplica.client.consumer import ConsumerOptions
from kreplica.client.consumer.position_validation import PositionValidator
from kreplica.client.consumer.positions import PartitionState
from kreplica.client_core.addresses import Address
from kreplica.client_core.errors import ClientError, LeaderUnknown
from kreplica.client_core.metadata import BrokerView, ClusterView, PartitionView, TopicView
from kreplica.model import TopicPartition
from kreplica.testing.simulator.simulation import Simulation

KEY = TopicPartition("t", 0)


@pytest.mark.parametrize(("known_epoch", "is_fetching"), [(13, False), (14, True), (15, True)])
def test_no_validation_by_a_leader_of_an_earlier_epoch(known_epoch: int, is_fetching: bool) -> None:
    """A former leader would report a truncation, so the metadata is refreshed instead."""
    simulation = Simulation(1)
    runtime = runtime_of(simulation.host("application").runtime)
    cluster = Cluster("broker-1:9092", runtime=runtime)
    topic = TopicView("t", (PartitionView(0, 1, known_epoch, (1,), (1,)),))
    broker = BrokerView(1, Address("broker-1", 9092))
    cluster.view = ClusterView("c", 1, {1: broker}, {"t": topic})
    lookups: list[Any] = []
    failed: list[ClientError] = []

    async def unreachable(*_: Any) -> Any:
        lookups.append(None)
        await Deferred()

    cluster.connection = unreachable  # type: ignore[method-assign]
    cluster.known_topic = lambda name: topic  # type: ignore[method-assign, assignment]
    validator = PositionValidator(
        cluster,
        ConsumerOptions(),
        committed=unreachable,
        on_failed=lambda _, error: failed.append(error),
        on_validated=lambda: None,
    )
    state = PartitionState(KEY)
    state.begin_at(56, 14)
    validator.validate([state])
    assert state.position == 56
    assert [type(each) for each in failed] == ([] if is_fetching else [LeaderUnknown])
    assert bool(lookups) == is_fetching
    assert all(error.retriable for error in failed)
    validator.close()
