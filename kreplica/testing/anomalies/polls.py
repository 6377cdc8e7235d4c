"""Readers that went back, or over what others read."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from kreplica.testing.anomalies.history import NO_OFFSET, Assign, Partition, Poll, Seek, Value
from kreplica.testing.anomalies.kinds import Anomaly, Kind
from kreplica.testing.anomalies.observed_log import Tellings, how, names, shown


def wrong_polls(tellings: Tellings) -> Iterator[Anomaly]:
    """Polls that gave something else than the next records from the position on, as others know them."""
    positions: dict[str, dict[Partition, int]] = {}
    for read in tellings.history.reads:
        known = positions.setdefault(read.consumer, {})
        if isinstance(read, Assign):
            positions[read.consumer] = {each: known[each] for each in read.partitions if each in known}
        elif isinstance(read, Seek):
            if read.offset == NO_OFFSET:
                known.pop(read.partition, None)
            else:
                known[read.partition] = read.offset
        elif read.records:
            yield from _wrong_poll(tellings, read, known.get(read.partition))
            known[read.partition] = read.records[-1][0] + 1


def _wrong_poll(tellings: Tellings, poll: Poll, position: int | None) -> Iterator[Anomaly]:
    expected = poll.records[0][0] if position is None else position
    between = True
    for offset, value in poll.records:
        if offset < expected:
            yield _went_back(poll, expected, offset, value, between)
        elif offset > expected:
            yield from _skipped(tellings, poll, expected, offset, between)
        expected = offset + 1
        between = False


def _went_back(poll: Poll, expected: int, offset: int, value: Value, between: bool) -> Anomaly:
    return Anomaly(
        Kind.NON_MONOTONIC_POLL_BETWEEN if between else Kind.NON_MONOTONIC_POLL_WITHIN,
        poll.partition,
        (offset,),
        (value,),
        (poll.consumer,),
        poll.at_s,
        f"{poll.consumer}, whose position was {expected}, was given {shown(value)} from {offset}",
    )


def _skipped(tellings: Tellings, poll: Poll, expected: int, offset: int, between: bool) -> Iterator[Anomaly]:
    """The first record between two offsets that others read, and that nothing allows to be passed over."""
    log = tellings.logs[poll.partition]
    begin, end = (bisect_left(log.read_offsets, each) for each in (expected, offset))
    for skipped in log.read_offsets[begin:end]:
        value, other = log.read[skipped]
        if not tellings.may_be_passed_over(poll.partition, value):
            yield Anomaly(
                Kind.POLL_SKIP_BETWEEN if between else Kind.POLL_SKIP_WITHIN,
                poll.partition,
                (skipped,),
                (value,),
                names(poll, other),
                poll.at_s,
                f"{poll.consumer}, whose position was {expected}, was given {offset}; {shown(value)} was {how(other)}",
            )
            return
