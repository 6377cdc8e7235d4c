"""Records that readers were given although they were to be kept from them."""

from __future__ import annotations

from collections.abc import Iterator

from kreplica.testing.anomalies.history import Outcome, Partition, Poll, Send, Value
from kreplica.testing.anomalies.kinds import Anomaly, Kind
from kreplica.testing.anomalies.observed_log import Tellings, shown


def hidden_reads(tellings: Tellings) -> Iterator[Anomaly]:
    """Records of refused writes and aborted transactions that were read, and of others before their commit."""
    conditional = tellings.conditional
    if not conditional:
        return
    told: set[tuple[Partition, Value]] = set()
    for poll in tellings.history.reads:
        if not isinstance(poll, Poll):
            continue
        for offset, value in poll.records:
            key = poll.partition, value
            send = conditional.get(key)
            kind = None if send is None or key in told else _wrong_read(tellings, send, poll)
            if send is not None and kind is not None:
                told.add(key)
                yield _anomaly(kind, send, poll, offset, value)


def _wrong_read(tellings: Tellings, send: Send, poll: Poll) -> Kind | None:
    """What is wrong with this reader's being given a record of that send."""
    if send.outcome is Outcome.FAILED:
        return Kind.ABORTED_READ
    if not poll.read_committed:
        return None
    if tellings.is_refused(send):
        return Kind.ABORTED_READ
    early = poll.at_s < tellings.history.transactions[send.transaction].ending_s
    return Kind.PRECOMMITTED_READ if early else None


def _anomaly(kind: Kind, send: Send, poll: Poll, offset: int, value: Value) -> Anomaly:
    if send.outcome is Outcome.FAILED:
        why = f"was refused to {send.producer}"
    elif kind is Kind.ABORTED_READ:
        why = f"is of the aborted transaction {send.transaction} of {send.producer}"
    else:
        why = f"is of the transaction {send.transaction} of {send.producer}, whose commit was not asked for yet"
    return Anomaly(
        kind,
        poll.partition,
        (offset,),
        (value,),
        (send.producer, poll.consumer),
        poll.at_s,
        f"{shown(value)} was read by {poll.consumer}, but {why}",
    )
