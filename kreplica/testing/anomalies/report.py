"""Counts and examples of the anomalies in a history, by kind; those that violate a guarantee are errors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kreplica.testing.anomalies.history import ClientHistory
from kreplica.testing.anomalies.isolation import hidden_record_reads
from kreplica.testing.anomalies.kinds import Anomaly, Kind
from kreplica.testing.anomalies.observed_log import ObservedLogs
from kreplica.testing.anomalies.polls import misplaced_polls
from kreplica.testing.anomalies.writes import (
    duplicates,
    inconsistent_offsets,
    lost_writes,
    non_monotonic_sends,
    unsent_reads,
)

EXAMPLES_MAX = 20
"""Maximum number of examples per kind; further anomalies are only counted."""

CHECKS = (
    lost_writes,
    duplicates,
    inconsistent_offsets,
    hidden_record_reads,
    unsent_reads,
    misplaced_polls,
    non_monotonic_sends,
)
"""Each takes time linear in the number of records, plus a binary search for each jump of a consumer."""


@dataclass(frozen=True, slots=True)
class Expectations:
    """Guarantees of the clients' and the cluster's settings; an anomaly that violates none of them is not an error.

    :param kept: acknowledged records are never lost (``acks=all``, no unclean elections).
    :param written_once: retries are neither duplicated nor reordered (idempotent producers).
    :param caught_up: consumers had enough time to read all records.
    :param kept_from: retention may delete records below this offset before any consumer reads them; if it is not 0,
        this includes acknowledged records of unknown offset.
    """

    kept: bool = True
    written_once: bool = True
    caught_up: bool = True
    kept_from: int = 0

    def is_error(self, kind: Kind) -> bool:
        match kind:
            case Kind.LOST_WRITE | Kind.INCONSISTENT_ACKNOWLEDGEMENT:
                return self.kept
            case Kind.UNSEEN:
                return self.kept and self.caught_up
            case Kind.DUPLICATE | Kind.NON_MONOTONIC_SEND:
                # A producer whose earlier records are lost gets a new producer ID and repeats sends without a response.
                return self.kept and self.written_once
            case _:
                return True

    def is_deleted(self, anomaly: Anomaly) -> bool:
        """Return True if the missing records may have been deleted by retention."""
        return (
            self.kept_from > 0
            and anomaly.kind in (Kind.LOST_WRITE, Kind.UNSEEN)
            and all(offset < self.kept_from for offset in anomaly.offsets)
        )


@dataclass(frozen=True, slots=True)
class Row:
    kind: Kind
    count: int
    is_error: bool


class AnomalyReport:
    """Counts and examples of anomalies.

    :ivar examples: the first ``EXAMPLES_MAX`` anomalies of each kind.
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
        return [Row(kind, count, self._expectations.is_error(kind)) for kind, count in self._counts.items()]

    @property
    def counts(self) -> dict[Kind, int]:
        """Number of anomalies by kind, for the kinds that were found."""
        return {kind: count for kind, count in self._counts.items() if count}

    @property
    def errors(self) -> dict[Kind, int]:
        """Number of anomalies by kind, for kinds that are errors."""
        return {row.kind: row.count for row in self.rows if row.count and row.is_error}

    def lines(self) -> list[str]:
        """Return the report as text lines: errors first, each kind with its examples."""
        lines = []
        for row in sorted(self.rows, key=lambda row: not row.is_error):
            if row.count:
                lines.append(f"{row.count} x {row.kind.value} ({'error' if row.is_error else 'noteworthy'})")
                lines += [f"  {anomaly}" for anomaly in self.examples[row.kind]]
        return lines

    def check(self) -> None:
        """Check that the history has no errors.

        :raise AssertionError: the history has errors; the message contains the report.
        """
        assert not self.errors, "\n".join(self.lines())


def find_anomalies(history: ClientHistory) -> Iterator[Anomaly]:
    """Yield all anomalies, including those that are not errors; each once, even if several clients observed it."""
    observed = ObservedLogs(history)
    for check in CHECKS:
        yield from check(observed)


def report(history: ClientHistory, expectations: Expectations = Expectations()) -> AnomalyReport:
    anomalies = (anomaly for anomaly in find_anomalies(history) if not expectations.is_deleted(anomaly))
    return AnomalyReport(anomalies, expectations)
