"""Fetch sessions, as KIP-227 has them."""

import random

import pytest

from kreplica.errors import ErrorCode, KafkaError
from kreplica.server.fetch_sessions import EVICTION_SECONDS, NO_DIVERGENCE, FetchSessions


def topics(**partitions):
    return [
        {
            "topic": topic,
            "partitions": [{"partition": p, "fetch_offset": offset, "partition_max_bytes": 100} for p, offset in rows],
        }
        for topic, rows in partitions.items()
    ]


def row(**changes):
    unchanged = {"high_watermark": 5, "log_start_offset": 0, "error_code": 0, "records": b""}
    return unchanged | {"diverging_epoch": NO_DIVERGENCE} | changes


def begin(sessions, session_id, epoch, asked=(), forgotten=(), now_s=0.0, by_id=False):
    return sessions.begin(session_id, epoch, asked, forgotten, by_id=by_id, now_s=now_s)


def test_without_a_session_every_partition_is_answered():
    """Session epoch -1 keeps nothing."""
    sessions = FetchSessions(random.Random(1), 10)
    context = begin(sessions, 0, -1, topics(a=[(0, 3)]))
    session_id, kept = context.finish([row()])
    assert session_id == 0
    assert len(kept) == 1
    assert len(sessions) == 0


def test_session_answers_only_news():
    """After the first answer a partition is named when it has data, an error, or another high watermark."""
    sessions = FetchSessions(random.Random(1), 10)
    session_id, kept = begin(sessions, 0, 0, topics(a=[(0, 3), (1, 3)])).finish([row(), row()])
    assert session_id > 0
    assert len(kept) == 2

    def news(epoch, *rows):
        context = begin(sessions, session_id, epoch)
        return {wanted.partition for wanted, _ in context.finish(list(rows))[1]}

    assert news(1, row(), row()) == set()
    assert news(2, row(high_watermark=6), row()) == {0}
    assert news(3, row(high_watermark=6), row(error_code=6)) == {1}
    assert news(4, row(high_watermark=6), row(error_code=6)) == {1}
    assert news(5, row(high_watermark=6), row()) == {1}
    assert news(6, row(high_watermark=6), row(records=b"x")) == {1}


def test_session_changes_its_partitions():
    """A request adds partitions, moves positions, and forgets partitions."""
    sessions = FetchSessions(random.Random(1), 10)
    session_id, _ = begin(sessions, 0, 0, topics(a=[(0, 3)])).finish([row()])
    context = begin(sessions, session_id, 1, topics(a=[(0, 9)], b=[(2, 1)]))
    assert [(w.topic, w.partition, w.fetch_offset) for w in context.wanted] == [("a", 0, 9), ("b", 2, 1)]
    context = begin(sessions, session_id, 2, (), [{"topic": "a", "partitions": [0]}])
    assert [(w.topic, w.partition) for w in context.wanted] == [("b", 2)]


def test_partition_with_data_goes_last():
    """Answers are limited: who got data waits behind those that got none."""
    sessions = FetchSessions(random.Random(1), 10)
    session_id, _ = begin(sessions, 0, 0, topics(a=[(0, 0), (1, 0)])).finish([row(records=b"x"), row()])
    assert [w.partition for w in begin(sessions, session_id, 1).wanted] == [1, 0]


@pytest.mark.parametrize(
    ("session_id", "epoch", "by_id", "code"),
    [
        (999, 1, False, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (None, 7, False, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (None, 1, True, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ],
)
def test_wrong_session(session_id, epoch, by_id, code):
    """A session that is gone, an epoch out of step, and a change between names and ids are told apart."""
    sessions = FetchSessions(random.Random(1), 10)
    made, _ = begin(sessions, 0, 0, topics(a=[(0, 3)])).finish([row()])
    with pytest.raises(KafkaError) as caught:
        begin(sessions, session_id or made, epoch, by_id=by_id)
    assert caught.value.code is code


def test_full_cache_answers_without_a_session_until_one_is_old():
    """A client that finds no room is served all the same; an idle session gives its place away."""
    sessions = FetchSessions(random.Random(1), 1)
    first, _ = begin(sessions, 0, 0, topics(a=[(0, 3)])).finish([row()])
    assert begin(sessions, 0, 0, topics(b=[(0, 3)])).finish([row()])[0] == 0
    later, _ = begin(sessions, 0, 0, topics(b=[(0, 3)]), now_s=EVICTION_SECONDS).finish([row()])
    assert later not in (0, first)
    with pytest.raises(KafkaError):
        begin(sessions, first, 1)


def test_epoch_minus_one_ends_the_session():
    """A client that goes away says so."""
    sessions = FetchSessions(random.Random(1), 10)
    session_id, _ = begin(sessions, 0, 0, topics(a=[(0, 3)])).finish([row()])
    begin(sessions, session_id, -1, topics(a=[(0, 3)]))
    assert len(sessions) == 0


def test_epochs_wrap():
    """After the largest epoch comes 1: 0 would start a new session."""
    sessions = FetchSessions(random.Random(1), 10)
    session_id, _ = begin(sessions, 0, 0, topics(a=[(0, 3)])).finish([row()])
    sessions._sessions[session_id].epoch = 2**31 - 1
    begin(sessions, session_id, 2**31 - 1)
    begin(sessions, session_id, 1)
