"""What a broker refuses before it writes anything is known not to be written."""

from __future__ import annotations

from producer_scene import Scene

from kreplica.errors import ErrorCode
from kreplica.sansio.errors import BrokerRefused, GaveUp, OutcomeUnknown


def test_too_few_replicas_in_sync() -> None:
    """The leader takes nothing; when the time is over the record is given up, and nobody need doubt."""
    scene = Scene(brokers=3, overrides=("min.insync.replicas=2",))
    leader = scene.brokers.leader_of("t", 0)
    for number in {1, 2, 3} - {leader}:
        scene.brokers.brokers[number].kill()
    scene.brokers.run(30.0)
    producer = scene.producer(delivery_timeout_s=3.0)
    error = scene.error(producer.send("t", b"v", partition=0))
    assert isinstance(error, GaveUp)
    assert not isinstance(error, OutcomeUnknown)
    assert isinstance(error.__cause__, BrokerRefused)
    assert error.__cause__.code is ErrorCode.NOT_ENOUGH_REPLICAS
    scene.close()
