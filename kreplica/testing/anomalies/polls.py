"""Consumers that reread records, or skipped records that other consumers read."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from kreplica.testing.anomalies.history import NO_OFFSET, Assign, Partition, Poll, Seek, Value
from kreplica.testing.anomalies.kinds import Anomaly, Kind
from kreplica.testing.anomalies.observed_log import ObservedLogs, describe, names, shorten


def misplaced_polls(observed: ObservedLogs) -> Iterator[Anomaly]:
    """Find polls that did not return the next records from the consumer's position."""
    positions: dict[str, dict[Partition, int]] = {}
    for read in observed.history.reads:
        current = positions.setdefault(read.consumer, {})
        if isinstance(read, Assign):
            positions[read.consumer] = {
                partition: current[partition] for partition in read.partitions if partition in current
            }
        elif isinstance(read, Seek):
            if read.offset == NO_OFFSET:
                current.pop(read.partition, None)
            else:
                current[read.partition] = read.offset
        elif read.records:
            yield from _misplaced_poll(observed, read, current.get(read.partition))
            current[read.partition] = read.records[-1][0] + 1


def _misplaced_poll(observed: ObservedLogs, poll: Poll, position: int | None) -> Iterator[Anomaly]:
    expected = poll.records[0][0] if position is None else position
    is_between = True
    for offset, value in poll.records:
        if offset < expected:
            yield _went_back(poll, expected, offset, value, is_between)
        elif offset > expected:
            yield from _find_skip(observed, poll, expected, offset, is_between)
        expected = offset + 1
        is_between = False


def _went_back(poll: Poll, expected: int, offset: int, value: Value, is_between: bool) -> Anomaly:
    return Anomaly(
        Kind.NON_MONOTONIC_POLL_BETWEEN if is_between else Kind.NON_MONOTONIC_POLL_WITHIN,
        poll.partition,
        (offset,),
        (value,),
        (poll.consumer,),
        poll.at_s,
        f"{poll.consumer} at position {expected} received {shorten(value)} from {offset}",
    )


def _find_skip(observed: ObservedLogs, poll: Poll, expected: int, offset: int, is_between: bool) -> Iterator[Anomaly]:
    """Find the first record between two offsets that another consumer read and that this one may not skip."""
    log = observed.logs[poll.partition]
    begin, end = (bisect_left(log.read_offsets, position) for position in (expected, offset))
    for skipped in log.read_offsets[begin:end]:
        value, other = log.read[skipped]
        if not observed.may_be_skipped(poll.partition, value):
            yield Anomaly(
                Kind.POLL_SKIP_BETWEEN if is_between else Kind.POLL_SKIP_WITHIN,
                poll.partition,
                (skipped,),
                (value,),
                names(poll, other),
                poll.at_s,
                f"{poll.consumer} at position {expected} received {offset}; {shorten(value)} was {describe(other)}",
            )
            return
