"""Limits of automatic topic creation."""

from __future__ import annotations

from twisted.internet.task import Clock

from kreplica.server.metadata.creation_limits import BURST_S, TopicCreationLimits

ATTACKER, NEIGHBOR = "203.0.113.1", "203.0.113.2"


def created(limits: TopicCreationLimits, address: str, wanted: int) -> int:
    """Create as many topics as are admitted, a few at a time, and finish them before the next request."""
    count = 0
    while admitted := limits.admit(address, wanted - count):
        limits.finished(admitted)
        count += admitted
    return count


def test_creations_in_progress_are_bounded() -> None:
    limits = TopicCreationLimits(Clock().seconds, in_progress_max=5)
    assert limits.admit(ATTACKER, 3000) == 5
    assert limits.admit(NEIGHBOR, 1) == 0
    limits.finished(5)
    assert limits.admit(NEIGHBOR, 1) == 1


def test_one_address_creates_a_burst_then_topics_at_its_rate() -> None:
    clock = Clock()
    limits = TopicCreationLimits(clock.seconds, address_rate_max=20)
    assert created(limits, ATTACKER, 100_000) == BURST_S * 20
    for _ in range(600):
        clock.advance(1)
        assert created(limits, ATTACKER, 3000) in (19, 20, 21)


def test_another_address_is_not_affected() -> None:
    limits = TopicCreationLimits(Clock().seconds, address_rate_max=20)
    created(limits, ATTACKER, 100_000)
    assert created(limits, NEIGHBOR, 500) == 500


def test_addresses_are_forgotten_when_their_burst_is_available_again() -> None:
    clock = Clock()
    limits = TopicCreationLimits(clock.seconds)
    for number in range(10_000):
        created(limits, f"host-{number}", 1)
        clock.advance(0.01)
    clock.advance(BURST_S)
    for number in range(20):
        created(limits, f"later-{number}", 1)
        clock.advance(1)
    assert len(limits._full_at_s) < 20
