"""What can be wrong, and one thing that is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from kreplica.testing.anomalies.history import Partition, Value


class Kind(Enum):
    """What can be wrong."""

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
    Kind.LOST_WRITE: "acknowledged, and read by nobody, though others were read at its offset or behind it",
    Kind.UNSEEN: "acknowledged, and read by nobody, and nothing behind it either",
    Kind.DUPLICATE: "one record at two offsets",
    Kind.INCONSISTENT_OFFSETS: "two records were read at one offset",
    Kind.INCONSISTENT_ACKNOWLEDGEMENT: "acknowledged at an offset where another record was read or acknowledged",
    Kind.ABORTED_READ: "read, though its write was refused or its transaction aborted",
    Kind.PRECOMMITTED_READ: "read before the commit of its transaction was asked for",
    Kind.UNSENT_READ: "read, though nobody sent it",
    Kind.POLL_SKIP_WITHIN: "a poll left out a record between two that it gave",
    Kind.POLL_SKIP_BETWEEN: "a poll left out a record between the reader's position and the first that it gave",
    Kind.NON_MONOTONIC_POLL_WITHIN: "offsets went back in one poll",
    Kind.NON_MONOTONIC_POLL_BETWEEN: "a poll gave a record from before the reader's position",
    Kind.NON_MONOTONIC_SEND: "what a producer sent later was acknowledged at an earlier offset",
}
"""Of each kind, what it says."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One thing that is wrong.

    :param offsets: that it concerns, in order; empty where none was told.
    :param who: the clients that were told.
    :param at_s: when the last of them was.
    :param text: what happened, as the end of a line.
    """

    kind: Kind
    partition: Partition
    offsets: tuple[int, ...]
    values: tuple[Value, ...]
    who: tuple[str, ...]
    at_s: float
    text: str

    def __str__(self) -> str:
        where = " and ".join(map(str, self.offsets)) or "an unknown offset"
        return f"{self.at_s:10.3f} s  {self.kind.value}: {self.partition} at {where}: {self.text}"
