"""Index of a history: each partition's records as clients observed them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TypeAlias

from kreplica.testing.anomalies.history import (
    NO_OFFSET,
    ClientHistory,
    Outcome,
    Partition,
    Poll,
    Send,
    TransactionState,
    Value,
)
from kreplica.testing.anomalies.kinds import Kind

VALUE_SIZE_MAX = 20

Observation: TypeAlias = Poll | Send
"""The poll or acknowledgement from which a client learned a record's offset."""


class Log:
    """Observations of one partition.

    :ivar sent: values sent to it, whether acknowledged or not.
    :ivar read: by offset, the value that was read first, and the poll.
    :ivar acknowledged: by offset, the value acknowledged first, and the send; only offsets that were never read.
    :ivar conflicts: by kind, offset and later value: the first value, its observation, and that of the later value.
    """

    def __init__(self) -> None:
        self.sent: set[Value] = set()
        self.read: dict[int, tuple[Value, Poll]] = {}
        self.acknowledged: dict[int, tuple[Value, Send]] = {}
        self.conflicts: dict[tuple[Kind, int, Value], tuple[Value, Observation, Observation]] = {}

    @cached_property
    def read_values(self) -> set[Value]:
        return {value for _, value, _ in self.all_reads()}

    @cached_property
    def read_offsets(self) -> list[int]:
        return sorted(self.read)

    def all_reads(self) -> Iterator[tuple[int, Value, Poll]]:
        """Yield each distinct pair of offset and value that was read, with the poll that first returned it."""
        for offset, (value, poll) in self.read.items():
            yield offset, value, poll
        for (_, offset, value), (_, _, observation) in self.conflicts.items():
            if isinstance(observation, Poll):
                yield offset, value, observation

    def add_poll(self, poll: Poll) -> None:
        read = self.read
        for offset, value in poll.records:
            first = read.get(offset)
            if first is None:
                read[offset] = value, poll
            elif first[0] != value:
                self.conflicts.setdefault((Kind.INCONSISTENT_OFFSETS, offset, value), (*first, poll))

    def add_acknowledgement(self, send: Send) -> None:
        """Add an acknowledgement; all polls must be added first."""
        read, acknowledged = self.read, self.acknowledged
        for offset, value in enumerate(send.values, send.base_offset):
            first: tuple[Value, Observation] | None = read.get(offset)
            if first is None:
                first = acknowledged.setdefault(offset, (value, send))
            if first[0] != value:
                self.conflicts.setdefault((Kind.INCONSISTENT_ACKNOWLEDGEMENT, offset, value), (*first, send))


class ObservedLogs:
    """A history with an index of each of its partitions."""

    def __init__(self, history: ClientHistory) -> None:
        self.history = history
        self.logs: dict[Partition, Log] = {}
        for read in history.reads:
            if isinstance(read, Poll):
                self._log(read.partition).add_poll(read)
        for send in history.sends:
            log = self._log(send.partition)
            log.sent.update(send.values)
            if send.outcome is Outcome.OK and send.base_offset != NO_OFFSET:
                log.add_acknowledgement(send)

    def _log(self, partition: Partition) -> Log:
        log = self.logs.get(partition)
        if log is None:
            log = self.logs[partition] = Log()
        return log

    # --- results of sends ---

    def is_readable(self, send: Send) -> bool:
        """Return True if the records were acknowledged and the commit of their transaction, if any, was confirmed."""
        return send.outcome is Outcome.OK and not self.is_hidden(send)

    def is_rejected(self, send: Send) -> bool:
        """Return True if the records were rejected or their transaction was aborted."""
        return send.outcome is Outcome.FAILED or self._state(send) is TransactionState.ABORTED

    def is_hidden(self, send: Send) -> bool:
        """Return True if the records were rejected or their transaction is not known to be committed."""
        return send.outcome is Outcome.FAILED or self._state(send) is not TransactionState.COMMITTED

    def _state(self, send: Send) -> TransactionState:
        """Return the state of the send's transaction; committed for a send outside transactions."""
        if send.transaction is None:
            return TransactionState.COMMITTED
        return self.history.transactions[send.transaction].state

    @cached_property
    def conditional(self) -> dict[tuple[Partition, Value], Send]:
        """Sends of rejected or transactional records; if a value was sent again, only its last send."""
        conditional: dict[tuple[Partition, Value], Send] = {}
        for send in self.history.sends:
            if send.outcome is Outcome.FAILED or send.transaction is not None:
                conditional.update(((send.partition, value), send) for value in send.values)
            elif conditional:
                for value in send.values:
                    conditional.pop((send.partition, value), None)
        return conditional

    def may_be_skipped(self, partition: Partition, value: Value) -> bool:
        """Return True if a consumer may skip a record that another consumer read."""
        send = self.conditional.get((partition, value))
        return send is not None and self.is_hidden(send)


# --- descriptions -----------------------------------------------------------------------------------------------------


def names(*observations: Observation) -> tuple[str, ...]:
    clients = (item.consumer if isinstance(item, Poll) else item.producer for item in observations)
    return tuple(dict.fromkeys(clients))


def latest_time_s(*observations: Observation) -> float:
    return max(item.at_s if isinstance(item, Poll) else item.answered_s for item in observations)


def describe(observation: Observation) -> str:
    if isinstance(observation, Poll):
        return f"read by {observation.consumer}"
    return f"acknowledged to {observation.producer}"


def shorten(value: Value) -> str:
    return repr(value[:VALUE_SIZE_MAX]) if isinstance(value, bytes | str) else repr(value)
