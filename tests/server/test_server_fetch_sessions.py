"""Fetch sessions (KIP-227)."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import TopicPartition
from kreplica.server.fetch.partition import NO_DIVERGENCE, FetchPartition
from kreplica.server.fetch.sessions import EVICTION_SECONDS, FetchContext, FetchSession, FetchSessions

Row = dict[str, Any]


class Partition:
    """The parts of a partition that a session uses."""

    def __init__(self, number: int) -> None:
        self.topic_partition = TopicPartition("t", number)
        self.watchers: dict[Any, None] = {}

    def change(self) -> None:
        for watcher in list(self.watchers):
            watcher.changed({self})


def topics(**partitions: list[tuple[int, int]]) -> list[Row]:
    return [
        {
            "topic": topic,
            "partitions": [{"partition": p, "fetch_offset": offset, "partition_max_bytes": 100} for p, offset in rows],
        }
        for topic, rows in partitions.items()
    ]


def row(**changes: Any) -> Row:
    unchanged = {"high_watermark": 5, "log_start_offset": 0, "error_code": 0, "records": b""}
    return unchanged | {"diverging_epoch": NO_DIVERGENCE, "preferred_read_replica": -1} | changes


def begin(
    sessions: FetchSessions,
    session_id: int,
    epoch: int,
    asked: list[Row] | tuple[()] = (),
    forgotten: list[Row] | tuple[()] = (),
    now_s: float = 0.0,
    by_id: bool = False,
    is_follower: bool = False,
) -> FetchContext:
    return sessions.begin(session_id, epoch, asked, forgotten, by_id=by_id, now_s=now_s, is_follower=is_follower)


def finish(context: FetchContext, *rows: Row) -> tuple[int, list[FetchPartition]]:
    """Respond with a row for each partition to read; return the session ID and the partitions in the response."""
    session_id, kept = context.finish(dict(zip(context.to_read, rows, strict=True)))
    return session_id, [wanted for wanted, _ in kept]


def read_pending_partitions(session: FetchSession | None, *partitions: Partition) -> None:
    """Read all pending partitions."""
    assert session is not None
    for wanted, partition in zip(list(session.pending), partitions, strict=True):
        session.settle(wanted, partition)  # type: ignore[arg-type]


def test_every_partition_is_answered_without_a_session() -> None:
    """Session epoch -1 opens no session."""
    sessions = FetchSessions(random.Random(1), 10)
    session_id, kept = finish(begin(sessions, 0, -1, topics(a=[(0, 3)])), row())
    assert session_id == 0
    assert len(kept) == 1
    assert len(sessions) == 0


def test_session_returns_changed_partitions_only() -> None:
    """A partition is included again if it has data, an error, a new high watermark, or a closer replica."""
    sessions = FetchSessions(random.Random(1), 10)
    session_id, kept = finish(begin(sessions, 0, 0, topics(a=[(0, 3), (1, 3)])), row(), row())
    assert session_id > 0
    assert len(kept) == 2

    def changed_partitions(epoch: int, *rows: Row) -> set[int]:
        return {wanted.partition for wanted in finish(begin(sessions, session_id, epoch), *rows)[1]}

    assert changed_partitions(1, row(), row()) == set()
    assert changed_partitions(2, row(high_watermark=6), row()) == {0}
    assert changed_partitions(3, row(high_watermark=6), row(error_code=6)) == {1}
    assert changed_partitions(4, row(high_watermark=6), row(error_code=6)) == {1}
    assert changed_partitions(5, row(high_watermark=6), row()) == {1}
    assert changed_partitions(6, row(high_watermark=6), row(preferred_read_replica=2)) == {1}
    assert changed_partitions(7, row(high_watermark=6), row(records=b"x")) == {1}


def test_session_changes_its_partitions() -> None:
    """A request adds partitions, changes fetch offsets, and removes partitions."""
    sessions = FetchSessions(random.Random(1), 10)
    session_id, _ = finish(begin(sessions, 0, 0, topics(a=[(0, 3)])), row())
    context = begin(sessions, session_id, 1, topics(a=[(0, 9)], b=[(2, 1)]))
    assert [(w.topic, w.partition, w.fetch_offset) for w in context.to_read] == [("a", 0, 9), ("b", 2, 1)]
    context = begin(sessions, session_id, 2, (), [{"topic": "a", "partitions": [0]}])
    assert [(w.topic, w.partition) for w in context.to_read] == [("b", 2)]


def test_partition_with_data_goes_last() -> None:
    """Since responses are limited, partitions that returned data are moved to the end."""
    sessions = FetchSessions(random.Random(1), 10)
    session_id, _ = finish(begin(sessions, 0, 0, topics(a=[(0, 0), (1, 0)])), row(records=b"x"), row())
    assert [w.partition for w in begin(sessions, session_id, 1).to_read] == [1, 0]


def test_partition_without_data_is_read_again_when_it_or_its_offset_changes() -> None:
    """The cost of a fetch depends on the changes since the last one, not on the number of partitions."""
    sessions = FetchSessions(random.Random(1), 10)
    partitions = [Partition(number) for number in range(3)]
    first = begin(sessions, 0, 0, topics(a=[(0, 0), (1, 0), (2, 0)]))
    session_id, _ = finish(first, row(), row(), row())
    read_pending_partitions(first.session, *partitions)
    assert begin(sessions, session_id, 1).to_read == []
    partitions[1].change()
    partitions[1].change()
    assert not partitions[1].watchers, "a partition that will be read causes no further notification"
    assert [w.partition for w in begin(sessions, session_id, 2, topics(a=[(2, 7)])).to_read] == [1, 2]
    read_pending_partitions(first.session, partitions[1], partitions[2])
    assert begin(sessions, session_id, 3).to_read == []


def test_pending_fetch_is_notified_of_awaited_partitions_only() -> None:
    """Other partitions keep their watchers; without a pending fetch every change is kept for the next one."""
    sessions = FetchSessions(random.Random(1), 10)
    partitions = [Partition(number) for number in range(2)]
    first = begin(sessions, 0, 0, topics(a=[(0, 0), (1, 0)]))
    session_id, _ = finish(first, row(), row())
    read_pending_partitions(first.session, *partitions)
    session = first.session
    assert session is not None
    notified: list[int] = []
    session.on_change = lambda wanted: notified.extend(one.partition for one in wanted)
    session.watch.is_awaited = lambda wanted: wanted.partition == 1
    for partition in partitions:
        partition.change()
    assert notified == [1]
    assert [bool(partition.watchers) for partition in partitions] == [True, False]
    session.on_change = session.watch.is_awaited = None
    partitions[0].change()
    assert notified == [1]
    assert [w.partition for w in begin(sessions, session_id, 1).to_read] == [1, 0]


def test_ended_session_watches_nothing() -> None:
    """A removed partition is no longer watched either."""
    sessions = FetchSessions(random.Random(1), 10)
    partitions = [Partition(number) for number in range(2)]
    first = begin(sessions, 0, 0, topics(a=[(0, 0), (1, 0)]))
    session_id, _ = finish(first, row(), row())
    read_pending_partitions(first.session, *partitions)
    assert [bool(partition.watchers) for partition in partitions] == [True, True]
    begin(sessions, session_id, 1, (), [{"topic": "a", "partitions": [0]}])
    assert [bool(partition.watchers) for partition in partitions] == [False, True]
    begin(sessions, session_id, -1, topics(a=[(0, 3)]))
    assert not partitions[1].watchers
    assert len(sessions) == 0


def test_next_fetch_ends_the_pending_one() -> None:
    sessions = FetchSessions(random.Random(1), 10)
    first = begin(sessions, 0, 0, topics(a=[(0, 0)]))
    session_id, _ = finish(first, row())
    ended = []
    assert first.session is not None
    first.session.supersede = lambda: ended.append(True)
    begin(sessions, session_id, 1)
    assert ended == [True]


@pytest.mark.parametrize(
    ("session_id", "epoch", "by_id", "code"),
    [
        (999, 1, False, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (None, 7, False, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (None, 1, True, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ],
)
def test_errors_of_invalid_sessions(session_id: int | None, epoch: int, by_id: bool, code: ErrorCode) -> None:
    """An unknown session, a wrong epoch, and a change between names and IDs have different errors."""
    sessions = FetchSessions(random.Random(1), 10)
    made, _ = finish(begin(sessions, 0, 0, topics(a=[(0, 3)])), row())
    with pytest.raises(KafkaError) as caught:
        begin(sessions, session_id or made, epoch, by_id=by_id)
    assert caught.value.code is code


def test_full_cache_answers_without_a_session_until_one_is_idle() -> None:
    """A client for which there is no session is served without one; an idle session is evicted."""
    sessions = FetchSessions(random.Random(1), 1)
    first, _ = finish(begin(sessions, 0, 0, topics(a=[(0, 3)])), row())
    assert finish(begin(sessions, 0, 0, topics(b=[(0, 3)])), row())[0] == 0
    later, _ = finish(begin(sessions, 0, 0, topics(b=[(0, 3)]), now_s=EVICTION_SECONDS), row())
    assert later not in (0, first)
    with pytest.raises(KafkaError):
        begin(sessions, first, 1)


def test_followers_have_reserved_sessions() -> None:
    """Without a session, a follower would send thousands of partitions in each request; followers do not evict each
    other."""
    sessions = FetchSessions(random.Random(1), 2)
    client, _ = finish(begin(sessions, 0, 0, topics(a=[(0, 3)])), row())
    followers = [
        finish(begin(sessions, 0, 0, topics(a=[(0, 3)]), is_follower=True), row())[0] for _ in range(3)
    ]
    assert [bool(session_id) for session_id in followers] == [True, True, False]
    with pytest.raises(KafkaError):
        begin(sessions, client, 1)
    begin(sessions, followers[0], 1)


def test_epoch_minus_one_ends_the_session() -> None:
    sessions = FetchSessions(random.Random(1), 10)
    session_id, _ = finish(begin(sessions, 0, 0, topics(a=[(0, 3)])), row())
    begin(sessions, session_id, -1, topics(a=[(0, 3)]))
    assert len(sessions) == 0


def test_epochs_wrap_around_to_1() -> None:
    """Epoch 0 would start a new session."""
    sessions = FetchSessions(random.Random(1), 10)
    context = begin(sessions, 0, 0, topics(a=[(0, 3)]))
    session_id, _ = finish(context, row())
    assert context.session is not None
    context.session.epoch = 2**31 - 1
    begin(sessions, session_id, 2**31 - 1)
    begin(sessions, session_id, 1)


def test_follower_gets_changes_again_after_a_superseded_fetch() -> None:
    """The follower ignores response rows for partitions that it has changed in the session since; their changes must
    not be lost."""
    sessions = FetchSessions(random.Random(1), 10)
    session_id, _ = finish(begin(sessions, 0, 0, topics(a=[(0, 3)]), is_follower=True), row())
    assert finish(begin(sessions, session_id, 1, is_follower=True), row(high_watermark=6))[1]
    asked_again = begin(sessions, session_id, 2, topics(a=[(0, 6)]), is_follower=True)
    assert finish(asked_again, row(high_watermark=6))[1], "the row in the previous response may have been ignored"
    assert not finish(begin(sessions, session_id, 3, is_follower=True), row(high_watermark=6))[1]


def test_partitions_of_all_sessions_are_bounded() -> None:
    """A client with too many partitions is served without a session; a follower still gets one; ended sessions free
    their partitions."""
    sessions = FetchSessions(random.Random(1), 1000, partitions_max=1000)
    large = topics(t=[(number, 0) for number in range(100)])
    ids = [finish(begin(sessions, 0, 0, large), *[row()] * 100)[0] for _ in range(9)]
    assert [bool(each) for each in ids] == [True] * 7 + [False] * 2
    assert (sessions.partition_count, sessions.rejected) == (700, 2)
    follower = topics(t=[(number, 0) for number in range(900)])
    assert finish(begin(sessions, 0, 0, follower, is_follower=True), *[row()] * 900)[0]
    assert sessions.partition_count <= 1000
    assert finish(begin(sessions, 0, 0, large), *[row()] * 100)[0] == 0, "only the reserve for followers remains"


def test_session_that_grows_beyond_the_limit_ends() -> None:
    """A client cannot exceed the limit in steps; idle sessions are evicted."""
    sessions = FetchSessions(random.Random(1), 1000, partitions_max=1000)
    first = topics(t=[(number, 0) for number in range(400)])
    session_id, _ = finish(begin(sessions, 0, 0, first), *[row()] * 400)
    assert finish(begin(sessions, 0, 0, topics(t=[(0, 0)])), row())[0]
    with pytest.raises(KafkaError) as rejected:
        begin(sessions, session_id, 1, topics(t=[(number, 0) for number in range(400, 900)]))
    assert rejected.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.partition_count == 1
    finish(begin(sessions, 0, 0, topics(t=[(number, 0) for number in range(749)])), *[row()] * 749)
    assert finish(begin(sessions, 0, 0, first), *[row()] * 400)[0] == 0
    assert finish(begin(sessions, 0, 0, first, now_s=EVICTION_SECONDS), *[row()] * 400)[0]


def test_partition_count_follows_additions_removals_and_the_end() -> None:
    sessions = FetchSessions(random.Random(1), 10)
    session_id, _ = finish(begin(sessions, 0, 0, topics(t=[(0, 0), (1, 0), (2, 0)])), row(), row(), row())
    begin(sessions, session_id, 1, topics(t=[(3, 0)]), [{"topic": "t", "partitions": [0, 1]}])
    assert sessions.partition_count == 2
    begin(sessions, session_id, -1)
    assert sessions.partition_count == 0
