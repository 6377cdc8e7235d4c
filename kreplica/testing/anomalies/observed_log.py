"""Who was told what of each partition: a history, made ready for checks that look things up."""

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

VALUE_SIZE_TOLD = 20

Telling: TypeAlias = Poll | Send
"""By what a client was told that a record stands at an offset."""


class Log:
    """What was told of one partition.

    :ivar sent: what anybody sent there, whatever came of it.
    :ivar read: offset -> the value that any reader was given there first, and by which poll.
    :ivar acknowledged: offset -> the same by acknowledgements, of offsets that nobody read.
    :ivar disputes: kind, offset and value -> which other was told of there before, by what, and by what this one was.
    """

    def __init__(self) -> None:
        self.sent: set[Value] = set()
        self.read: dict[int, tuple[Value, Poll]] = {}
        self.acknowledged: dict[int, tuple[Value, Send]] = {}
        self.disputes: dict[tuple[Kind, int, Value], tuple[Value, Telling, Telling]] = {}

    @cached_property
    def read_values(self) -> set[Value]:
        """Whatever anybody was given, at any offset."""
        return {value for _, value, _ in self.placed_by_reads()}

    @cached_property
    def read_offsets(self) -> list[int]:
        """Where anybody was given anything, in order."""
        return sorted(self.read)

    def placed_by_reads(self) -> Iterator[tuple[int, Value, Poll]]:
        """Every offset with every value that was read there, once, and by which poll first."""
        for offset, (value, poll) in self.read.items():
            yield offset, value, poll
        for (_, offset, value), (_, _, telling) in self.disputes.items():
            if isinstance(telling, Poll):
                yield offset, value, telling

    def add_poll(self, poll: Poll) -> None:
        """Take in what a reader was given."""
        read = self.read
        for offset, value in poll.records:
            first = read.get(offset)
            if first is None:
                read[offset] = value, poll
            elif first[0] != value:
                self.disputes.setdefault((Kind.INCONSISTENT_OFFSETS, offset, value), (*first, poll))

    def add_acknowledgement(self, send: Send) -> None:
        """Take in what a producer was told, once all polls are in."""
        read, acknowledged = self.read, self.acknowledged
        for offset, value in enumerate(send.values, send.base_offset):
            first: tuple[Value, Telling] | None = read.get(offset)
            if first is None:
                first = acknowledged.setdefault(offset, (value, send))
            if first[0] != value:
                self.disputes.setdefault((Kind.INCONSISTENT_ACKNOWLEDGEMENT, offset, value), (*first, send))


class Tellings:
    """A history, with what was told of each of its partitions."""

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

    # --- what came of sends ---

    def is_promised(self, send: Send) -> bool:
        """Whether its producer was told that readers will be given the records."""
        return send.outcome is Outcome.OK and not self.is_held_back(send)

    def is_refused(self, send: Send) -> bool:
        """Whether its producer was told that no reader will ever be given the records."""
        return send.outcome is Outcome.FAILED or self._state(send) is TransactionState.ABORTED

    def is_held_back(self, send: Send) -> bool:
        """Whether readers may be without records that are in the log: those of a transaction that is not committed."""
        return send.outcome is Outcome.FAILED or self._state(send) is not TransactionState.COMMITTED

    def _state(self, send: Send) -> TransactionState:
        """How far its transaction came; what belongs to none counts as committed."""
        if send.transaction is None:
            return TransactionState.COMMITTED
        return self.history.transactions[send.transaction].state

    @cached_property
    def conditional(self) -> dict[tuple[Partition, Value], Send]:
        """Records that not every reader may be given at any time: refused ones, and those of transactions.

        A value that was refused and then sent again is only what it was sent as last.
        """
        conditional: dict[tuple[Partition, Value], Send] = {}
        for send in self.history.sends:
            if send.outcome is Outcome.FAILED or send.transaction is not None:
                conditional.update(((send.partition, value), send) for value in send.values)
            elif conditional:
                for value in send.values:
                    conditional.pop((send.partition, value), None)
        return conditional

    def may_be_passed_over(self, partition: Partition, value: Value) -> bool:
        """Whether a reader may be without a record that another was given."""
        send = self.conditional.get((partition, value))
        return send is not None and self.is_held_back(send)


# --- in words ---------------------------------------------------------------------------------------------------------


def names(*tellings: Telling) -> tuple[str, ...]:
    """Of the clients, each once."""
    return tuple(dict.fromkeys(each.consumer if isinstance(each, Poll) else each.producer for each in tellings))


def last_s(*tellings: Telling) -> float:
    """When the last of these was told."""
    return max(each.at_s if isinstance(each, Poll) else each.answered_s for each in tellings)


def how(telling: Telling) -> str:
    """What was done to a record, and by or to whom."""
    return f"read by {telling.consumer}" if isinstance(telling, Poll) else f"acknowledged to {telling.producer}"


def shown(value: Value) -> str:
    """A value, cut short where it is long."""
    return repr(value[:VALUE_SIZE_TOLD]) if isinstance(value, bytes | str) else repr(value)
