"""Generated histories of a correct log have no anomaly; after one change they have exactly the matching anomaly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from kreplica.testing.anomalies import ClientHistory, Kind, find_anomalies
from kreplica.testing.anomalies.history import Outcome, Poll

PARTITION = "t-0"
few_examples = settings(max_examples=40, suppress_health_check=[HealthCheck.filter_too_much])
PLAIN, COMMITTED, ABORTED, REJECTED, UNANSWERED, UNANSWERED_LOST = range(6)


@dataclass
class Generated:
    """A history and its log.

    :ivar log: records in the log, including those of unanswered sends.
    """

    history: ClientHistory = field(default_factory=ClientHistory)
    log: list[tuple[int, int]] = field(default_factory=list)
    end: int = 0
    now_s: float = 0.0

    def tick(self) -> float:
        self.now_s += 1.0
        return self.now_s


@st.composite
def histories(draw) -> Generated:
    """Producers write batches with every outcome; then readers read everything, in polls of any size."""
    generated = Generated()
    numbers = iter(range(10_000))
    fates = st.sampled_from([PLAIN, PLAIN, PLAIN, COMMITTED, ABORTED, REJECTED, UNANSWERED, UNANSWERED_LOST])
    producers = st.sampled_from(["p", "q"])
    for producer, size, fate in draw(st.lists(st.tuples(producers, st.integers(1, 4), fates), min_size=3, max_size=12)):
        write(generated, producer, [next(numbers) for _ in range(size)], fate)
    for reader in range(draw(st.integers(2, 3))):
        generated.history.sought(f"reader-{reader}", PARTITION, 0, generated.tick())
        at = 0
        while at < len(generated.log):
            size = draw(st.integers(1, 5))
            generated.history.polled(f"reader-{reader}", PARTITION, generated.log[at : at + size], generated.tick())
            at += size
    return generated


def write(generated: Generated, producer: str, values: list[int], fate: int) -> None:
    history, transaction = generated.history, values[0] if fate in (COMMITTED, ABORTED) else None
    if transaction is not None:
        history.began(transaction, producer, generated.tick())
    number = history.sending(producer, PARTITION, values, generated.tick(), transaction)
    if fate == REJECTED:
        history.rejected(number, generated.tick())
    if fate in (REJECTED, UNANSWERED_LOST):
        return
    if fate != ABORTED:
        generated.log += enumerate(values, generated.end)
    if fate != UNANSWERED:
        history.acknowledged(number, generated.end, generated.tick())
    generated.end += len(values)
    if transaction is not None:
        history.ending(transaction, generated.tick(), commit=fate == COMMITTED)
        history.ended(transaction, committed=fate == COMMITTED)
        generated.end += 1


def kinds(generated: Generated) -> list[Kind]:
    return [anomaly.kind for anomaly in find_anomalies(generated.history)]


@few_examples
@given(histories())
def test_no_fault_no_anomaly(generated):
    """A history with errors, aborts and unanswered sends has no anomaly if the log is correct."""
    assert kinds(generated) == []


# --- one change ------------------------------------------------------------------------------------------------------


def acknowledged(generated: Generated) -> list[tuple[int, int]]:
    """Return the records that readers must receive."""
    sends = [send for send in generated.history.sends if send.outcome is Outcome.OK]
    required = {value for send in sends for value in send.values}
    return [record for record in generated.log if record[1] in required]


def change_polls(generated: Generated, change: Callable[[Poll], list[tuple[int, int]]]) -> None:
    reads = generated.history.reads
    reads[:] = [read._replace(records=change(read)) if isinstance(read, Poll) else read for read in reads]


def polls_of(generated: Generated, reader: str) -> list[int]:
    return [
        index
        for index, read in enumerate(generated.history.reads)
        if isinstance(read, Poll) and read.consumer == reader
    ]


@few_examples
@given(histories(), st.data())
def test_a_record_is_gone(generated, data):
    """An acknowledged record that no reader receives is lost if later records were read, otherwise unseen."""
    assume(acknowledged(generated))
    gone = data.draw(st.sampled_from(acknowledged(generated)))
    change_polls(generated, lambda poll: [record for record in poll.records if record != gone])
    assert kinds(generated) == [Kind.UNSEEN if gone == generated.log[-1] else Kind.LOST_WRITE]


@few_examples
@given(histories(), st.data())
def test_one_reader_misses_a_record(generated, data):
    """A reader skips a record that other readers receive."""
    assume(len(generated.log) > 1)
    missed = data.draw(st.sampled_from(generated.log[:-1]))
    change_polls(
        generated, lambda poll: [each for each in poll.records if each != missed or poll.consumer != "reader-0"]
    )
    (kind,) = kinds(generated)
    assert kind in (Kind.POLL_SKIP_WITHIN, Kind.POLL_SKIP_BETWEEN)


@few_examples
@given(histories(), st.data())
def test_a_record_is_written_again(generated, data):
    """Readers receive a value at two offsets."""
    assume(generated.log)
    again = data.draw(st.sampled_from(generated.log))
    generated.history.polled("reader-0", PARTITION, [(generated.end, again[1])], generated.tick())
    assert kinds(generated) == [Kind.DUPLICATE]


@few_examples
@given(histories(), st.data())
def test_a_reader_receives_a_different_record(generated, data):
    """At one offset, a reader receives a different value than the other readers."""
    assume(generated.log)
    offset, _ = data.draw(st.sampled_from(generated.log))
    generated.history.sending("r", PARTITION, [-1], generated.tick())
    change_polls(
        generated,
        lambda poll: [(o, -1 if (poll.consumer, o) == ("reader-1", offset) else value) for o, value in poll.records],
    )
    assert kinds(generated) == [Kind.INCONSISTENT_OFFSETS]


@few_examples
@given(histories(), st.data())
def test_an_acknowledgement_is_wrong(generated, data):
    """A producer receives the offset of another producer's record."""
    sends = generated.history.sends
    plain = [at for at, send in enumerate(sends) if send.outcome is Outcome.OK and send.transaction is None]
    assume(len(plain) > 1)
    wrong = data.draw(st.sampled_from(plain))
    right = data.draw(st.sampled_from([at for at in plain if at != wrong]))
    sends[wrong] = sends[wrong]._replace(
        producer="r", values=sends[wrong].values[:1], base_offset=sends[right].base_offset
    )
    generated.history.sending("r", PARTITION, [value for _, value in generated.log], generated.tick())
    assert kinds(generated) == [Kind.INCONSISTENT_ACKNOWLEDGEMENT]


@few_examples
@given(histories(), st.data())
def test_a_poll_is_repeated(generated, data):
    """A reader receives the same records again."""
    assume(generated.log)
    last = generated.history.reads[polls_of(generated, "reader-1")[-1]]
    generated.history.reads.append(last)
    assert kinds(generated) == [Kind.NON_MONOTONIC_POLL_BETWEEN]


@few_examples
@given(histories(), st.data())
def test_a_poll_goes_back(generated, data):
    """A poll returns its first record again as its last one."""
    assume(generated.log)
    at = polls_of(generated, "reader-1")[-1]
    last = generated.history.reads[at]
    generated.history.reads[at] = last._replace(records=[*last.records, last.records[0]])
    assert kinds(generated) == [Kind.NON_MONOTONIC_POLL_WITHIN]


@few_examples
@given(histories(), st.data())
def test_two_sends_are_swapped(generated, data):
    """A producer's first record is after its second one in the log."""
    sends = generated.history.sends
    mine = [at for at, send in enumerate(sends) if send.producer == "p" and send.outcome is Outcome.OK]
    assume(len(mine) > 1)
    index = data.draw(st.integers(0, len(mine) - 2))
    first, second = mine[index], mine[index + 1]
    sends[first], sends[second] = sends[second], sends[first]
    assert set(kinds(generated)) == {Kind.NON_MONOTONIC_SEND}


@few_examples
@given(histories(), st.data())
def test_a_rejected_record_is_read(generated, data):
    """A producer receives errors for records that readers receive."""
    sends = generated.history.sends
    logged_values = {value for _, value in generated.log}
    plain = [at for at, send in enumerate(sends) if send.values[0] in logged_values]
    assume(plain)
    at = data.draw(st.sampled_from(plain))
    sends[at] = sends[at]._replace(outcome=Outcome.FAILED, base_offset=-1)
    assert kinds(generated) == [Kind.ABORTED_READ] * len(sends[at].values)


@few_examples
@given(histories(), st.data())
def test_records_are_read_before_their_commit(generated, data):
    """Records of a transaction are read before its commit is requested."""
    sends = generated.history.sends
    committed = [
        send for send in sends if send.transaction is not None and send.values[0] in dict(map(reversed, generated.log))
    ]
    assume(committed)
    send = data.draw(st.sampled_from(committed))
    transactions = generated.history.transactions
    transactions[send.transaction] = transactions[send.transaction]._replace(ending_s=generated.tick())
    assert kinds(generated) == [Kind.PRECOMMITTED_READ] * len(send.values)


@few_examples
@given(histories())
def test_an_unsent_record_is_read(generated):
    """A reader receives a record that was never sent."""
    generated.history.polled("reader-1", PARTITION, [(generated.end, -1)], generated.tick())
    assert kinds(generated) == [Kind.UNSENT_READ]
