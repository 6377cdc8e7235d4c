"""The follower's side of an incremental fetch session (KIP-227): each request names only what changed.  Pure.

The leader keeps what a follower asks for; a request without a change is a few bytes for any number of partitions.  A
leader that keeps no session is asked for everything each time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, NamedTuple, Protocol, TypeVar
from uuid import UUID

from kreplica.model import ZERO_UUID, TopicPartition

NO_SESSION = 0
INITIAL_EPOCH = 0
EPOCH_MAX = 2**31 - 1

BY_ID_FROM = 13
"""From this version of Fetch on topics are named by id."""

Row = dict[str, Any]


class Asked(Protocol):
    """A partition as a request names it.

    :ivar asked_in: the number of the last request that named it; set here.
    """

    key: TopicPartition
    topic_id: UUID
    asked_in: int

    def request_row(self) -> Row:
        """Its position now, as a row of Fetch."""


AskedT = TypeVar("AskedT", bound=Asked)


class NextRequest(NamedTuple, Generic[AskedT]):
    """What a request says of its session.

    :ivar named: whose positions the leader is to be told.
    :ivar forgotten: what it is to forget, by the topic ids that it knows.
    """

    session_id: int
    session_epoch: int
    named: list[AskedT]
    forgotten: list[tuple[TopicPartition, UUID]]

    def fields(self, *, by_id: bool) -> Row:
        """The fields of Fetch."""
        rows = [(asked.key.topic, asked.topic_id, asked.request_row()) for asked in self.named]
        forgotten = [(key.topic, topic_id, key.partition) for key, topic_id in self.forgotten]
        return {
            "session_id": self.session_id,
            "session_epoch": self.session_epoch,
            "topics": _by_topic(rows, by_id=by_id),
            "forgotten_topics_data": _by_topic(forgotten, by_id=by_id),
        }


class FetchSession(Generic[AskedT]):
    """What one leader is asked for, and what it knows of that already.

    :ivar number: of the last request, counted over all sessions.
    :ivar generation: grows whenever the leader has to be told everything again.
    """

    def __init__(self) -> None:
        self.number = 0
        self.generation = 0
        self._session_id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._by_id = True
        self._wanted: dict[TopicPartition, AskedT] = {}
        self._changed: dict[TopicPartition, None] = {}
        self._known: dict[TopicPartition, UUID] = {}
        """What the leader's session holds, with the topic id that each was named by."""
        self._without_id = 0

    def __len__(self) -> int:
        return len(self._wanted)

    @property
    def has_news(self) -> bool:
        """Whether the leader has not been told everything yet."""
        return bool(self._changed)

    @property
    def established(self) -> bool:
        """Whether the leader keeps a session, so that a request costs no more than what changed."""
        return self._epoch != INITIAL_EPOCH

    def ask(self, asked: AskedT) -> None:
        """Ask for this partition from its present position; again where it moved."""
        old = self._wanted.get(asked.key)
        if old is not asked:
            if old is not None:
                self._without_id -= old.topic_id == ZERO_UUID
            self._without_id += asked.topic_id == ZERO_UUID
            self._wanted[asked.key] = asked
        self._changed[asked.key] = None

    def leave_out(self, key: TopicPartition) -> None:
        """Ask for this partition no more."""
        asked = self._wanted.pop(key, None)
        if asked is not None:
            self._without_id -= asked.topic_id == ZERO_UUID
            self._changed[key] = None

    def version(self, highest: int) -> int:
        """The version of Fetch for the next request.

        :param highest: that both sides speak.
        """
        return min(highest, BY_ID_FROM - 1) if self._without_id else highest

    def next_request(self, version: int) -> NextRequest[AskedT]:
        """What the next request says.

        :param version: the one it is sent in.
        """
        by_id = version >= BY_ID_FROM
        if by_id != self._by_id:
            self.reset()  # a session keeps to names or to ids
            self._by_id = by_id
        self.number += 1
        session_id, epoch = self._session_id, self._epoch
        known = self._known
        if epoch == INITIAL_EPOCH:
            known.clear()
            changed: Iterable[TopicPartition] = self._wanted
        else:
            self._epoch = 1 if epoch == EPOCH_MAX else epoch + 1
            changed = self._changed
        named: list[AskedT] = []
        forgotten: list[tuple[TopicPartition, UUID]] = []
        for key in changed:
            asked, known_id = self._wanted.get(key), known.pop(key, None)
            if known_id is not None and (asked is None or asked.topic_id != known_id):
                forgotten.append((key, known_id))  # or that topic was deleted, and this is another of its name
            if asked is not None:
                known[key] = asked.topic_id
                asked.asked_in = self.number
                named.append(asked)
        self._changed.clear()
        return NextRequest(session_id, epoch, named, forgotten)

    def answered(self, session_id: int) -> None:
        """The leader took the request that named everything.

        :param session_id: of the session that it keeps from now on; 0 where it keeps none.
        """
        if self._epoch != INITIAL_EPOCH:
            return
        self._session_id = session_id
        if session_id != NO_SESSION:
            self._epoch = 1

    def reset(self, *, gone: bool = False) -> None:
        """The next request names everything, and ends the session that the leader may still keep.

        :param gone: the leader does not know the session.
        """
        self.generation += 1
        self._epoch = INITIAL_EPOCH
        if gone:
            self._session_id = NO_SESSION


def _by_topic(rows: list[tuple[str, UUID, Any]], *, by_id: bool) -> list[Row]:
    """Rows grouped as requests have them: every topic once."""
    topics: dict[str | UUID, Row] = {}
    for topic, topic_id, row in rows:
        name = topic_id if by_id else topic
        group = topics.get(name)
        if group is None:
            group = topics[name] = {"topic": topic, "topic_id": topic_id, "partitions": []}
        group["partitions"].append(row)
    return list(topics.values())
