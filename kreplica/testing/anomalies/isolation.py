"""Reads of records that were rejected, aborted or not committed yet."""

from __future__ import annotations

from collections.abc import Iterator

from kreplica.testing.anomalies.history import Outcome, Partition, Poll, Send, Value
from kreplica.testing.anomalies.kinds import Anomaly, Kind
from kreplica.testing.anomalies.observed_log import ObservedLogs, shorten


def hidden_record_reads(observed: ObservedLogs) -> Iterator[Anomaly]:
    """Find reads of rejected and aborted records, and read_committed reads before the commit was requested."""
    conditional = observed.conditional
    if not conditional:
        return
    reported: set[tuple[Partition, Value]] = set()
    for poll in observed.history.reads:
        if not isinstance(poll, Poll):
            continue
        for offset, value in poll.records:
            key = poll.partition, value
            send = conditional.get(key)
            kind = None if send is None or key in reported else _hidden_read_kind(observed, send, poll)
            if send is not None and kind is not None:
                reported.add(key)
                yield _anomaly(kind, send, poll, offset, value)


def _hidden_read_kind(observed: ObservedLogs, send: Send, poll: Poll) -> Kind | None:
    """Return the anomaly if the poll returned a record of the send; None if the poll was allowed to return it."""
    if send.outcome is Outcome.FAILED:
        return Kind.ABORTED_READ
    if not poll.read_committed:
        return None
    if observed.is_rejected(send):
        return Kind.ABORTED_READ
    is_early = poll.at_s < observed.history.transactions[send.transaction].ending_s
    return Kind.PRECOMMITTED_READ if is_early else None


def _anomaly(kind: Kind, send: Send, poll: Poll, offset: int, value: Value) -> Anomaly:
    if send.outcome is Outcome.FAILED:
        reason = f"its send by {send.producer} was rejected"
    elif kind is Kind.ABORTED_READ:
        reason = f"belongs to the aborted transaction {send.transaction} of {send.producer}"
    else:
        reason = f"belongs to transaction {send.transaction} of {send.producer}, whose commit was not requested yet"
    return Anomaly(
        kind,
        poll.partition,
        (offset,),
        (value,),
        (send.producer, poll.consumer),
        poll.at_s,
        f"{shorten(value)} was read by {poll.consumer}, but {reason}",
    )
