"""What became of what was sent: records that are lost, there twice, or elsewhere than was told."""

from __future__ import annotations

from collections.abc import Iterator

from kreplica.testing.anomalies.history import NO_OFFSET, Outcome, Partition, Poll, Send, Value
from kreplica.testing.anomalies.kinds import Anomaly, Kind
from kreplica.testing.anomalies.observed_log import Log, Telling, Tellings, how, last_s, names, shown


def lost_writes(tellings: Tellings) -> Iterator[Anomaly]:
    """Acknowledged records that nobody was given: lost where anybody read as far or further, else not seen (yet)."""
    for send in tellings.history.sends:
        log = tellings.logs[send.partition]
        if not tellings.is_promised(send) or log.read_values.issuperset(send.values):
            continue
        last = log.read_offsets[-1] if log.read_offsets else NO_OFFSET
        for index, value in enumerate(send.values):
            if value not in log.read_values:
                offset = NO_OFFSET if send.base_offset == NO_OFFSET else send.base_offset + index
                yield _not_read(send, offset, value, last)


def _not_read(send: Send, offset: int, value: Value, last: int) -> Anomaly:
    others = "nobody read anything" if last == NO_OFFSET else f"others were read up to {last}"
    return Anomaly(
        Kind.LOST_WRITE if NO_OFFSET < offset <= last else Kind.UNSEEN,
        send.partition,
        () if offset == NO_OFFSET else (offset,),
        (value,),
        (send.producer,),
        send.answered_s,
        f"{shown(value)} was acknowledged to {send.producer} and read by nobody; {others}",
    )


def duplicates(tellings: Tellings) -> Iterator[Anomaly]:
    """Values that stand at two offsets, by what was read and, where nobody read, by what was acknowledged."""
    for partition, log in tellings.logs.items():
        if len(log.read) == len(log.read_values) and not (log.acknowledged or log.disputes):
            continue  # as it should be, and quickly seen
        first: dict[Value, tuple[int, Telling]] = {}
        for offset, value, telling in _placed(tellings, log):
            before, by = first.setdefault(value, (offset, telling))
            if before != offset:
                yield Anomaly(
                    Kind.DUPLICATE,
                    partition,
                    (min(before, offset), max(before, offset)),
                    (value,),
                    names(by, telling),
                    last_s(by, telling),
                    f"{shown(value)} was {how(by)} at {before}, and {how(telling)} at {offset}",
                )


def _placed(tellings: Tellings, log: Log) -> Iterator[tuple[int, Value, Telling]]:
    yield from log.placed_by_reads()
    for offset, (value, send) in log.acknowledged.items():
        if not tellings.is_held_back(send):
            yield offset, value, send


def inconsistent_offsets(tellings: Tellings) -> Iterator[Anomaly]:
    """Offsets at which several values were read, or acknowledged others than were read."""
    for partition, log in tellings.logs.items():
        for (kind, offset, value), (first, by, telling) in log.disputes.items():
            yield Anomaly(
                kind,
                partition,
                (offset,),
                (first, value),
                names(by, telling),
                last_s(by, telling),
                f"{shown(first)} was {how(by)}, and {shown(value)} was {how(telling)}",
            )


def non_monotonic_sends(tellings: Tellings) -> Iterator[Anomaly]:
    """Acknowledged sends that stand before an earlier one of the same producer."""
    ends: dict[tuple[str, Partition], tuple[int, Value]] = {}
    for send in tellings.history.sends:
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
                f"{send.producer} was told {end - 1} for {shown(last)}, and {send.base_offset} for "
                f"{shown(send.values[0])}, which it sent later",
            )
        ends[key] = send.base_offset + len(send.values), send.values[-1]


def unsent_reads(tellings: Tellings) -> Iterator[Anomaly]:
    """Values that were read but that nobody sent, in partitions to which anybody sent anything."""
    for partition, log in tellings.logs.items():
        if not log.sent or log.read_values <= log.sent:
            continue
        for offset, value, poll in log.placed_by_reads():
            if value not in log.sent:
                yield _unsent(partition, offset, value, poll)


def _unsent(partition: Partition, offset: int, value: Value, poll: Poll) -> Anomaly:
    text = f"{shown(value)} was {how(poll)}, and sent by nobody"
    return Anomaly(Kind.UNSENT_READ, partition, (offset,), (value,), names(poll), poll.at_s, text)
