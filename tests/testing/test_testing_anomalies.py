"""Each kind of anomaly in a history made by hand, and beside it what comes close and is none."""

from __future__ import annotations

import pytest

from kreplica.testing.anomalies import ClientHistory, Expectations, Kind, find_anomalies, report
from kreplica.testing.anomalies.history import NO_OFFSET


class Story:
    """A history of one partition in few words: sends are acknowledged at once, a second passes with each step."""

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

    def refused(self, values):
        self.history.refused(self.history.sending("p", 0, list(values), self._tick()), self._tick())
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
    def found(self):
        return [anomaly.kind for anomaly in find_anomalies(self.history)]

    @property
    def only(self):
        (anomaly,) = find_anomalies(self.history)
        return anomaly


@pytest.fixture
def story():
    return Story()


def log(values, first=0):
    """Records that stand at consecutive offsets."""
    return list(enumerate(values, first))


# --- writes -----------------------------------------------------------------------------------------------------------


def test_all_is_well(story):
    """What was acknowledged is read at its offsets by everybody."""
    story.write("ab", 0).write("c", 2).read(*log("ab")).read((2, "c")).read(*log("abc"), consumer="late")
    assert story.found == []


def test_lost_write(story):
    """A record was acknowledged, and readers went on behind its offset without it."""
    story.write("a", 0).write("b", 1).write("c", 2).read((0, "a"), (2, "c"))
    anomaly = story.only
    assert (anomaly.kind, anomaly.offsets, anomaly.values, anomaly.who) == (Kind.LOST_WRITE, (1,), ("b",), ("p",))
    assert str(anomaly) == (
        "     4.000 s  lost write: 0 at 1: 'b' was acknowledged to p and read by nobody; others were read up to 2"
    )


def test_lost_write_at_the_last_offset(story):
    """A record was acknowledged at the highest offset that anybody read, where they were given another."""
    story.write("a", 0).write("b", 1).unanswered("c").read((0, "a"), (1, "c"))
    assert story.found == [Kind.LOST_WRITE, Kind.INCONSISTENT_ACKNOWLEDGEMENT]


def test_not_lost_but_read_by_one(story):
    """One reader is enough, whatever another one missed (which is a skip)."""
    story.write("abc", 0).read((0, "a"), (1, "b"), (2, "c")).read((0, "a"), (2, "c"), consumer="d")
    assert story.found == [Kind.POLL_SKIP_WITHIN]


@pytest.mark.parametrize("how", ["refused", "unanswered"])
def test_not_lost_but_never_acknowledged(story, how):
    """What nobody acknowledged need not be there."""
    story.write("a", 0)
    getattr(story, how)("b")
    assert story.write("c", 2).read((0, "a"), (2, "c")).found == []


def test_unseen(story):
    """A record was acknowledged behind all that anybody read."""
    story.write("a", 0).write("b", 1).read((0, "a"))
    assert (story.only.kind, story.only.offsets) == (Kind.UNSEEN, (1,))


def test_unseen_where_nobody_read(story):
    """Nothing was read at all: then nothing is known to be lost."""
    assert story.write("a", 0).found == [Kind.UNSEEN]


def test_unseen_at_an_unknown_offset(story):
    """Acknowledged by way of a later record, as some clients conclude, and not there."""
    story.write("a", NO_OFFSET).write("b", 1).read((1, "b"))
    assert (story.only.kind, story.only.offsets) == (Kind.UNSEEN, ())
    assert "at an unknown offset" in str(story.only)


def test_seen_at_an_unknown_offset(story):
    """Where a record stands matters to nobody who was not told."""
    assert story.write("a", NO_OFFSET).read((7, "a")).found == []


def test_duplicate(story):
    """A retry was written again: readers are given the record twice."""
    story.write("a", 0).write("b", 2).read((0, "a"), (1, "a"), (2, "b"))
    assert (story.only.kind, story.only.offsets, story.only.values) == (Kind.DUPLICATE, (0, 1), ("a",))


def test_duplicate_by_acknowledgement(story):
    """A record was read where it was not acknowledged, and nobody read where it was."""
    assert story.write("a", 5).read((0, "a")).found == [Kind.DUPLICATE]


def test_no_duplicate_in_another_partition(story):
    """Partitions have nothing to do with each other."""
    story.write("a", 0).write("b", 0, partition=1).write("a", 1, partition=1)
    assert story.read((0, "a")).read((0, "b"), (1, "a"), partition=1).found == []


def test_no_duplicate_when_read_again(story):
    """Two readers, or one that went back on purpose, are given the same record at the same offset."""
    assert story.write("a", 0).read((0, "a")).seek(0).read((0, "a")).read((0, "a"), consumer="d").found == []


def test_inconsistent_offsets(story):
    """Two readers are given different records at one offset."""
    story.write("a", 0).unanswered("b").read((0, "a")).read((0, "b"), consumer="d")
    assert (story.only.kind, story.only.offsets, story.only.values) == (Kind.INCONSISTENT_OFFSETS, (0,), ("a", "b"))
    assert story.only.who == ("c", "d")


def test_inconsistent_acknowledgement(story):
    """A producer was told an offset that another record has."""
    story.write("a", 0).write("b", 0, producer="q").read((0, "a"), (1, "b"))
    assert (story.only.kind, story.only.who) == (Kind.INCONSISTENT_ACKNOWLEDGEMENT, ("c", "q"))


def test_inconsistent_acknowledgements_alone(story):
    """Two producers were told the same offset, and nobody has read so far."""
    story.write("a", 0).write("b", 0, producer="q")
    assert Kind.INCONSISTENT_ACKNOWLEDGEMENT in story.found


def test_consistent_where_nobody_was_told(story):
    """An unanswered send may stand anywhere."""
    assert story.unanswered("a").write("b", 1).read((0, "a"), (1, "b")).found == []


def test_non_monotonic_send(story):
    """A producer's later record was acknowledged before an earlier one's offset."""
    story.write("ab", 1).write("c", 0).read((0, "c"), (1, "a"), (2, "b"))
    assert (story.only.kind, story.only.offsets, story.only.values) == (Kind.NON_MONOTONIC_SEND, (0, 2), ("c", "b"))


def test_monotonic_sends_of_several(story):
    """Producers, and partitions of one, are in no order with each other."""
    story.write("a", 1).write("b", 0, producer="q").write("c", 0, partition=1)
    assert story.read((0, "b"), (1, "a")).read((0, "c"), partition=1).found == []


def test_unsent_read(story):
    """A reader was given what nobody sent: bytes changed on the way, or another topic's."""
    story.write("a", 0).read((0, "a"), (1, "?"))
    assert (story.only.kind, story.only.offsets, story.only.values) == (Kind.UNSENT_READ, (1,), ("?",))


def test_readers_alone(story):
    """Where nobody's sends are known, readers are only compared with each other."""
    assert story.read((0, "x")).read((0, "x"), consumer="d").found == []


# --- polls ------------------------------------------------------------------------------------------------------------


def test_poll_skip_between(story):
    """A reader's next poll begins behind a record that another one was given."""
    story.write("abc", 0).read((0, "a")).read((2, "c")).read(*log("abc"), consumer="d")
    assert (story.only.kind, story.only.offsets, story.only.who) == (Kind.POLL_SKIP_BETWEEN, (1,), ("c", "d"))


def test_poll_skip_after_a_seek(story):
    """A reader asked for an offset, and was given a later one though the first is there."""
    story.write("ab", 0).read(*log("ab"), consumer="d").seek(0).read((1, "b"))
    assert (story.only.kind, story.only.offsets) == (Kind.POLL_SKIP_BETWEEN, (0,))


def test_no_skip_over_offsets_without_records(story):
    """Markers of transactions and compaction leave offsets that nobody is given."""
    assert (
        story.write("a", 0).write("b", 2).read((0, "a")).read((2, "b")).read((0, "a"), (2, "b"), consumer="d").found
        == []
    )


def test_no_skip_where_the_log_was_cut_behind_a_reader(story):
    """It goes on where it was, once others have written and read what is there now."""
    story.write("abc", 0).read(*log("abc"))
    story.history.forget_from(0, 1)
    assert story.write("xyz", 1).read((3, "z")).read(*log("axyz"), consumer="d").found == []


def test_skip_where_the_log_was_cut_ahead_of_a_reader(story):
    """One that had not come so far has no excuse."""
    story.write("abc", 0).read((0, "a")).read(*log("abc"), consumer="e")
    story.history.forget_from(0, 1)
    story.write("xyz", 1).read((3, "z")).read(*log("axyz"), consumer="d")
    assert (story.only.kind, story.only.who) == (Kind.POLL_SKIP_BETWEEN, ("c", "d"))


def test_no_skip_after_an_assignment(story):
    """A partition that comes to a reader may begin anywhere; one that stays goes on."""
    story.write("abc", 0).read(*log("abc"), consumer="d")
    assert story.read((0, "a")).assign().assign(0).read((2, "c")).found == []
    assert Story().write("abc", 0).read(*log("abc"), consumer="d").assign(0).read((0, "a")).assign(0, 1).read(
        (2, "c")
    ).found == [Kind.POLL_SKIP_BETWEEN]


def test_non_monotonic_poll_within(story):
    """Offsets go back in one poll."""
    story.write("ab", 0).read((0, "a"), (1, "b"), (0, "a"))
    assert (story.only.kind, story.only.offsets) == (Kind.NON_MONOTONIC_POLL_WITHIN, (0,))


def test_the_same_record_twice_in_a_poll(story):
    """An offset comes once."""
    assert story.write("a", 0).read((0, "a"), (0, "a")).found == [Kind.NON_MONOTONIC_POLL_WITHIN]


def test_non_monotonic_poll_between(story):
    """A poll gives again what an earlier one gave, and nobody asked for it."""
    story.write("ab", 0).read(*log("ab")).read((1, "b"))
    assert (story.only.kind, story.only.offsets) == (Kind.NON_MONOTONIC_POLL_BETWEEN, (1,))


def test_empty_polls(story):
    """A poll that gives nothing leaves the position where it is."""
    assert story.write("ab", 0).read((0, "a")).read().read((1, "b")).found == []


# --- transactions -----------------------------------------------------------------------------------------------------


def test_aborted_read_of_a_refused_write(story):
    """The producer was told that a record is not there, and it is."""
    story.refused("a").read((0, "a"))
    assert (story.only.kind, story.only.values, story.only.who) == (Kind.ABORTED_READ, ("a",), ("p", "c"))


def test_no_aborted_read_of_what_was_sent_again(story):
    """A refused record that was then sent again may be read."""
    assert story.refused("a").write("a", 0).read((0, "a")).found == []


@pytest.mark.parametrize("state", ["asked", "sure", "refused commit"])
def test_aborted_read(story, state):
    """A record of an aborted transaction was read."""
    story.begin("t").write("a", 0, transaction="t").ending("t", commit=state == "refused commit")
    if state != "asked":
        story.ended("t", committed=False)
    assert story.read((0, "a")).found == [Kind.ABORTED_READ]


def test_aborted_records_are_passed_over(story):
    """Readers of what is committed pass over aborted records; others are given them."""
    story.begin("t").write("a", 0, transaction="t").ending("t", commit=False).write("b", 2)
    assert (
        story.read((0, "a"), (2, "b"), read_committed=False).seek(0, consumer="d").read((2, "b"), consumer="d").found
        == []
    )


def test_precommitted_read(story):
    """A record was read before the commit of its transaction was asked for."""
    story.begin("t").write("a", 0, transaction="t").read((0, "a")).ending("t", commit=True).ended("t", committed=True)
    assert story.only.kind is Kind.PRECOMMITTED_READ


def test_precommitted_read_of_an_open_transaction(story):
    """A record was read whose transaction never ended."""
    assert story.begin("t").write("a", 0, transaction="t").read((0, "a")).found == [Kind.PRECOMMITTED_READ]


@pytest.mark.parametrize("known", [True, False])
def test_read_once_committed(story, known):
    """From when the commit is asked for on, its records may be read, whether or not its outcome is ever told."""
    story.begin("t").write("a", 0, transaction="t").ending("t", commit=True)
    if known:
        story.ended("t", committed=True)
    assert story.read((0, "a")).found == []


@pytest.mark.parametrize(("committed", "kinds"), [(True, [Kind.LOST_WRITE]), (False, [])])
def test_lost_write_of_a_transaction(story, committed, kinds):
    """Records of a committed transaction must be there, whatever was acknowledged before it ended."""
    story.begin("t").write("a", 0, transaction="t").ending("t", commit=True).ended("t", committed=committed)
    assert story.write("b", 2).read((2, "b")).found == kinds


def test_unknown_commit_promises_nothing(story):
    """Where nobody knows whether the commit came about, its records may be there or not."""
    story.begin("t").write("a", 0, transaction="t").ending("t", commit=True)
    assert story.write("b", 2).read((2, "b")).found == []


def test_sent_again_after_an_abort(story):
    """The same record, in a transaction that was aborted and then in one that was committed, stands there once."""
    story.begin("t").write("a", 0, transaction="t").ending("t", commit=False)
    story.begin("u").write("a", 2, transaction="u").ending("u", commit=True).ended("u", committed=True)
    assert story.read((2, "a")).found == []


# --- the report -------------------------------------------------------------------------------------------------------


def test_report(story):
    """Each kind is counted, errors apart from what the settings allow; a few examples are kept of each."""
    story.write([f"v{number}" for number in range(1000)], 0).write("z", 1000).read((1000, "z"))
    found = report(story.history)
    assert found.counts == found.errors == {Kind.LOST_WRITE: 1000}
    assert found.lines()[0] == "1000 x lost write (error)"
    assert 2 < len(found.lines()) < 50
    with pytest.raises(AssertionError, match="1000 x lost write"):
        found.check()


def test_report_of_nothing(story):
    """A clean history has a table of zeros, and passes."""
    found = report(story.write("a", 0).read((0, "a")).history)
    found.check()
    assert [row.kind for row in found.rows] == list(Kind)
    assert not found.lines()


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
    """What the settings do not promise is noteworthy; what readers may count on in any case stays an error."""
    assert {kind for kind in Kind if not expectations.is_error(kind)} == noteworthy


def test_records_may_be_deleted(story):
    """Before anybody read them, up to where the log began at the latest; behind that a lost write is one."""
    history = story.write("abcd", 0).read((3, "d")).history
    assert not report(history, Expectations(kept_from=3)).counts
    assert report(history, Expectations(kept_from=2)).errors == {Kind.LOST_WRITE: 1}
    assert report(history).errors == {Kind.LOST_WRITE: 3}


def test_records_of_an_unknown_offset_may_be_deleted(story):
    """Where any may; a producer whose retry was known already is told no offset."""
    history = story.write("ab", NO_OFFSET).read((3, "d")).history
    assert Kind.UNSEEN not in report(history, Expectations(kept_from=1)).counts
    assert report(history).errors[Kind.UNSEEN] == 2


def test_allowed_losses_pass(story):
    """With ``acks=1`` a lost write is told, and fails nothing."""
    found = report(story.write("ab", 0).read((1, "b")).history, Expectations(kept=False))
    found.check()
    assert found.counts == {Kind.LOST_WRITE: 1}
    assert found.lines()[0] == "1 x lost write (noteworthy)"
