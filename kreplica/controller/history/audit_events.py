"""What happened in the cluster, as entries for people: kept by each broker of what it saw as the controller.

In memory and bounded; it stays when the office goes to another.  Nothing is decided by it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

ENTRIES_MAX = 2000

EXAMPLES_MAX = 5
"""So many partitions, topics or the like are named in an entry; the rest are counted."""

KINDS = {
    "controller_elected": "A broker has taken the controller's office",
    "controller_resigned": "A broker gave the controller's office up, or lost it",
    "broker_joined": "A broker has registered",
    "broker_left": "A broker's registration is gone: it stopped, died, or lost its session",
    "broker_restarted": "A broker has registered anew, without having been seen gone",
    "broker_stopping": "A broker asked for its leaders to be moved, because it is about to stop",
    "broker_changed": "A broker's registration says something else (its endpoints, its rack)",
    "broker_late": "A broker did not answer a command in time; it is asked on",
    "leaders_moved": "Partitions are led by other brokers than before",
    "partitions_offline": "Partitions have no leader any more",
    "partitions_online": "Partitions that had no leader have one again",
    "isr_shrunk": "Replicas are not in sync any more",
    "isr_grown": "Replicas are in sync again",
    "topics_created": "Topics were made",
    "topics_deleting": "Topics are being deleted",
    "topics_deleted": "Topics are gone",
    "topics_grown": "Topics have more partitions",
    "partitions_removed": "Topics have fewer partitions",
    "requests_refused": "Requests to add or to remove partitions were refused",
    "reassignments_begun": "Replicas have begun to move",
    "reassignments_finished": "Replicas are where they were to move",
    "reassignments_refused": "Replicas cannot be moved as was asked for",
    "plan_begun": "A plan has begun",
    "plan_finished": "All of a plan is done",
    "plan_cancelled": "A plan was given up, on request",
    "plan_failed": "A plan cannot go on, or has ended with steps that failed",
    "log_dir_failed": "A log directory of a broker failed",
    "replicas_failed": "A broker cannot use replicas",
    "replicas_recovered": "A broker can use replicas again",
    "zookeeper_lost": "A broker has lost its connection to ZooKeeper",
    "zookeeper_back": "A broker is connected to ZooKeeper again",
    "session_expired": "A broker's session with ZooKeeper is over: it leads nothing until it has another",
}
"""What entries are about, each with what it says."""

Key = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that happened.

    :param at_ms: of the wall clock of the broker that saw it, milliseconds since 1970; it never goes back from one
        entry of a process to the next.
    :param broker_id: who saw it.
    :param number: of that process, from 1.
    :param controller_epoch: of the office in which it was seen; None where there was none.
    :param kind: one of ``KINDS``.
    :param subject: what it is about, as ``broker 3``, ``topic orders``, ``plan plan-0000000001``; empty for the
        cluster.
    :param text: a sentence.
    :param details: JSON; counts, and no more than ``EXAMPLES_MAX`` examples of anything.
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
        """By which entries of all brokers are put in order."""
        return self.at_ms, self.broker_id, self.number

    @property
    def entry_id(self) -> str:
        """Of this entry among those of all brokers."""
        return "-".join(map(str, self.key))


def key_of(entry_id: str) -> Key:
    """The reverse of ``Entry.entry_id``.

    :raise ValueError: where it is none.
    """
    at_ms, broker_id, number = (int(part) for part in entry_id.split("-"))
    return at_ms, broker_id, number


class Chronicle:
    """Owned by the memory of a broker's controller; lives as long as the process.

    :param now_ms: the wall clock.
    """

    def __init__(self, broker_id: int, now_ms: Callable[[], int]) -> None:
        self._broker_id = broker_id
        self._now_ms = now_ms
        self._entries: deque[Entry] = deque(maxlen=ENTRIES_MAX)
        self._count = 0
        self._last_ms = 0

    def __iter__(self) -> Iterator[Entry]:
        """The entries, the oldest first."""
        return iter(tuple(self._entries))

    def newest(self) -> Iterator[Entry]:
        """The entries, the newest first."""
        return reversed(tuple(self._entries))

    def tell(
        self, kind: str, subject: str, text: str, details: Mapping[str, Any], controller_epoch: int | None
    ) -> None:
        """Something happened just now; see ``Entry``."""
        self._last_ms = max(self._last_ms, self._now_ms())
        self._count += 1
        entry = Entry(self._last_ms, self._broker_id, self._count, controller_epoch, kind, subject, text, details)
        self._entries.append(entry)
