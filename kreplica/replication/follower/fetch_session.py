"""Follower's side of an incremental fetch session (KIP-227). Performs no I/O.

The leader remembers the requested partitions, so each request contains only changed ones. If the leader has no
session, every request contains all partitions.
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
"""First version of Fetch that identifies topics by ID."""

Row = dict[str, Any]


class RequestedPartition(Protocol):
    """A partition in a fetch request.

    :ivar last_request_number: number of the last request that contained it; set by the session.
    """

    key: TopicPartition
    topic_id: UUID
    last_request_number: int

    def request_row(self) -> Row:
        """Return the current position as a Fetch row."""


PartitionT = TypeVar("PartitionT", bound=RequestedPartition)


class NextRequest(NamedTuple, Generic[PartitionT]):
    """Session fields of the next request.

    :ivar partitions: partitions whose positions are sent.
    :ivar forgotten: partitions to remove from the session, with the topic IDs known to the leader.
    """

    session_id: int
    session_epoch: int
    partitions: list[PartitionT]
    forgotten: list[tuple[TopicPartition, UUID]]

    def fields(self, *, by_id: bool) -> Row:
        """Return the fields of the Fetch request."""
        rows = [(requested.key.topic, requested.topic_id, requested.request_row()) for requested in self.partitions]
        forgotten = [(key.topic, topic_id, key.partition) for key, topic_id in self.forgotten]
        return {
            "session_id": self.session_id,
            "session_epoch": self.session_epoch,
            "topics": _by_topic(rows, by_id=by_id),
            "forgotten_topics_data": _by_topic(forgotten, by_id=by_id),
        }


class FetchSession(Generic[PartitionT]):
    """State of the session with one leader.

    :ivar number: number of the last request, across all sessions.
    :ivar generation: incremented each time the session is reset.
    """

    def __init__(self) -> None:
        self.number = 0
        self.generation = 0
        self._session_id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._by_id = True
        self._requested: dict[TopicPartition, PartitionT] = {}
        self._changed: dict[TopicPartition, None] = {}
        self._known: dict[TopicPartition, UUID] = {}
        """Partitions in the leader's session, with the topic IDs that were sent for them."""
        self._without_id = 0

    def __len__(self) -> int:
        return len(self._requested)

    @property
    def has_unsent_changes(self) -> bool:
        """True if some positions have not been sent to the leader yet."""
        return bool(self._changed)

    @property
    def is_established(self) -> bool:
        """True if the leader keeps a session, so that a request names only changes."""
        return self._epoch != INITIAL_EPOCH

    def request(self, requested: PartitionT) -> None:
        """Request this partition from its current position."""
        old = self._requested.get(requested.key)
        if old is not requested:
            if old is not None:
                self._without_id -= old.topic_id == ZERO_UUID
            self._without_id += requested.topic_id == ZERO_UUID
            self._requested[requested.key] = requested
        self._changed[requested.key] = None

    def leave_out(self, key: TopicPartition) -> None:
        """Stop requesting this partition."""
        requested = self._requested.pop(key, None)
        if requested is not None:
            self._without_id -= requested.topic_id == ZERO_UUID
            self._changed[key] = None

    def version(self, highest: int) -> int:
        """Return the version of Fetch for the next request.

        :param highest: highest version that both brokers support.
        """
        return min(highest, BY_ID_FROM - 1) if self._without_id else highest

    def next_request(self, version: int) -> NextRequest[PartitionT]:
        """Return the next request and mark its changes as sent.

        :param version: version of Fetch in which it is sent.
        """
        by_id = version >= BY_ID_FROM
        if by_id != self._by_id:
            self.reset()  # a session uses either topic names or topic IDs
            self._by_id = by_id
        self.number += 1
        session_id, epoch = self._session_id, self._epoch
        known = self._known
        if epoch == INITIAL_EPOCH:
            known.clear()
            changed: Iterable[TopicPartition] = self._requested
        else:
            self._epoch = 1 if epoch == EPOCH_MAX else epoch + 1
            changed = self._changed
        partitions: list[PartitionT] = []
        forgotten: list[tuple[TopicPartition, UUID]] = []
        for key in changed:
            requested, known_id = self._requested.get(key), known.pop(key, None)
            if known_id is not None and (requested is None or requested.topic_id != known_id):
                forgotten.append((key, known_id))  # even if the topic was deleted and created again
            if requested is not None:
                known[key] = requested.topic_id
                requested.last_request_number = self.number
                partitions.append(requested)
        self._changed.clear()
        return NextRequest(session_id, epoch, partitions, forgotten)

    def response_received(self, session_id: int) -> None:
        """Handle a successful response to a full request.

        :param session_id: the session that the leader keeps from now on; 0 for none.
        """
        if self._epoch != INITIAL_EPOCH:
            return
        self._session_id = session_id
        if session_id != NO_SESSION:
            self._epoch = 1

    def reset(self, *, is_unknown_to_leader: bool = False) -> None:
        """Start a new session: the next request names all partitions and ends the leader's session.

        :param is_unknown_to_leader: True if the leader no longer has the session.
        """
        self.generation += 1
        self._epoch = INITIAL_EPOCH
        if is_unknown_to_leader:
            self._session_id = NO_SESSION


def _by_topic(rows: list[tuple[str, UUID, Any]], *, by_id: bool) -> list[Row]:
    """Group rows by topic, as requests require."""
    topics: dict[str | UUID, Row] = {}
    for topic, topic_id, row in rows:
        name = topic_id if by_id else topic
        group = topics.get(name)
        if group is None:
            group = topics[name] = {"topic": topic, "topic_id": topic_id, "partitions": []}
        group["partitions"].append(row)
    return list(topics.values())
