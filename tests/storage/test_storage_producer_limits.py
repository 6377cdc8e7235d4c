"""Limits on the number of producers whose state is kept in one log and in all logs of a broker."""

from __future__ import annotations

from pathlib import Path

import pytest
from storage_world import batch, idempotent, open_log, read_bytes, values_of

from kreplica.errors import ErrorCode, KafkaError
from kreplica.storage.log.appending import append_as_follower, append_as_leader
from kreplica.storage.log.log import Log
from kreplica.storage.producers.producer_limits import ProducerLimits


def limited_log(path: Path, limits: ProducerLimits) -> Log:
    log = open_log(path, producer_expiration_ms=1000)
    log.producers.set_limits(limits)
    limits.logs = [*limits.logs, log]
    return log


def append(log: Log, producer_id: int, sequence: int = 0) -> None:
    append_as_leader(log, idempotent(sequence, 1, producer_id=producer_id), 0, now_ms=1)


def rejection_of(log: Log, producer_id: int, sequence: int = 0) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        append(log, producer_id, sequence)
    return caught.value.code


def test_producers_of_a_log_are_bounded(tmp_path: Path) -> None:
    """A new producer is rejected with a retriable error; known producers, plain batches and other logs are not."""
    limits = ProducerLimits(log_max=3)
    log, other = limited_log(tmp_path / "t-0", limits), limited_log(tmp_path / "t-1", limits)
    for producer_id in range(3):
        append(log, producer_id)
    assert rejection_of(log, 3) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert ErrorCode.NOT_ENOUGH_REPLICAS.retriable
    assert limits.rejected == 1
    append(log, 2, 1)
    append_as_leader(log, batch("plain"), 0, now_ms=1)
    append(other, 3)
    assert log.log_end_offset == 5


def test_a_refused_producer_keeps_its_order(tmp_path: Path) -> None:
    """Even after another producer has expired, its second batch is rejected until the first is sent again."""
    log = limited_log(tmp_path / "t-0", ProducerLimits(log_max=1))
    append(log, 1)
    assert rejection_of(log, 2, 0) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert log.producers.expire(10_000) == 1
    assert rejection_of(log, 2, 1) is ErrorCode.NOT_ENOUGH_REPLICAS
    append(log, 2, 0)
    append(log, 2, 1)


def test_expired_producers_make_room(tmp_path: Path) -> None:
    """Expired producers no longer count towards the broker's total either."""
    limits = ProducerLimits(broker_max=2)
    log = limited_log(tmp_path / "t-0", limits)
    for producer_id in range(2):
        append(log, producer_id)
    assert rejection_of(log, 2) is ErrorCode.NOT_ENOUGH_REPLICAS
    log.producers.expire(10_000)
    append(log, 2)
    assert limits.count == 1


def test_the_broker_is_bounded_and_each_log_has_its_share(tmp_path: Path) -> None:
    """A log that has used up the total accepts no new producers; another log accepts as many as its share."""
    limits = ProducerLimits(broker_max=8)
    greedy, modest = limited_log(tmp_path / "t-0", limits), limited_log(tmp_path / "t-1", limits)
    for producer_id in range(8):
        append(greedy, producer_id)
    assert rejection_of(greedy, 8) is ErrorCode.NOT_ENOUGH_REPLICAS
    for producer_id in range(4):
        append(modest, producer_id)
    assert rejection_of(modest, 4) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert (limits.count, limits.rejected) == (12, 2)


def test_a_deleted_log_makes_room(tmp_path: Path) -> None:
    """The producers of a deleted log are no longer counted."""
    limits = ProducerLimits(broker_max=4)
    deleted, log = limited_log(tmp_path / "t-0", limits), limited_log(tmp_path / "t-1", limits)
    for producer_id in range(2):
        append(deleted, producer_id)
        append(log, producer_id)
    assert rejection_of(log, 2) is ErrorCode.NOT_ENOUGH_REPLICAS
    limits.logs = [log]
    append(log, 2)


def test_a_follower_takes_what_the_leader_has(tmp_path: Path) -> None:
    """Otherwise its state would differ from the leader's."""
    leader = limited_log(tmp_path / "t-0", ProducerLimits())
    follower = limited_log(tmp_path / "t-1", ProducerLimits(log_max=1, broker_max=1))
    for producer_id in range(3):
        append(leader, producer_id)
    append_as_follower(follower, read_bytes(leader), now_ms=1)
    assert len(follower.producers) == 3
    assert values_of(follower) == values_of(leader)
    assert rejection_of(follower, 3) is ErrorCode.NOT_ENOUGH_REPLICAS
