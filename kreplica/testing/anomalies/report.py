"""How many anomalies of each kind a history has, which of them are errors, and a few of each in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kreplica.testing.anomalies.history import ClientHistory
from kreplica.testing.anomalies.isolation import hidden_reads
from kreplica.testing.anomalies.kinds import Anomaly, Kind
from kreplica.testing.anomalies.observed_log import Tellings
from kreplica.testing.anomalies.polls import wrong_polls
from kreplica.testing.anomalies.writes import (
    duplicates,
    inconsistent_offsets,
    lost_writes,
    non_monotonic_sends,
    unsent_reads,
)

EXAMPLES_MAX = 20
"""Of each kind, so many anomalies are kept; the others are only counted."""

CHECKS = (
    lost_writes,
    duplicates,
    inconsistent_offsets,
    hidden_reads,
    unsent_reads,
    wrong_polls,
    non_monotonic_sends,
)
"""Each is linear in the records that were sent and read, but for a binary search where a reader jumps."""


@dataclass(frozen=True, slots=True)
class Expectations:
    """What the settings of clients and cluster promise; what breaks none of it is noteworthy, and no error.

    :param kept: acknowledged records stay: ``acks=all``, and no unclean elections.
    :param written_once: no retry is written twice or out of order: the producers are idempotent.
    :param caught_up: readers were given the time to read all that is there.
    :param kept_from: records below this offset may be deleted for their age, or for want of space, before anybody reads
        them; with any but 0, so may those whose offset nobody was told.
    """

    kept: bool = True
    written_once: bool = True
    caught_up: bool = True
    kept_from: int = 0

    def is_error(self, kind: Kind) -> bool:
        """Whether it breaks a promise."""
        match kind:
            case Kind.LOST_WRITE | Kind.INCONSISTENT_ACKNOWLEDGEMENT:
                return self.kept
            case Kind.UNSEEN:
                return self.kept and self.caught_up
            case Kind.DUPLICATE | Kind.NON_MONOTONIC_SEND:
                # A producer whose earlier records are gone starts anew, and sends again what it is not sure of.
                return self.kept and self.written_once
            case _:
                return True

    def is_deleted(self, anomaly: Anomaly) -> bool:
        """Whether records are missing that may be."""
        return (
            self.kept_from > 0
            and anomaly.kind in (Kind.LOST_WRITE, Kind.UNSEEN)
            and all(offset < self.kept_from for offset in anomaly.offsets)
        )


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table of a report."""

    kind: Kind
    count: int
    is_error: bool


class AnomalyReport:
    """What was found.

    :ivar examples: of each kind the first ``EXAMPLES_MAX``.
    """

    def __init__(self, anomalies: Iterable[Anomaly], expectations: Expectations) -> None:
        self._expectations = expectations
        self._counts = dict.fromkeys(Kind, 0)
        self.examples: dict[Kind, list[Anomaly]] = {kind: [] for kind in Kind}
        for anomaly in anomalies:
            self._counts[anomaly.kind] += 1
            if len(self.examples[anomaly.kind]) < EXAMPLES_MAX:
                self.examples[anomaly.kind].append(anomaly)

    @property
    def rows(self) -> list[Row]:
        """One for each kind, found or not."""
        return [Row(kind, count, self._expectations.is_error(kind)) for kind, count in self._counts.items()]

    @property
    def counts(self) -> dict[Kind, int]:
        """Of the kinds that were found, how many."""
        return {kind: count for kind, count in self._counts.items() if count}

    @property
    def errors(self) -> dict[Kind, int]:
        """Of the kinds that were found and are errors, how many."""
        return {row.kind: row.count for row in self.rows if row.count and row.is_error}

    def lines(self) -> list[str]:
        """What was found, errors first, each kind with its examples."""
        lines = []
        for row in sorted(self.rows, key=lambda row: not row.is_error):
            if row.count:
                lines.append(f"{row.count} x {row.kind.value} ({'error' if row.is_error else 'noteworthy'})")
                lines += [f"  {anomaly}" for anomaly in self.examples[row.kind]]
        return lines

    def check(self) -> None:
        """Whether nothing is wrong.

        :raise AssertionError: something is, and what.
        """
        assert not self.errors, "\n".join(self.lines())


def find_anomalies(history: ClientHistory) -> Iterator[Anomaly]:
    """All that is wrong, whatever was promised; told once a value or a place, not once for everybody who saw it."""
    tellings = Tellings(history)
    for check in CHECKS:
        yield from check(tellings)


def report(history: ClientHistory, expectations: Expectations = Expectations()) -> AnomalyReport:
    """Check a history."""
    found = (anomaly for anomaly in find_anomalies(history) if not expectations.is_deleted(anomaly))
    return AnomalyReport(found, expectations)
