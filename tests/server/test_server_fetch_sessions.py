"""Fetch sessions, as KIP-227 has them."""

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
    """What a session watches of one."""

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
    follower: bool = False,
) -> FetchContext:
    return sessions.begin(session_id, epoch, asked, forgotten, by_id=by_id, now_s=now_s, follower=follower)


def finish(context: FetchContext, *rows: Row) -> tuple[int, list[FetchPartition]]:
    """Answer with a row for each partition that is to be read; the session, and what the answer names."""
    session_id, kept = context.finish(dict(zip(context.to_read, rows, strict=True)))
    return session_id, [wanted for wanted, _ in kept]


def settled(session: FetchSession | None, *partitions: Partition) -> None:
    """Nothing more is there of all that is pending."""
    assert session is not None
    for wanted, partition in zip(list(session.pending), partitions, strict=True):
        session.settle(wanted, partition)  # type: ignore[arg-type]


def test_without_a_session_every_partition_is_answered() -> None:
    """Session epoch -1 keeps nothing."""
    sessions = FetchSessions(random.Random(1), 10)
    session_id, kept = finish(begin(sessions, 0, -1, topics(a=[(0, 3)])), row())
    assert session_id == 0
    assert len(kept) == 1
    assert len(sessions) == 0


def test_session_answers_only_news() -> None:
    """A partition is named again when it has data, an error, another high watermark, or a nearer replica."""
    sessions = FetchSessions(random.Random(1), 10)
    session_id, kept = finish(begin(sessions, 0, 0, topics(a=[(0, 3), (1, 3)])), row(), row())
    assert session_id > 0
    assert len(kept) == 2

    def news(epoch: int, *rows: Row) -> set[int]:
        return {wanted.partition for wanted in finish(begin(sessions, session_id, epoch), *rows)[1]}

    assert news(1, row(), row()) == set()
    assert news(2, row(high_watermark=6), row()) == {0}
    assert news(3, row(high_watermark=6), row(error_code=6)) == {1}
    assert news(4, row(high_watermark=6), row(error_code=6)) == {1}
    assert news(5, row(high_watermark=6), row()) == {1}
    assert news(6, row(high_watermark=6), row(preferred_read_replica=2)) == {1}
    assert news(7, row(high_watermark=6), row(records=b"x")) == {1}


def test_session_changes_its_partitions() -> None:
    """A request adds partitions, moves positions, and forgets partitions."""
    sessions = FetchSessions(random.Random(1), 10)
    session_id, _ = finish(begin(sessions, 0, 0, topics(a=[(0, 3)])), row())
    context = begin(sessions, session_id, 1, topics(a=[(0, 9)], b=[(2, 1)]))
    assert [(w.topic, w.partition, w.fetch_offset) for w in context.to_read] == [("a", 0, 9), ("b", 2, 1)]
    context = begin(sessions, session_id, 2, (), [{"topic": "a", "partitions": [0]}])
    assert [(w.topic, w.partition) for w in context.to_read] == [("b", 2)]


def test_partition_with_data_goes_last() -> None:
    """Answers are limited: who got data waits behind those that got none."""
    sessions = FetchSessions(random.Random(1), 10)
    session_id, _ = finish(begin(sessions, 0, 0, topics(a=[(0, 0), (1, 0)])), row(records=b"x"), row())
    assert [w.partition for w in begin(sessions, session_id, 1).to_read] == [1, 0]


def test_what_had_nothing_is_read_again_when_it_changes_or_its_client_moves() -> None:
    """A fetch costs what happened since the last one, whatever the number of partitions."""
    sessions = FetchSessions(random.Random(1), 10)
    partitions = [Partition(number) for number in range(3)]
    first = begin(sessions, 0, 0, topics(a=[(0, 0), (1, 0), (2, 0)]))
    session_id, _ = finish(first, row(), row(), row())
    settled(first.session, *partitions)
    assert begin(sessions, session_id, 1).to_read == []
    partitions[1].change()
    partitions[1].change()
    assert not partitions[1].watchers, "what is to be read is not told again"
    assert [w.partition for w in begin(sessions, session_id, 2, topics(a=[(2, 7)])).to_read] == [1, 2]
    settled(first.session, partitions[1], partitions[2])
    assert begin(sessions, session_id, 3).to_read == []


def test_while_a_fetch_waits_it_is_told_of_what_it_waits_for() -> None:
    """Other changes leave everything as it is; when nobody waits, every change is told to the next fetch."""
    sessions = FetchSessions(random.Random(1), 10)
    partitions = [Partition(number) for number in range(2)]
    first = begin(sessions, 0, 0, topics(a=[(0, 0), (1, 0)]))
    session_id, _ = finish(first, row(), row())
    settled(first.session, *partitions)
    session = first.session
    assert session is not None
    told: list[int] = []
    session.on_change = lambda wanted: told.extend(one.partition for one in wanted)
    session.watch.is_awaited = lambda wanted: wanted.partition == 1
    for partition in partitions:
        partition.change()
    assert told == [1]
    assert [bool(partition.watchers) for partition in partitions] == [True, False]
    session.on_change = session.watch.is_awaited = None
    partitions[0].change()
    assert told == [1]
    assert [w.partition for w in begin(sessions, session_id, 1).to_read] == [1, 0]


def test_a_session_that_ends_watches_nothing() -> None:
    """Also a partition that is forgotten is not watched any more."""
    sessions = FetchSessions(random.Random(1), 10)
    partitions = [Partition(number) for number in range(2)]
    first = begin(sessions, 0, 0, topics(a=[(0, 0), (1, 0)]))
    session_id, _ = finish(first, row(), row())
    settled(first.session, *partitions)
    assert [bool(partition.watchers) for partition in partitions] == [True, True]
    begin(sessions, session_id, 1, (), [{"topic": "a", "partitions": [0]}])
    assert [bool(partition.watchers) for partition in partitions] == [False, True]
    begin(sessions, session_id, -1, topics(a=[(0, 3)]))
    assert not partitions[1].watchers
    assert len(sessions) == 0


def test_the_next_fetch_ends_the_one_that_waits() -> None:
    """A client that has news sends them without waiting for its answer."""
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
def test_wrong_session(session_id: int | None, epoch: int, by_id: bool, code: ErrorCode) -> None:
    """A session that is gone, an epoch out of step, and a change between names and ids are told apart."""
    sessions = FetchSessions(random.Random(1), 10)
    made, _ = finish(begin(sessions, 0, 0, topics(a=[(0, 3)])), row())
    with pytest.raises(KafkaError) as caught:
        begin(sessions, session_id or made, epoch, by_id=by_id)
    assert caught.value.code is code


def test_full_cache_answers_without_a_session_until_one_is_old() -> None:
    """A client that finds no room is served all the same; an idle session gives its place away."""
    sessions = FetchSessions(random.Random(1), 1)
    first, _ = finish(begin(sessions, 0, 0, topics(a=[(0, 3)])), row())
    assert finish(begin(sessions, 0, 0, topics(b=[(0, 3)])), row())[0] == 0
    later, _ = finish(begin(sessions, 0, 0, topics(b=[(0, 3)]), now_s=EVICTION_SECONDS), row())
    assert later not in (0, first)
    with pytest.raises(KafkaError):
        begin(sessions, first, 1)


def test_a_follower_finds_room_as_long_as_any_client_has_some() -> None:
    """A broker names thousands of partitions in each request without one; brokers do not drive each other out."""
    sessions = FetchSessions(random.Random(1), 2)
    client, _ = finish(begin(sessions, 0, 0, topics(a=[(0, 3)])), row())
    followers = [
        finish(begin(sessions, 0, 0, topics(a=[(0, 3)]), follower=True), row())[0] for _ in range(3)
    ]
    assert [bool(session_id) for session_id in followers] == [True, True, False]
    with pytest.raises(KafkaError):
        begin(sessions, client, 1)
    begin(sessions, followers[0], 1)


def test_epoch_minus_one_ends_the_session() -> None:
    """A client that goes away says so."""
    sessions = FetchSessions(random.Random(1), 10)
    session_id, _ = finish(begin(sessions, 0, 0, topics(a=[(0, 3)])), row())
    begin(sessions, session_id, -1, topics(a=[(0, 3)]))
    assert len(sessions) == 0


def test_epochs_wrap() -> None:
    """After the largest epoch comes 1: 0 would start a new session."""
    sessions = FetchSessions(random.Random(1), 10)
    context = begin(sessions, 0, 0, topics(a=[(0, 3)]))
    session_id, _ = finish(context, row())
    assert context.session is not None
    context.session.epoch = 2**31 - 1
    begin(sessions, session_id, 2**31 - 1)
    begin(sessions, session_id, 1)


def test_a_follower_is_told_again_what_it_may_have_left_out() -> None:
    """It leaves out of an answer what it has asked for anew meanwhile; what that said must not be lost to it."""
    sessions = FetchSessions(random.Random(1), 10)
    session_id, _ = finish(begin(sessions, 0, 0, topics(a=[(0, 3)]), follower=True), row())
    assert finish(begin(sessions, session_id, 1, follower=True), row(high_watermark=6))[1]
    asked_again = begin(sessions, session_id, 2, topics(a=[(0, 6)]), follower=True)
    assert finish(asked_again, row(high_watermark=6))[1], "the answer before may have been left out"
    assert not finish(begin(sessions, session_id, 3, follower=True), row(high_watermark=6))[1]


def test_partitions_of_all_sessions_are_bounded() -> None:
    """A client that opens large sessions is answered without one; a follower still gets its own; all is given back."""
    sessions = FetchSessions(random.Random(1), 1000, partitions_max=1000)
    large = topics(t=[(number, 0) for number in range(100)])
    ids = [finish(begin(sessions, 0, 0, large), *[row()] * 100)[0] for _ in range(9)]
    assert [bool(each) for each in ids] == [True] * 7 + [False] * 2
    assert (sessions.partition_count, sessions.refused) == (700, 2)
    follower = topics(t=[(number, 0) for number in range(900)])
    assert finish(begin(sessions, 0, 0, follower, follower=True), *[row()] * 900)[0]
    assert sessions.partition_count <= 1000
    assert finish(begin(sessions, 0, 0, large), *[row()] * 100)[0] == 0, "what is left is the follower's reserve"


def test_a_session_that_grows_beyond_the_bound_ends() -> None:
    """A client cannot reach by and by what it may not have at once; sessions that nobody uses make room."""
    sessions = FetchSessions(random.Random(1), 1000, partitions_max=1000)
    first = topics(t=[(number, 0) for number in range(400)])
    session_id, _ = finish(begin(sessions, 0, 0, first), *[row()] * 400)
    assert finish(begin(sessions, 0, 0, topics(t=[(0, 0)])), row())[0]
    with pytest.raises(KafkaError) as refused:
        begin(sessions, session_id, 1, topics(t=[(number, 0) for number in range(400, 900)]))
    assert refused.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.partition_count == 1
    finish(begin(sessions, 0, 0, topics(t=[(number, 0) for number in range(749)])), *[row()] * 749)
    assert finish(begin(sessions, 0, 0, first), *[row()] * 400)[0] == 0
    assert finish(begin(sessions, 0, 0, first, now_s=EVICTION_SECONDS), *[row()] * 400)[0]


def test_forgotten_partitions_are_given_back() -> None:
    """The count follows what a session adds and forgets, and its end."""
    sessions = FetchSessions(random.Random(1), 10)
    session_id, _ = finish(begin(sessions, 0, 0, topics(t=[(0, 0), (1, 0), (2, 0)])), row(), row(), row())
    begin(sessions, session_id, 1, topics(t=[(3, 0)]), [{"topic": "t", "partitions": [0, 1]}])
    assert sessions.partition_count == 2
    begin(sessions, session_id, -1)
    assert sessions.partition_count == 0
