"""Handwritten histories with each kind of anomaly, and similar histories without one."""

from __future__ import annotations

import pytest

from kreplica.testing.anomalies import ClientHistory, Expectations, Kind, find_anomalies, report
from kreplica.testing.anomalies.history import NO_OFFSET


class Story:
    """Builder for a client history: writes are acknowledged at once, and each step takes one second."""

    def __init__(self):
        self.history = ClientHistory()
        self.now_s = 0.0

    def _tick(self):
        self.now_s += 1.0
        return self.now_s

    def write(self, values, offset, *, producer="p", transaction=None, partition=0):
        number = self.history.sending(producer, partition, list(values), self._tick(), transaction)
        self.history.acknowledged(number, offset, self._tick())
        return self

    def rejected(self, values):
        self.history.rejected(self.history.sending("p", 0, list(values), self._tick()), self._tick())
        return self

    def unanswered(self, values, *, transaction=None):
        self.history.sending("p", 0, list(values), self._tick(), transaction)
        return self

    def read(self, *records, consumer="c", partition=0, read_committed=True):
        self.history.polled(consumer, partition, records, self._tick(), read_committed=read_committed)
        return self

    def seek(self, offset, *, consumer="c"):
        self.history.sought(consumer, 0, offset, self._tick())
        return self

    def assign(self, *partitions, consumer="c"):
        self.history.assigned(consumer, partitions, self._tick())
        return self

    def begin(self, name):
        self.history.began(name, "p", self._tick())
        return self

    def ending(self, name, *, commit):
        self.history.ending(name, self._tick(), commit=commit)
        return self

    def ended(self, name, *, committed):
        self.history.ended(name, committed=committed)
        return self

    @property
    def anomaly_kinds(self):
        return [anomaly.kind for anomaly in find_anomalies(self.history)]

    @property
    def only_anomaly(self):
        (anomaly,) = find_anomalies(self.history)
        return anomaly


@pytest.fixture
def story():
    return Story()


def log(values, first=0):
    """Return records at consecutive offsets."""
    return list(enumerate(values, first))


# --- writes -----------------------------------------------------------------------------------------------------------


def test_no_anomaly(story):
    """All readers receive the acknowledged records at their offsets."""
    story.write("ab", 0).write("c", 2).read(*log("ab")).read((2, "c")).read(*log("abc"), consumer="late")
    assert story.anomaly_kinds == []


def test_lost_write(story):
    """A record was acknowledged, and readers continued beyond its offset without receiving it."""
    story.write("a", 0).write("b", 1).write("c", 2).read((0, "a"), (2, "c"))
    anomaly = story.only_anomaly
    assert (anomaly.kind, anomaly.offsets, anomaly.values, anomaly.clients) == (Kind.LOST_WRITE, (1,), ("b",), ("p",))
    assert str(anomaly) == (
        "     4.000 s  lost write: 0 at 1: 'b' was acknowledged to p but never read; other records were read up to 2"
    )


def test_lost_write_at_the_last_offset(story):
    """A record was acknowledged at the highest offset that was read, but readers received another record there."""
    story.write("a", 0).write("b", 1).unanswered("c").read((0, "a"), (1, "c"))
    assert story.anomaly_kinds == [Kind.LOST_WRITE, Kind.INCONSISTENT_ACKNOWLEDGEMENT]


def test_a_record_read_by_one_reader_is_not_lost(story):
    """A record that only one reader received is not lost; the other reader has skipped it."""
    story.write("abc", 0).read((0, "a"), (1, "b"), (2, "c")).read((0, "a"), (2, "c"), consumer="d")
    assert story.anomaly_kinds == [Kind.POLL_SKIP_WITHIN]


@pytest.mark.parametrize("how", ["rejected", "unanswered"])
def test_an_unacknowledged_record_is_not_lost(story, how):
    story.write("a", 0)
    getattr(story, how)("b")
    assert story.write("c", 2).read((0, "a"), (2, "c")).anomaly_kinds == []


def test_unseen(story):
    """A record was acknowledged at an offset above all that were read."""
    story.write("a", 0).write("b", 1).read((0, "a"))
    assert (story.only_anomaly.kind, story.only_anomaly.offsets) == (Kind.UNSEEN, (1,))


def test_unread_partition_has_no_anomaly(story):
    """Without reads, no loss can be detected."""
    assert story.write("a", 0).anomaly_kinds == [Kind.UNSEEN]


def test_unseen_at_an_unknown_offset(story):
    """A record was acknowledged only by inference from a later one, without an offset, and was not read."""
    story.write("a", NO_OFFSET).write("b", 1).read((1, "b"))
    assert (story.only_anomaly.kind, story.only_anomaly.offsets) == (Kind.UNSEEN, ())
    assert "at an unknown offset" in str(story.only_anomaly)


def test_seen_at_an_unknown_offset(story):
    """A record acknowledged without an offset may be read at any offset."""
    assert story.write("a", NO_OFFSET).read((7, "a")).anomaly_kinds == []


def test_duplicate(story):
    """A retry was written as a second record: readers receive it twice."""
    story.write("a", 0).write("b", 2).read((0, "a"), (1, "a"), (2, "b"))
    assert (story.only_anomaly.kind, story.only_anomaly.offsets, story.only_anomaly.values) == (
        Kind.DUPLICATE,
        (0, 1),
        ("a",),
    )


def test_duplicate_by_acknowledgement(story):
    """A record was read at an offset other than the acknowledged one, which no reader has reached."""
    assert story.write("a", 5).read((0, "a")).anomaly_kinds == [Kind.DUPLICATE]


def test_no_duplicate_in_another_partition(story):
    story.write("a", 0).write("b", 0, partition=1).write("a", 1, partition=1)
    assert story.read((0, "a")).read((0, "b"), (1, "a"), partition=1).anomaly_kinds == []


def test_no_duplicate_when_read_again(story):
    """Two readers, or one that seeks back, receive the same record at the same offset."""
    assert story.write("a", 0).read((0, "a")).seek(0).read((0, "a")).read((0, "a"), consumer="d").anomaly_kinds == []


def test_inconsistent_offsets(story):
    """Two readers receive different records at one offset."""
    story.write("a", 0).unanswered("b").read((0, "a")).read((0, "b"), consumer="d")
    assert (story.only_anomaly.kind, story.only_anomaly.offsets, story.only_anomaly.values) == (
        Kind.INCONSISTENT_OFFSETS,
        (0,),
        ("a", "b"),
    )
    assert story.only_anomaly.clients == ("c", "d")


def test_inconsistent_acknowledgement(story):
    """A producer received the offset of another record."""
    story.write("a", 0).write("b", 0, producer="q").read((0, "a"), (1, "b"))
    assert (story.only_anomaly.kind, story.only_anomaly.clients) == (Kind.INCONSISTENT_ACKNOWLEDGEMENT, ("c", "q"))


def test_inconsistent_acknowledgements_alone(story):
    """Two producers received the same offset, although no reader has reached it yet."""
    story.write("a", 0).write("b", 0, producer="q")
    assert Kind.INCONSISTENT_ACKNOWLEDGEMENT in story.anomaly_kinds


def test_an_unanswered_send_is_consistent(story):
    """An unanswered send may be at any offset."""
    assert story.unanswered("a").write("b", 1).read((0, "a"), (1, "b")).anomaly_kinds == []


def test_non_monotonic_send(story):
    """A producer's later record was acknowledged at a lower offset than an earlier one."""
    story.write("ab", 1).write("c", 0).read((0, "c"), (1, "a"), (2, "b"))
    assert (story.only_anomaly.kind, story.only_anomaly.offsets, story.only_anomaly.values) == (
        Kind.NON_MONOTONIC_SEND,
        (0, 2),
        ("c", "b"),
    )


def test_sends_to_other_partitions_or_by_other_producers_are_unordered(story):
    """No order is required between producers, nor between one producer's partitions."""
    story.write("a", 1).write("b", 0, producer="q").write("c", 0, partition=1)
    assert story.read((0, "b"), (1, "a")).read((0, "c"), partition=1).anomaly_kinds == []


def test_unsent_read(story):
    """A reader received a record that was never sent: corrupted bytes, or another topic's record."""
    story.write("a", 0).read((0, "a"), (1, "?"))
    assert (story.only_anomaly.kind, story.only_anomaly.offsets, story.only_anomaly.values) == (
        Kind.UNSENT_READ,
        (1,),
        ("?",),
    )


def test_reads_without_sends(story):
    """In a history without sends, readers are only compared with each other."""
    assert story.read((0, "x")).read((0, "x"), consumer="d").anomaly_kinds == []


# --- polls ------------------------------------------------------------------------------------------------------------


def test_poll_skip_between(story):
    """A reader's next poll starts after a record that another reader received."""
    story.write("abc", 0).read((0, "a")).read((2, "c")).read(*log("abc"), consumer="d")
    assert (story.only_anomaly.kind, story.only_anomaly.offsets, story.only_anomaly.clients) == (
        Kind.POLL_SKIP_BETWEEN,
        (1,),
        ("c", "d"),
    )


def test_poll_skip_after_a_seek(story):
    """A reader requested an offset and received a later one, although the first exists."""
    story.write("ab", 0).read(*log("ab"), consumer="d").seek(0).read((1, "b"))
    assert (story.only_anomaly.kind, story.only_anomaly.offsets) == (Kind.POLL_SKIP_BETWEEN, (0,))


def test_no_skip_over_offsets_without_records(story):
    """Transaction markers and compaction leave offsets without records."""
    assert (
        story.write("a", 0)
        .write("b", 2)
        .read((0, "a"))
        .read((2, "b"))
        .read((0, "a"), (2, "b"), consumer="d")
        .anomaly_kinds
        == []
    )


def test_no_skip_after_truncation_before_the_position(story):
    """A reader continues at its position after records were truncated and new ones written up to it."""
    story.write("abc", 0).read(*log("abc"))
    story.history.forget_from(0, 1)
    assert story.write("xyz", 1).read((3, "z")).read(*log("axyz"), consumer="d").anomaly_kinds == []


def test_skip_after_truncation_beyond_the_position(story):
    """A reader that had not reached the truncation must not skip records."""
    story.write("abc", 0).read((0, "a")).read(*log("abc"), consumer="e")
    story.history.forget_from(0, 1)
    story.write("xyz", 1).read((3, "z")).read(*log("axyz"), consumer="d")
    assert (story.only_anomaly.kind, story.only_anomaly.clients) == (Kind.POLL_SKIP_BETWEEN, ("c", "d"))


def test_no_skip_after_an_assignment(story):
    """Reading may start anywhere in a newly assigned partition, but continues in a retained one."""
    story.write("abc", 0).read(*log("abc"), consumer="d")
    assert story.read((0, "a")).assign().assign(0).read((2, "c")).anomaly_kinds == []
    assert Story().write("abc", 0).read(*log("abc"), consumer="d").assign(0).read((0, "a")).assign(0, 1).read(
        (2, "c")
    ).anomaly_kinds == [Kind.POLL_SKIP_BETWEEN]


def test_non_monotonic_poll_within(story):
    """Offsets decrease within one poll."""
    story.write("ab", 0).read((0, "a"), (1, "b"), (0, "a"))
    assert (story.only_anomaly.kind, story.only_anomaly.offsets) == (Kind.NON_MONOTONIC_POLL_WITHIN, (0,))


def test_the_same_record_twice_in_a_poll(story):
    assert story.write("a", 0).read((0, "a"), (0, "a")).anomaly_kinds == [Kind.NON_MONOTONIC_POLL_WITHIN]


def test_non_monotonic_poll_between(story):
    """A poll returns a record again although the reader did not seek."""
    story.write("ab", 0).read(*log("ab")).read((1, "b"))
    assert (story.only_anomaly.kind, story.only_anomaly.offsets) == (Kind.NON_MONOTONIC_POLL_BETWEEN, (1,))


def test_empty_polls(story):
    """An empty poll does not change the position."""
    assert story.write("ab", 0).read((0, "a")).read().read((1, "b")).anomaly_kinds == []


# --- transactions -----------------------------------------------------------------------------------------------------


def test_aborted_read_of_a_refused_write(story):
    """The producer received an error for a record that was read."""
    story.rejected("a").read((0, "a"))
    assert (story.only_anomaly.kind, story.only_anomaly.values, story.only_anomaly.clients) == (
        Kind.ABORTED_READ,
        ("a",),
        ("p", "c"),
    )


def test_no_aborted_read_of_a_retry(story):
    """A rejected record that was then sent again may be read."""
    assert story.rejected("a").write("a", 0).read((0, "a")).anomaly_kinds == []


@pytest.mark.parametrize("state", ["abort requested", "aborted", "commit refused"])
def test_aborted_read(story, state):
    story.begin("t").write("a", 0, transaction="t").ending("t", commit=state == "commit refused")
    if state != "abort requested":
        story.ended("t", committed=False)
    assert story.read((0, "a")).anomaly_kinds == [Kind.ABORTED_READ]


def test_aborted_records_are_skipped(story):
    """Only readers with read_uncommitted receive aborted records."""
    story.begin("t").write("a", 0, transaction="t").ending("t", commit=False).write("b", 2)
    assert (
        story.read((0, "a"), (2, "b"), read_committed=False)
        .seek(0, consumer="d")
        .read((2, "b"), consumer="d")
        .anomaly_kinds
        == []
    )


def test_precommitted_read(story):
    """A record was read before the commit of its transaction was requested."""
    story.begin("t").write("a", 0, transaction="t").read((0, "a")).ending("t", commit=True).ended("t", committed=True)
    assert story.only_anomaly.kind is Kind.PRECOMMITTED_READ


def test_precommitted_read_of_an_open_transaction(story):
    """A record was read although its transaction was never ended."""
    assert story.begin("t").write("a", 0, transaction="t").read((0, "a")).anomaly_kinds == [Kind.PRECOMMITTED_READ]


@pytest.mark.parametrize("known", [True, False])
def test_read_once_committed(story, known):
    """Records may be read as soon as the commit is requested, even if its outcome is never known."""
    story.begin("t").write("a", 0, transaction="t").ending("t", commit=True)
    if known:
        story.ended("t", committed=True)
    assert story.read((0, "a")).anomaly_kinds == []


@pytest.mark.parametrize(("committed", "kinds"), [(True, [Kind.LOST_WRITE]), (False, [])])
def test_lost_write_of_a_transaction(story, committed, kinds):
    """Records of a committed transaction must exist, even if they were not acknowledged before its end."""
    story.begin("t").write("a", 0, transaction="t").ending("t", commit=True).ended("t", committed=committed)
    assert story.write("b", 2).read((2, "b")).anomaly_kinds == kinds


def test_unknown_commit_guarantees_nothing(story):
    """If the outcome of a commit is unknown, its records may exist or not."""
    story.begin("t").write("a", 0, transaction="t").ending("t", commit=True)
    assert story.write("b", 2).read((2, "b")).anomaly_kinds == []


def test_sent_again_after_an_abort(story):
    """A record in an aborted and then in a committed transaction is in the log once."""
    story.begin("t").write("a", 0, transaction="t").ending("t", commit=False)
    story.begin("u").write("a", 2, transaction="u").ending("u", commit=True).ended("u", committed=True)
    assert story.read((2, "a")).anomaly_kinds == []


# --- the report -------------------------------------------------------------------------------------------------------


def test_report(story):
    """The report counts all kinds, separates errors from allowed violations, and shows a few examples of each."""
    story.write([f"v{number}" for number in range(1000)], 0).write("z", 1000).read((1000, "z"))
    anomaly_kinds = report(story.history)
    assert anomaly_kinds.counts == anomaly_kinds.errors == {Kind.LOST_WRITE: 1000}
    assert anomaly_kinds.lines()[0] == "1000 x lost write (error)"
    assert 2 < len(anomaly_kinds.lines()) < 50
    with pytest.raises(AssertionError, match="1000 x lost write"):
        anomaly_kinds.check()


def test_report_of_nothing(story):
    """A clean history has a table of zeros, and passes."""
    anomaly_kinds = report(story.write("a", 0).read((0, "a")).history)
    anomaly_kinds.check()
    assert [row.kind for row in anomaly_kinds.rows] == list(Kind)
    assert not anomaly_kinds.lines()


@pytest.mark.parametrize(
    ("expectations", "noteworthy"),
    [
        (Expectations(), set()),
        (Expectations(caught_up=False), {Kind.UNSEEN}),
        (Expectations(written_once=False), {Kind.DUPLICATE, Kind.NON_MONOTONIC_SEND}),
        (
            Expectations(kept=False),
            {
                Kind.LOST_WRITE,
                Kind.UNSEEN,
                Kind.INCONSISTENT_ACKNOWLEDGEMENT,
                Kind.DUPLICATE,
                Kind.NON_MONOTONIC_SEND,
            },
        ),
    ],
)
def test_expectations(expectations, noteworthy):
    """Violations that the settings allow are noteworthy; violations of general guarantees are always errors."""
    assert {kind for kind in Kind if not expectations.is_error(kind)} == noteworthy


def test_records_may_be_deleted(story):
    """A record below the highest log start offset may be missing; a lost write above it is an error."""
    history = story.write("abcd", 0).read((3, "d")).history
    assert not report(history, Expectations(kept_from=3)).counts
    assert report(history, Expectations(kept_from=2)).errors == {Kind.LOST_WRITE: 1}
    assert report(history).errors == {Kind.LOST_WRITE: 3}


def test_records_of_an_unknown_offset_may_be_deleted(story):
    """If deletion is allowed, an unread record without a known offset may have been deleted."""
    history = story.write("ab", NO_OFFSET).read((3, "d")).history
    assert Kind.UNSEEN not in report(history, Expectations(kept_from=1)).counts
    assert report(history).errors[Kind.UNSEEN] == 2


def test_allowed_losses_pass(story):
    """With ``acks=1``, a lost write is reported but does not fail the check."""
    anomaly_kinds = report(story.write("ab", 0).read((1, "b")).history, Expectations(kept=False))
    anomaly_kinds.check()
    assert anomaly_kinds.counts == {Kind.LOST_WRITE: 1}
    assert anomaly_kinds.lines()[0] == "1 x lost write (noteworthy)"
