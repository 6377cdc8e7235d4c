"""Audit events of the cluster, for operators.

Each broker keeps the events of its own terms as controller, and those of the clients that it throttled.  Their number
is limited, and they stay in memory when the term ends.  No decision depends on them.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

ENTRIES_MAX = 2000
CLIENT_ENTRIES_MAX = 500
"""Maximum number of events about clients, which do not displace other events."""

EXAMPLES_MAX = 5
"""Maximum number of partitions, topics or other items that one entry names; the others are only counted."""

KINDS = {
    "controller_elected": "A broker became the controller",
    "controller_resigned": "A broker is no longer the controller",
    "broker_joined": "A broker registered",
    "broker_left": "A broker's registration disappeared: it stopped, died or lost its session",
    "broker_restarted": "A broker registered again before its absence was noticed",
    "broker_stopping": "A broker requested a controlled shutdown",
    "broker_changed": "A broker changed its registration (endpoints or rack)",
    "broker_late": "A broker did not respond to a command in time; the command is retried",
    "leaders_moved": "Partitions have new leaders",
    "partitions_offline": "Partitions lost their leader",
    "partitions_online": "Partitions that had no leader have one again",
    "isr_shrunk": "Replicas left the ISR",
    "isr_expanded": "Replicas joined the ISR",
    "topics_created": "Topics were created",
    "topics_deleting": "Topics are being deleted",
    "topics_deleted": "Topics were deleted",
    "partitions_added": "Topics have more partitions",
    "partitions_removed": "Topics have fewer partitions",
    "requests_rejected": "Requests to add or remove partitions were rejected",
    "reassignments_started": "Reassignments started",
    "reassignments_finished": "Reassignments finished",
    "reassignments_rejected": "Requested reassignments were rejected",
    "plan_started": "A plan started",
    "plan_finished": "A plan finished",
    "plan_cancelled": "A plan was cancelled",
    "plan_failed": "A plan cannot continue, or ended with failed steps",
    "log_dir_failed": "A log directory of a broker failed",
    "replicas_failed": "A broker cannot use replicas",
    "replicas_recovered": "A broker can use replicas again",
    "zookeeper_lost": "A broker lost its connection to ZooKeeper",
    "zookeeper_reconnected": "A broker is connected to ZooKeeper again",
    "fault_started": "A broker found a fault, for example a full disk; `details.fault` is its kind",
    "fault_ended": "A fault has ended",
    "session_expired": "A broker's ZooKeeper session expired; the broker leads no partition until it has a new session",
    "throttling_started": "Quotas started to slow down a client",
    "throttling_ended": "Quotas no longer slow down a client",
}
"""Kinds of entries with their descriptions."""

CLIENT_KINDS = frozenset({"throttling_started", "throttling_ended"})

Key = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Entry:
    """One audit event.

    :param at_ms: wall clock of the recording broker, in milliseconds since 1970; never decreases within a process.
    :param broker_id: the recording broker.
    :param number: sequence number within the process, from 1.
    :param controller_epoch: epoch of the term in which it was recorded, or None outside a term.
    :param kind: one of ``KINDS``.
    :param subject: for example ``broker 3``, ``topic orders``, ``plan plan-0000000001``; empty for the cluster.
    :param text: a sentence.
    :param details: JSON: counts and at most ``EXAMPLES_MAX`` examples of each item.
    """

    at_ms: int
    broker_id: int
    number: int
    controller_epoch: int | None
    kind: str
    subject: str
    text: str
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> Key:
        """Sort key for the entries of all brokers."""
        return self.at_ms, self.broker_id, self.number

    @property
    def entry_id(self) -> str:
        """Identifier that is unique across the entries of all brokers."""
        return "-".join(map(str, self.key))


def key_of(entry_id: str) -> Key:
    """Return the sort key that an entry ID encodes (inverse of ``Entry.entry_id``).

    :raise ValueError: the ID is malformed.
    """
    at_ms, broker_id, number = (int(part) for part in entry_id.split("-"))
    return at_ms, broker_id, number


class AuditEvents:
    """The most recent audit events of a process.

    :param now_ms: the wall clock.
    """

    def __init__(self, broker_id: int, now_ms: Callable[[], int]) -> None:
        self._broker_id = broker_id
        self._now_ms = now_ms
        self._entries: deque[Entry] = deque(maxlen=ENTRIES_MAX)
        self._client_entries: deque[Entry] = deque(maxlen=CLIENT_ENTRIES_MAX)
        self._count = 0
        self._last_ms = 0

    def __iter__(self) -> Iterator[Entry]:
        """Iterate over the entries, oldest first."""
        return iter(tuple(self.newest())[::-1])

    def newest(self) -> Iterator[Entry]:
        """Iterate over the entries, newest first."""
        both = (reversed(tuple(entries)) for entries in (self._entries, self._client_entries))
        return heapq.merge(*both, key=lambda entry: entry.number, reverse=True)

    def record(
        self, kind: str, subject: str, text: str, details: Mapping[str, Any], controller_epoch: int | None = None
    ) -> None:
        """Add an entry with the current time; see ``Entry``."""
        self._last_ms = max(self._last_ms, self._now_ms())
        self._count += 1
        entry = Entry(self._last_ms, self._broker_id, self._count, controller_epoch, kind, subject, text, details)
        entries = self._client_entries if kind in CLIENT_KINDS else self._entries
        entries.append(entry)
