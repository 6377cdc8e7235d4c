"""Sent records that are lost, duplicated, or not at the acknowledged offset."""

from __future__ import annotations

from collections.abc import Iterator

from kreplica.testing.anomalies.history import NO_OFFSET, Outcome, Partition, Poll, Send, Value
from kreplica.testing.anomalies.kinds import Anomaly, Kind
from kreplica.testing.anomalies.observed_log import (
    Log,
    Observation,
    ObservedLogs,
    describe,
    latest_time_s,
    names,
    shorten,
)


def lost_writes(observed: ObservedLogs) -> Iterator[Anomaly]:
    """Find acknowledged records that were never read: lost if any consumer read their offset or a later one."""
    for send in observed.history.sends:
        log = observed.logs[send.partition]
        if not observed.is_readable(send) or log.read_values.issuperset(send.values):
            continue
        last = log.read_offsets[-1] if log.read_offsets else NO_OFFSET
        for index, value in enumerate(send.values):
            if value not in log.read_values:
                offset = NO_OFFSET if send.base_offset == NO_OFFSET else send.base_offset + index
                yield _not_read(send, offset, value, last)


def _not_read(send: Send, offset: int, value: Value, last: int) -> Anomaly:
    reads = "no record was read" if last == NO_OFFSET else f"other records were read up to {last}"
    return Anomaly(
        Kind.LOST_WRITE if NO_OFFSET < offset <= last else Kind.UNSEEN,
        send.partition,
        () if offset == NO_OFFSET else (offset,),
        (value,),
        (send.producer,),
        send.answered_s,
        f"{shorten(value)} was acknowledged to {send.producer} but never read; {reads}",
    )


def duplicates(observed: ObservedLogs) -> Iterator[Anomaly]:
    """Find values that were read at two offsets; an acknowledgement counts as a read if its offset was never read."""
    for partition, log in observed.logs.items():
        if len(log.read) == len(log.read_values) and not (log.acknowledged or log.conflicts):
            continue  # fast path: no value is at two offsets
        first: dict[Value, tuple[int, Observation]] = {}
        for offset, value, observation in _all_offsets(observed, log):
            first_offset, first_observation = first.setdefault(value, (offset, observation))
            if first_offset != offset:
                yield Anomaly(
                    Kind.DUPLICATE,
                    partition,
                    (min(first_offset, offset), max(first_offset, offset)),
                    (value,),
                    names(first_observation, observation),
                    latest_time_s(first_observation, observation),
                    f"{shorten(value)} was {describe(first_observation)} at {first_offset}, "
                    f"and {describe(observation)} at {offset}",
                )


def _all_offsets(observed: ObservedLogs, log: Log) -> Iterator[tuple[int, Value, Observation]]:
    yield from log.all_reads()
    for offset, (value, send) in log.acknowledged.items():
        if not observed.is_hidden(send):
            yield offset, value, send


def inconsistent_offsets(observed: ObservedLogs) -> Iterator[Anomaly]:
    """Find offsets at which different values were read or acknowledged."""
    for partition, log in observed.logs.items():
        for (kind, offset, value), (first, first_observation, observation) in log.conflicts.items():
            yield Anomaly(
                kind,
                partition,
                (offset,),
                (first, value),
                names(first_observation, observation),
                latest_time_s(first_observation, observation),
                f"{shorten(first)} was {describe(first_observation)}, and {shorten(value)} was {describe(observation)}",
            )


def non_monotonic_sends(observed: ObservedLogs) -> Iterator[Anomaly]:
    """Find acknowledged sends at a lower offset than an earlier send of the same producer."""
    ends: dict[tuple[str, Partition], tuple[int, Value]] = {}
    for send in observed.history.sends:
        if send.outcome is not Outcome.OK or send.base_offset == NO_OFFSET or not send.values:
            continue
        key = send.producer, send.partition
        end, last = ends.get(key, (0, None))
        if send.base_offset < end:
            yield Anomaly(
                Kind.NON_MONOTONIC_SEND,
                send.partition,
                (send.base_offset, end - 1),
                (send.values[0], last),
                (send.producer,),
                send.answered_s,
                f"{shorten(last)} of {send.producer} was acknowledged at {end - 1}, and "
                f"{shorten(send.values[0])}, which it sent later, at {send.base_offset}",
            )
        ends[key] = send.base_offset + len(send.values), send.values[-1]


def unsent_reads(observed: ObservedLogs) -> Iterator[Anomaly]:
    """Find values that were read but never sent, in partitions with at least one send."""
    for partition, log in observed.logs.items():
        if not log.sent or log.read_values <= log.sent:
            continue
        for offset, value, poll in log.all_reads():
            if value not in log.sent:
                yield _unsent_read(partition, offset, value, poll)


def _unsent_read(partition: Partition, offset: int, value: Value, poll: Poll) -> Anomaly:
    text = f"{shorten(value)} was {describe(poll)} but never sent"
    return Anomaly(Kind.UNSENT_READ, partition, (offset,), (value,), names(poll), poll.at_s, text)
