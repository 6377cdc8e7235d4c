"""A follower's requests are checked against the broker's own fetch sessions."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

from kreplica.model import ZERO_UUID, TopicPartition
from kreplica.replication.follower.fetch_session import FetchSession
from kreplica.server.fetch.sessions import FetchSessions

Row = dict[str, Any]
ID = UUID(int=7)


class Asked:
    def __init__(self, topic: str, partition: int = 0, topic_id: UUID = ID) -> None:
        self.key = TopicPartition(topic, partition)
        self.topic_id = topic_id
        self.last_request_number = -1
        self.offset = 0

    def request_row(self) -> Row:
        return {"partition": self.key.partition, "fetch_offset": self.offset, "partition_max_bytes": 1}


def named(body: Row) -> tuple[list[tuple[str, int, int]], list[tuple[str, list[int]]]]:
    """Return the (topic, partition, offset) of each row in a request, and the partitions that it forgets."""
    rows = [(t["topic"], r["partition"], r["fetch_offset"]) for t in body["topics"] for r in t["partitions"]]
    return rows, [(t["topic"], t["partitions"]) for t in body["forgotten_topics_data"]]


def established(*asked: Asked) -> FetchSession:
    session = FetchSession()
    for one in asked:
        session.request(one)
    session.next_request(17)
    session.response_received(99)
    return session


def test_later_requests_contain_changes_only() -> None:
    """Changed, added and removed partitions are sent; without changes, none are."""
    a, b = Asked("t", 0), Asked("t", 1)
    session = FetchSession()
    session.request(a)
    session.request(b)
    first = session.next_request(17).fields(by_id=True)
    assert (first["session_id"], first["session_epoch"]) == (0, 0)
    assert named(first) == ([("t", 0, 0), ("t", 1, 0)], [])
    session.response_received(99)
    second = session.next_request(17).fields(by_id=True)
    assert (second["session_id"], second["session_epoch"]) == (99, 1)
    assert named(second) == ([], [])
    a.offset = 5
    session.request(a)
    session.leave_out(b.key)
    c = Asked("u", 3, UUID(int=8))
    session.request(c)
    assert session.has_unsent_changes
    third = session.next_request(17).fields(by_id=True)
    assert not session.has_unsent_changes
    assert named(third) == ([("t", 0, 5), ("u", 3, 0)], [("t", [1])])
    assert (a.last_request_number, b.last_request_number, c.last_request_number) == (3, 1, 3)


def test_partition_added_and_removed_between_two_requests() -> None:
    """The partition is never sent to the leader; one that is removed and added again is sent again."""
    a, b = Asked("t", 0), Asked("t", 1)
    session = established(a)
    session.request(b)
    session.leave_out(b.key)
    session.leave_out(a.key)
    session.request(a)
    assert named(session.next_request(17).fields(by_id=True)) == ([("t", 0, 0)], [])


def test_recreated_topic_replaces_the_old_one() -> None:
    """The topic ID differs, so the old one is forgotten."""
    session = established(Asked("t"))
    session.request(Asked("t", topic_id=UUID(int=8)))
    body = session.next_request(17).fields(by_id=True)
    assert [t["topic_id"] for t in body["topics"]] == [UUID(int=8)]
    assert [t["topic_id"] for t in body["forgotten_topics_data"]] == [ID]


def test_topic_without_an_id_makes_all_identified_by_name() -> None:
    """Versions from 13 on have no names, and a session uses either names or IDs, so a new session starts."""
    session = established(Asked("t"))
    old = Asked("old", topic_id=ZERO_UUID)
    session.request(old)
    assert session.version(17) == 12
    body = session.next_request(12).fields(by_id=False)
    assert (body["session_id"], body["session_epoch"]) == (99, 0), "session 99 is ended"
    assert {topic["topic"] for topic in body["topics"]} == {"t", "old"}
    session.leave_out(old.key)
    assert session.version(17) == 17


def test_leader_without_sessions_gets_full_requests() -> None:
    """Such a leader responds with session 0."""
    session = FetchSession()
    session.request(Asked("t"))
    for _ in range(3):
        assert named(session.next_request(17).fields(by_id=True)) == ([("t", 0, 0)], [])
        session.response_received(0)
        assert not session.is_established


def test_both_sides_agree_on_the_wanted_partitions() -> None:
    """After any additions, moves, removals and lost messages, the broker's session has the follower's partitions."""
    rng = random.Random(5)
    for _ in range(30):
        server, client = FetchSessions(random.Random(1), 10), FetchSession()
        wanted: dict[TopicPartition, Asked] = {}
        for _ in range(40):
            for _ in range(rng.randrange(6)):
                topic = rng.choice("ab")
                asked = Asked(topic, rng.randrange(4), UUID(int=ord(topic) * 10 + rng.randrange(2)))
                if rng.random() < 0.4:
                    wanted.pop(asked.key, None)
                    client.leave_out(asked.key)
                else:
                    asked.offset = rng.randrange(100)
                    wanted[asked.key] = asked
                    client.request(asked)
            if rng.random() < 0.1:
                client.reset()
            if not wanted:
                continue
            body = client.next_request(17).fields(by_id=True)
            context = server.begin(
                body["session_id"],
                body["session_epoch"],
                [{**t, "topic": None} for t in body["topics"]],
                [{**t, "topic": None} for t in body["forgotten_topics_data"]],
                by_id=True,
                now_s=0.0,
            )
            session = context.session
            assert session is not None
            assert len(server) == 1, "the previous session is ended"
            client.response_received(session.session_id)
            held = {(one.topic_id, one.partition, one.fetch_offset) for one in session.partitions.values()}
            assert held == {(one.topic_id, one.key.partition, one.offset) for one in wanted.values()}
