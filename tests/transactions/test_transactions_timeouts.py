"""Abort of long transactions and expiry of unused transactional IDs."""

from __future__ import annotations

import pytest
from transactions_scene import ID, P0, P1, E, Scene

from kreplica.errors import KafkaError
from kreplica.transactions import EndRequest, TransactionsConfig

DAY_S = 86_400.0


def test_long_transaction_is_aborted():
    """A transaction that exceeds its timeout is aborted, and its producer is fenced."""
    scene = Scene()
    producer = scene.begin(timeout_ms=30_000)
    scene.add(producer, P0, P1)
    scene.settle(29.0)
    assert scene.state == "Ongoing"
    scene.settle(12.0)
    assert scene.state == "CompleteAbort"
    assert scene.markers_in(P0) == scene.markers_in(P1) == [False]
    assert scene.end(producer, commits=True).code is E.PRODUCER_FENCED
    assert scene.end(producer, commits=False, grows=True).code is E.PRODUCER_FENCED
    assert scene.begin().epoch == producer.epoch + 2
    scene.stop()


def test_timeout_starts_with_the_first_partition():
    """The timeout starts neither when the producer starts nor when another partition is added."""
    scene = Scene()
    producer = scene.begin(timeout_ms=30_000)
    scene.settle(100.0)
    scene.add(producer, P0)
    scene.settle(25.0)
    scene.add(producer, P1)
    assert scene.state == "Ongoing"
    scene.settle(16.0)
    assert scene.state == "CompleteAbort"
    scene.stop()


@pytest.mark.parametrize("jump_ms", [-1_000_000, 1_000_000])
def test_change_of_the_wall_clock_aborts_nothing(jump_ms):
    """Durations are independent of the wall clock."""
    scene = Scene()
    producer = scene.begin(timeout_ms=30_000)
    scene.add(producer, P0)
    scene.jump_ms = jump_ms
    scene.settle(25.0)
    assert scene.state == "Ongoing"
    scene.settle(16.0)
    assert scene.state == "CompleteAbort"
    scene.stop()


def test_pending_end_is_not_aborted():
    """A transaction whose end is being written does not time out, even if the log is slow."""
    scene = Scene()
    producer = scene.begin(timeout_ms=9_000)
    scene.add(producer, P0)
    scene.clock.advance(8.0)
    scene.send_end(producer, commits=True)
    scene.clock.advance(30.0)
    assert len(scene.log.waiting) == 1
    scene.settle()
    assert scene.state == "CompleteCommit"
    scene.stop()


def test_two_phase_transactions_do_not_time_out():
    """A prepared transaction has no timeout."""
    scene = Scene()
    producer = scene.begin(is_two_phase=True)
    scene.add(producer, P0)
    scene.settle(90 * DAY_S)
    assert scene.state == "Ongoing"
    scene.fail_over()
    scene.settle(30.0)
    assert scene.end(producer, commits=True, grows=True).code is E.NONE
    scene.stop()


def test_unused_transactional_id_expires():
    """The tombstone of an expired ID is in the log, so the next coordinator does not load the ID."""
    scene = Scene()
    producer = scene.begin()
    scene.settle(7 * DAY_S + 3600.0)
    with pytest.raises(KafkaError, match="TRANSACTIONAL_ID_NOT_FOUND"):
        scene.coordinator.describe(ID)
    assert scene.records[-1][1] is None
    assert scene.add(producer, P0) is E.INVALID_PRODUCER_ID_MAPPING
    scene.fail_over()
    assert scene.shard.get(ID) is None
    assert scene.begin() == (producer.producer_id + 1, 0)
    scene.stop()


def test_used_transactional_id_is_kept():
    """Each transaction restarts the expiry; an ongoing one never expires."""
    config = TransactionsConfig(expiration_ms=3_600_000, expiration_interval_ms=600_000, is_two_phase_enabled=True)
    scene = Scene(config)
    producer = scene.begin(is_two_phase=True)
    for _ in range(3):
        scene.settle(3000.0)
        scene.add(producer, P0)
        producer = scene.end(producer, commits=True, grows=True).identity
    scene.add(producer, P0)
    scene.settle(20_000.0)
    assert scene.state == "Ongoing"
    assert scene.coordinator.transactions() == [scene.transaction]
    scene.stop()


def test_expiry_counts_time_at_other_brokers():
    """The time of the last use is loaded from the log."""
    scene = Scene(TransactionsConfig(expiration_ms=3_600_000, expiration_interval_ms=600_000))
    scene.begin()
    scene.settle(3300.0)
    scene.fail_over()
    scene.settle(700.0)
    assert scene.coordinator.transactions() == []
    scene.stop()


def test_request_during_the_expiry_is_retried():
    """A request during the expiry is retried and then finds an unknown transactional ID."""
    scene = Scene(TransactionsConfig(expiration_ms=3_600_000, expiration_interval_ms=600_000))
    producer = scene.begin()
    scene.clock.advance(3600.0)
    for _ in range(10):
        scene.clock.advance(0.1)
    assert len(scene.log.waiting) == 1
    scene.send_begin()
    assert scene.answers[-1].code is E.CONCURRENT_TRANSACTIONS
    scene.coordinator.end(ID, EndRequest(producer, True, False), scene.answers.append)
    assert scene.answers[-1].code is E.CONCURRENT_TRANSACTIONS
    assert scene.begin() == (producer.producer_id + 1, 0)
    scene.stop()
