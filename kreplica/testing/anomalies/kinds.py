"""Kinds of anomalies in a history, and the description of one anomaly."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from kreplica.testing.anomalies.history import Partition, Value


class Kind(Enum):
    LOST_WRITE = "lost write"
    UNSEEN = "unseen"
    DUPLICATE = "duplicate"
    INCONSISTENT_OFFSETS = "inconsistent offsets"
    INCONSISTENT_ACKNOWLEDGEMENT = "inconsistent acknowledgement"
    ABORTED_READ = "aborted read"
    PRECOMMITTED_READ = "precommitted read"
    UNSENT_READ = "unsent read"
    POLL_SKIP_WITHIN = "poll skip (within)"
    POLL_SKIP_BETWEEN = "poll skip (between)"
    NON_MONOTONIC_POLL_WITHIN = "non-monotonic poll (within)"
    NON_MONOTONIC_POLL_BETWEEN = "non-monotonic poll (between)"
    NON_MONOTONIC_SEND = "non-monotonic send"


MEANINGS = {
    Kind.LOST_WRITE: "acknowledged but never read, although other records were read at or after its offset",
    Kind.UNSEEN: "acknowledged but never read, and no later offset was read either",
    Kind.DUPLICATE: "one record at two offsets",
    Kind.INCONSISTENT_OFFSETS: "two records were read at one offset",
    Kind.INCONSISTENT_ACKNOWLEDGEMENT: "acknowledged at an offset where another record was read or acknowledged",
    Kind.ABORTED_READ: "read, although its write was rejected or its transaction aborted",
    Kind.PRECOMMITTED_READ: "read before the commit of its transaction was requested",
    Kind.UNSENT_READ: "read, although no producer sent it",
    Kind.POLL_SKIP_WITHIN: "a poll skipped a record between two that it returned",
    Kind.POLL_SKIP_BETWEEN: "a poll skipped a record between the reader's position and the first that it returned",
    Kind.NON_MONOTONIC_POLL_WITHIN: "offsets decreased within one poll",
    Kind.NON_MONOTONIC_POLL_BETWEEN: "a poll returned a record before the reader's position",
    Kind.NON_MONOTONIC_SEND: "a producer's later record was acknowledged at an earlier offset",
}
"""Description of each kind, shown in reports."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One anomaly.

    :param offsets: affected offsets in order; empty if they are unknown.
    :param clients: names of the clients that observed it.
    :param at_s: time in seconds at which the last of them observed it.
    :param text: description, used at the end of a report line.
    """

    kind: Kind
    partition: Partition
    offsets: tuple[int, ...]
    values: tuple[Value, ...]
    clients: tuple[str, ...]
    at_s: float
    text: str

    def __str__(self) -> str:
        location = " and ".join(map(str, self.offsets)) or "an unknown offset"
        return f"{self.at_s:10.3f} s  {self.kind.value}: {self.partition} at {location}: {self.text}"
