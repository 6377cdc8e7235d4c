"""A follower's fetchers and a scripted leader."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from leading_scene import sync
from scripted_leader import LEADER, World, batches, epochs_of, forgotten, named, row
from twisted.internet.defer import Deferred

from kreplica.errors import ErrorCode
from kreplica.model import Endpoint, TopicPartition
from kreplica.replication.follower.fetcher_config import FetcherConfig
from kreplica.replication.throttle import ReplicationThrottle
from kreplica.storage.log.appending import append_as_follower

BACKOFF_S = FetcherConfig().backoff_s_max


def test_fetched_batches_are_appended() -> None:
    """The next fetch requests the following offset, which acknowledges everything below it."""
    world = World()
    partition = world.partition(records=2)
    link = world.accept()
    first = link.fetch()
    assert first["replica_state"] == {"replica_id": 1, "replica_epoch": 5}
    (topic,) = first["topics"]
    (asked,) = topic["partitions"]
    assert topic["topic_id"] == partition.topic_id
    assert (asked["fetch_offset"], asked["last_fetched_epoch"], asked["current_leader_epoch"]) == (2, 1, 2)
    link.answer(row(partition, records=batches(2, 3, epoch=2), high_watermark=4))
    assert epochs_of(partition.log) == [(0, 1), (1, 1), (2, 2), (3, 2), (4, 2)]
    assert partition.high_watermark == 4
    second = link.fetch()
    assert (second["session_id"], second["session_epoch"], named(second)) == (77, 1, [(0, 5)])
    link.answer(row(partition, high_watermark=5))
    assert partition.high_watermark == 5
    assert named(link.fetch()) == [], "nothing changed: the fetch has no partitions"


def test_high_watermark_is_limited_by_the_own_end() -> None:
    """The leader's high watermark may be higher than this broker's log end offset."""
    world = World()
    partition = world.partition(records=2)
    link = world.accept()
    link.fetch()
    link.answer(row(partition, records=batches(2, 1, epoch=2), high_watermark=90))
    assert partition.high_watermark == 3


def test_diverging_history_is_truncated() -> None:
    """Each response truncates records that the leader does not have; the next fetch starts there, with the last
    remaining epoch."""
    world = World()
    partition = world.partition(records=3, epoch=1)
    append_as_follower(partition.log, batches(3, 2, epoch=3), now_ms=0)
    world.follow(partition, leader_epoch=7)
    link = world.accept()
    (asked,) = link.fetch()["topics"][0]["partitions"]
    assert (asked["fetch_offset"], asked["last_fetched_epoch"]) == (5, 3)
    link.answer(row(partition, diverging=(2, 4), high_watermark=3))
    (asked,) = link.fetch()["topics"][0]["partitions"]
    assert (asked["fetch_offset"], asked["last_fetched_epoch"]) == (3, 1)
    link.answer(row(partition, diverging=(1, 2), high_watermark=2))
    (asked,) = link.fetch()["topics"][0]["partitions"]
    assert (asked["fetch_offset"], asked["last_fetched_epoch"]) == (2, 1)
    link.answer(row(partition, records=batches(2, 1, epoch=6)))
    assert epochs_of(partition.log) == [(0, 1), (1, 1), (2, 6)]


def test_epoch_without_records_is_forgotten_by_a_follower() -> None:
    """The former leader wrote nothing; the next leader's records from earlier epochs do not belong to its epoch."""
    world = World()
    partition = world.partition(records=3, epoch=1)
    partition.log.begin_leader_epoch(5)
    world.follow(partition, leader_epoch=6)
    link = world.accept()
    (asked,) = link.fetch()["topics"][0]["partitions"]
    assert asked["last_fetched_epoch"] == 1
    link.answer(row(partition, records=batches(3, 2, epoch=4) + batches(5, 1, epoch=6)))
    assert [tuple(entry) for entry in partition.log.leader_epochs.entries] == [(1, 0), (4, 3), (6, 5)]


def test_truncation_below_the_high_watermark_is_logged_as_an_error(caplog_events: list[dict[str, object]]) -> None:
    """Committed records are lost only after an unclean election."""
    world = World()
    partition = world.partition(records=5, high_watermark=4)
    link = world.accept()
    link.fetch()
    link.answer(row(partition, diverging=(1, 2)))
    assert partition.log.log_end_offset == partition.high_watermark == 2
    (event,) = [event for event in caplog_events if "committed records" in str(event["log_format"])]
    assert (event["end"], event["offset"], event["high_watermark"]) == (5, 2, 4)


@pytest.mark.parametrize(
    ("leader_has", "ends_at", "starts_at"), [((0, 3), 3, 0), ((8, 9), 8, 8), ((5, 5), 5, 0), ((0, 0), 0, 0)]
)
def test_offset_out_of_the_leaders_range(leader_has: tuple[int, int], ends_at: int, starts_at: int) -> None:
    """The log is truncated to the leader's end if that is lower, and restarted at the leader's start if that is higher.
    """
    world = World()
    partition = world.partition(records=5)
    other = world.partition(number=1)
    link = world.accept()
    link.fetch()
    link.answer(row(partition, error_code=1), row(other, records=batches(0, 2, epoch=2)))
    link.answer_offsets({partition.topic_partition: leader_has})
    log = partition.log
    assert (log.log_end_offset, log.log_start_offset) == (ends_at, starts_at)
    assert other.log.log_end_offset == 2, "the others are not delayed"
    fetch = link.fetch()
    if leader_has == (5, 5):
        assert (named(fetch), forgotten(fetch)) == ([(1, 2)], [0]), "it has the offset after all: retried later"
        world.advance(BACKOFF_S)
        link.answer(row(other))
        assert named(link.fetch()) == [(0, 5)]
    else:
        assert sorted(named(fetch)) == [(0, ends_at), (1, 2)]


@pytest.mark.parametrize("code", [3, 5, 6, 9, 56, 74, 75, 78, 100, 103, 2, 9999])
def test_failing_partition_does_not_delay_others(code: int) -> None:
    """The partition is left out with increasing backoff; the others continue at once."""
    world = World()
    bad, good = world.partition(number=0), world.partition(number=1)
    link = world.accept()
    link.fetch()
    waits = []
    for attempt in range(1, 9):
        link.answer(row(bad, error_code=code), row(good, records=batches(attempt - 1, 1, epoch=2)))
        fetch = link.fetch()
        assert named(fetch) == [(1, attempt)]
        assert forgotten(fetch) == [0]
        began = world.reactor.seconds()
        while not link.waiting:
            world.advance(0.001)
        waits.append(world.reactor.seconds() - began)
        link.answer(row(good))
        assert named(link.fetch()) == [(0, 0)], "it is fetched again, next to the pending fetch"
    assert [round(wait, 2) for wait in waits] == [0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0]
    link.answer(row(bad, records=batches(0, 1, epoch=2)))
    assert bad.log.log_end_offset == 1


def test_records_damaged_in_transit_are_not_appended() -> None:
    """The records are fetched again from the damaged batch on; other partitions of the response are applied."""
    world = World()
    bad, good = world.partition(number=0), world.partition(number=1)
    link = world.accept()
    link.fetch()
    damaged = bytearray(batches(0, 2, epoch=2))
    damaged[-1] ^= 1
    link.answer(row(bad, records=bytes(damaged)), row(good, records=batches(0, 1, epoch=2)))
    assert (bad.log.log_end_offset, good.log.log_end_offset) == (1, 1)
    assert named(link.fetch()) == [(0, 1), (1, 1)]
    link.answer(row(bad, records=bytes(damaged[len(damaged) // 2 :])))
    link.fetch()
    world.advance(0.05)
    link.answer(row(good))
    assert named(link.fetch()) == [(0, 1)]
    assert bad.log.log_end_offset == 1


@pytest.mark.parametrize("records", [b"x" * 40, b"x" * 400, None])
def test_partial_batch_is_not_fetched_again_at_once(records: bytes | None) -> None:
    """A leader that always sends the same partial batch would cause a loop as fast as the network allows."""
    world = World()
    partition = world.partition(number=0)
    link = world.accept()
    link.fetch()
    sent = records if records is not None else batches(0, 1, epoch=2)[:-1]
    link.answer(row(partition, records=sent))
    assert link.waiting == 0
    world.advance(0.05)
    assert named(link.fetch()) == [(0, 0)]
    assert partition.log.log_end_offset == 0


def test_response_for_an_earlier_epoch_is_discarded() -> None:
    """The leader epoch changed during the fetch: the records may belong to a truncated history."""
    world = World()
    partition = world.partition(records=1)
    link = world.accept()
    link.fetch()
    world.follow(partition, leader_epoch=9)
    link.answer(row(partition, records=batches(1, 2, epoch=2), high_watermark=3))
    assert (partition.log.log_end_offset, partition.high_watermark) == (1, 0)
    fetch = link.fetch()
    (asked,) = fetch["topics"][0]["partitions"]
    assert (asked["fetch_offset"], asked["current_leader_epoch"]) == (1, 9)
    link.answer(row(partition, records=batches(1, 2, epoch=9)))
    assert partition.log.log_end_offset == 3


def test_response_to_an_earlier_request_is_discarded() -> None:
    """The new epoch is already fetched at the same offset when the response for the old epoch arrives."""
    world = World()
    partition = world.partition(records=1)
    link = world.accept()
    link.fetch()
    link.answer(row(partition))
    link.fetch()
    world.follow(partition, leader_epoch=9)
    world.advance()
    assert link.waiting == 1
    link.answer(row(partition, records=batches(1, 2, epoch=2), high_watermark=3))
    assert partition.log.log_end_offset == 1
    assert named(link.fetch()) == [(0, 1)]
    link.answer(row(partition, records=batches(1, 1, epoch=9)))
    assert epochs_of(partition.log) == [(0, 1), (1, 9)]


def test_response_after_an_epoch_change_is_discarded() -> None:
    """This holds even before the fetcher is notified of the change."""
    world = World()
    partition = world.partition(records=1)
    link = world.accept()
    link.fetch()
    partition.follow(partition.leadership._replace(leader_epoch=9))
    link.answer(row(partition, records=batches(1, 2, epoch=2), high_watermark=3))
    assert (partition.log.log_end_offset, partition.high_watermark) == (1, 0)


def test_batches_of_a_later_epoch_are_not_appended() -> None:
    """The leader's log was truncated and written again before it sent the response, so records in between may be
    missing."""
    world = World()
    partition = world.partition(records=1)
    link = world.accept()
    link.fetch()
    link.answer(row(partition, records=batches(1, 2, epoch=2) + batches(3, 2, epoch=3), high_watermark=5))
    assert epochs_of(partition.log) == [(0, 1), (1, 2), (2, 2)]
    assert partition.high_watermark == 3
    assert named(link.fetch()) == [(0, 3)]
    link.answer(row(partition, records=batches(3, 2, epoch=3)))
    assert partition.log.log_end_offset == 3


def test_response_for_another_offset_is_discarded() -> None:
    """The log end offset may have changed during the fetch."""
    world = World()
    partition = world.partition(records=4)
    link = world.accept()
    link.fetch()
    partition.truncate_to(2)
    link.answer(row(partition, records=batches(4, 1, epoch=2)))
    assert partition.log.log_end_offset == 2


def test_added_partition_is_fetched_during_a_pending_fetch() -> None:
    """The partition does not wait until the leader has data for the other partitions."""
    world = World()
    first = world.partition(number=0)
    link = world.accept()
    link.fetch()
    link.answer(row(first))
    assert named(link.fetch()) == []
    second = world.partition(number=1)
    third = world.partition(number=2)
    assert not link.waiting, "all partitions added in one reactor iteration are sent at once"
    world.advance()
    link.answer()
    fetch = link.fetch()
    assert (named(fetch), fetch["session_epoch"]) == ([(1, 0), (2, 0)], 2)
    world.partition(number=3)
    world.advance()
    assert link.waiting == 1
    world.partition(number=4)
    world.advance()
    assert link.waiting == 1, "at most two fetches are in flight"
    link.answer(row(second, records=batches(0, 1, epoch=2)), row(third))
    assert named(link.fetch()) == [(3, 0)]
    link.answer()
    assert sorted(named(link.fetch())) == [(1, 1), (4, 0)]


def test_records_sent_twice_are_appended_once() -> None:
    """The second of two fetches was sent before the response to the first, so both responses have the same records."""
    world = World()
    partition = world.partition()
    link = world.accept()
    link.fetch()
    link.answer(row(partition))
    link.fetch()
    world.partition(number=1)
    world.advance()
    link.answer(row(partition, records=batches(0, 2, epoch=2)))
    link.fetch()
    link.answer(row(partition, records=batches(0, 2, epoch=2)))
    assert epochs_of(partition.log) == [(0, 2), (1, 2)]
    assert named(link.fetch()) == [(0, 2)]


def test_removed_partition_is_forgotten() -> None:
    """Removing the last partition closes the connection and leaves no timer."""
    world = World()
    first, second = world.partition(number=0), world.partition(number=1)
    link = world.accept()
    link.fetch()
    world.fetchers.stop(first)
    link.answer(row(first, records=batches(0, 1, epoch=2)), row(second))
    assert first.log.log_end_offset == 0
    assert forgotten(link.fetch()) == [0]
    world.fetchers.stop(second)
    world.advance()
    assert link.closed
    link.lose()
    assert len(world.fetchers) == 0
    assert world.idle()


def test_partition_moves_to_its_new_leader() -> None:
    """The fetcher connects to the new leader; later responses of the old one are ignored."""
    world = World()
    world.endpoints[3] = Endpoint("PLAINTEXT", "other", 9093)
    partition, stays = world.partition(number=0), world.partition(number=1)
    old = world.accept()
    old.fetch()
    world.follow(partition, leader_epoch=8, leader=3)
    assert world.fetchers.leader_of(partition.topic_partition) == 3
    new = world.accept()
    assert world.connected_to == ("other", 9093)
    old.answer(row(partition, records=batches(0, 1, epoch=2)), row(stays))
    assert partition.log.log_end_offset == 0
    assert named(new.fetch()) == [(0, 0)]
    new.answer(row(partition, records=batches(0, 1, epoch=8)))
    assert partition.log.log_end_offset == 1


def test_unreachable_leader_is_retried_at_its_current_address() -> None:
    """The backoff increases; without a known address, no connection is attempted."""
    world = World()
    world.partition()
    for _ in range(12):
        world.refuse()
        assert world.connecting == 0
        world.advance(BACKOFF_S)
        assert world.connecting == 1
    del world.endpoints[LEADER]
    world.refuse()
    world.advance(10)
    assert world.connecting == 0
    world.endpoints[LEADER] = Endpoint("PLAINTEXT", "moved", 9999)
    world.advance(BACKOFF_S)
    link = world.accept()
    assert world.connected_to == ("moved", 9999)
    assert named(link.fetch()) == [(0, 0)]


def test_lost_connection_is_replaced_with_a_new_session() -> None:
    """All partitions are sent again, and the request contains the session that the leader may forget."""
    world = World()
    partition = world.partition(records=3)
    link = world.accept()
    link.fetch()
    link.answer(row(partition))
    link.fetch()
    link.lose()
    world.advance(BACKOFF_S)
    fetch = world.accept().fetch()
    assert (fetch["session_id"], fetch["session_epoch"], named(fetch)) == (77, 0, [(0, 3)])


def test_leader_that_does_not_respond_times_out() -> None:
    """A half-open connection looks like a slow leader until the timeout."""
    world = World(FetcherConfig(timeout_s=3.0, wait_ms_max=500))
    world.partition()
    link = world.accept()
    link.fetch()
    world.advance(3.4)
    assert world.connecting == 0
    world.advance(0.2 + BACKOFF_S)
    assert world.connecting == 1


@pytest.mark.parametrize("code", [70, 71, 106, 103, 100])
def test_refused_session_is_restarted(code: int) -> None:
    """The session is restarted at once the first time, and with a delay after repeated rejections."""
    world = World()
    partition = world.partition(records=1)
    link = world.accept()
    link.fetch()
    link.answer(row(partition))
    for _ in range(3):
        link.fetch()
        link.answer(error_code=code, session_id=0)
        assert world.connecting == 0
    fetch = link.fetch()
    ended = 0 if code == 70 else 77
    assert (fetch["session_id"], fetch["session_epoch"], named(fetch)) == (ended, 0, [(0, 1)])
    link.answer(error_code=code, session_id=0)
    assert link.closed
    world.advance(BACKOFF_S)
    assert world.connecting == 1


def test_leader_without_sessions_gets_full_requests() -> None:
    """Such a leader responds with session 0."""
    world = World()
    partition = world.partition()
    link = world.accept()
    link.fetch()
    for _ in range(3):
        link.answer(row(partition), session_id=0)
        assert named(link.fetch()) == [(0, 0)]


def test_new_registration_restarts_the_session() -> None:
    """Leaders identify each follower by its broker epoch."""
    world = World()
    partition = world.partition()
    link = world.accept()
    link.fetch()
    link.answer(row(partition))
    link.fetch()
    world.broker_epoch = 6
    link.answer()
    fetch = link.fetch()
    assert fetch["replica_state"] == {"replica_id": 1, "replica_epoch": 6}
    assert (fetch["session_epoch"], named(fetch)) == (0, [(0, 0)])


def test_unsynced_records_are_not_acknowledged() -> None:
    """With ``flush.messages=1``, the next fetch of a partition waits for the sync; other partitions' fetches do not."""
    world = World()
    safe, fast = world.partition(number=0, flush_messages=1), world.partition(number=1)
    link = world.accept()
    link.fetch()
    link.answer(row(safe, records=batches(0, 2, epoch=2)), row(fast, records=batches(0, 1, epoch=2)))
    fetch = link.fetch()
    assert (named(fetch), forgotten(fetch)) == ([(1, 1)], [0])
    sync(safe.log)
    safe.log_synced()
    world.end_turn()
    world.advance()
    link.answer(row(fast))
    assert named(link.fetch()) == [(0, 2)], "the partition is synced and fetched without waiting for the others"
    assert not safe.watchers


@dataclass
class Throttled:
    leader_throttled_replicas: frozenset[str] = frozenset()
    follower_throttled_replicas: frozenset[str] = frozenset({"0:1"})


def test_throttled_partition_is_left_out_above_the_rate() -> None:
    """The others continue; a partition in the ISR is not throttled."""
    world = World()
    size = len(batches(0, 1, epoch=2))
    throttle = ReplicationThrottle(
        world.reactor.seconds, 1, lambda: 10**12, lambda: size, lambda _: Throttled()
    )
    world = World(throttle=throttle)
    throttle.follower.__init__(world.reactor.seconds, lambda: size)  # type: ignore[misc]
    moving, other = world.partition(number=0), world.partition(number=1)
    link = world.accept()
    link.fetch()
    link.answer(row(moving, records=batches(0, 3, epoch=2), high_watermark=9), row(other))
    fetch = link.fetch()
    assert (named(fetch), forgotten(fetch)) == ([], [0])
    world.advance(1.9)
    assert not link.waiting
    world.advance(0.2)
    link.answer(row(other))
    assert named(link.fetch()) == [(0, 3)]
    link.answer(row(moving, records=batches(3, 6, epoch=2), high_watermark=9))
    assert named(link.fetch()) == [(0, 9)], "it is in sync"


def test_three_thousand_partitions_are_added_at_once() -> None:
    """The partitions need one connection and one request."""
    world = World()
    partitions = [world.partition(number=number) for number in range(3000)]
    link = world.accept()
    assert world.connecting == 0
    assert len(named(link.fetch())) == 3000
    link.answer(*(row(partition) for partition in partitions[:10]))
    assert named(link.fetch()) == []
    for partition in partitions:
        world.fetchers.stop(partition)
    world.advance()
    link.lose()
    assert world.idle()


def test_closed_fetchers_leave_nothing() -> None:
    """This holds for fetchers that are connecting, waiting for a response, or waiting to retry."""
    for stage in range(4):
        world = World()
        partition = world.partition()
        if stage == 1:
            world.refuse()
        link = world.accept() if stage >= 2 else None
        if link is not None and stage == 3:
            link.fetch()
            link.answer(row(partition, error_code=int(ErrorCode.NOT_LEADER_OR_FOLLOWER)))
        closing = Deferred.fromCoroutine(world.fetchers.close())
        if link is not None:
            link.lose()
        world.advance()
        assert closing.called, stage
        assert len(world.fetchers) == 0
        assert world.idle(), (stage, world.reactor.getDelayedCalls())
        world.follow(partition, leader_epoch=90)
        assert world.fetchers.leader_of(TopicPartition("t", 0)) is None
