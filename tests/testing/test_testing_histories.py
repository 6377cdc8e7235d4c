"""Histories of groups and transactions detect contradictory responses."""

from __future__ import annotations

from kreplica.model import TopicPartition
from kreplica.testing.anomalies import Kind, report
from kreplica.testing.histories.transaction_history import TransactionHistory
from tests.support.clients.group_history import GroupHistory

KEY, OTHER = TopicPartition("source", 0), TopicPartition("source", 1)


class TestGroupHistory:
    def test_offsets_that_go_back_are_reported(self) -> None:
        """A fetched offset below the last acknowledged commit is a contradiction."""
        history = GroupHistory()
        history.joined("a", 1, [KEY])
        history.committed(history.committing(1, {KEY: 5}), has_pending_attempt=False)
        history.fetched(history.expected([KEY]), {KEY: 5})
        assert not history.contradictions
        history.fetched(history.expected([KEY]), {KEY: 4})
        assert "committed up to 5, and is now at 4" in history.contradictions[0]

    def test_an_unanswered_commit_may_apply_in_its_generation(self) -> None:
        """An unanswered commit may apply after later commits, but not after the next generation has fetched offsets."""
        history = GroupHistory()
        history.joined("a", 1, [KEY])
        history.committed(history.committing(1, {KEY: 5}), has_pending_attempt=True)
        history.committed(history.committing(1, {KEY: 9}), has_pending_attempt=False)
        history.fetched(history.expected([KEY]), {KEY: 5})
        history.joined("b", 2, [KEY])
        history.fetched(history.expected([KEY]), {KEY: 5})
        history.committed(history.committing(2, {KEY: 7}), has_pending_attempt=False)
        assert not history.contradictions
        history.fetched(history.expected([KEY]), {KEY: 5})
        assert len(history.contradictions) == 1

    def test_commits_during_a_fetch_are_accepted(self) -> None:
        """A fetch may return offsets from before a commit that was acknowledged to another client in the meantime."""
        history = GroupHistory()
        expected = history.expected([KEY])
        history.decided({KEY: 3})
        history.fetched(expected, {KEY: 0})
        assert not history.contradictions
        assert history.acknowledged == {KEY: 3}

    def test_a_generation_has_one_assignment(self) -> None:
        """In a generation, a partition has one owner and a member one assignment; generations never go back."""
        history = GroupHistory()
        history.joined("a", 1, [KEY])
        history.joined("b", 1, [OTHER])
        history.joined("a", 2, [KEY, OTHER])
        assert not history.contradictions
        history.joined("b", 2, [OTHER])
        history.joined("a", 2, [KEY])
        history.joined("a", 1, [KEY])
        assert [text.partition(": ")[2][:5] for text in history.contradictions] == ["sourc", "a was", "a was"]

    def test_an_old_generation_commits_nothing(self) -> None:
        """A commit is rejected as soon as one client is in the next generation."""
        history = GroupHistory()
        history.joined("a", 1, [KEY])
        number = history.committing(1, {KEY: 1})
        history.joined("b", 2, [KEY])
        history.committed(number, has_pending_attempt=False)  # the request was in flight
        assert not history.contradictions
        history.committed(history.committing(1, {KEY: 2}), has_pending_attempt=False)
        assert "generation 1 committed during 2" in history.contradictions[0]

    def test_a_response_may_arrive_after_the_generation(self) -> None:
        """The response to a commit may arrive in the next generation, whose fetched offsets it does not contradict."""
        history = GroupHistory()
        history.joined("a", 1, [KEY, OTHER])
        rejected, late = (history.committing(1, {KEY: offset}) for offset in (3, 4))
        history.joined("b", 2, [KEY, OTHER])
        history.fetched(history.expected([KEY]), {KEY: 4})
        history.committed(history.committing(2, {KEY: 8}), has_pending_attempt=False)
        history.rejected(rejected)
        history.committed(late, has_pending_attempt=True)
        assert history.acknowledged == {KEY: 8}
        assert not history.contradictions


class TestTransactionHistory:
    def test_fenced_transactions_are_never_read(self) -> None:
        """A transaction that was fenced before its commit was requested is never read, whatever is requested later."""
        history = TransactionHistory()
        name = history.begin("id")
        history.acknowledged(0, 0, [b"a"], history.sending_in(name, 0, [b"a"]))
        history.fenced("id")
        history.ending(name, commit=True)
        history.received(0, [(0, b"a")], "all", read_committed=False)
        assert not report(history.observations).errors
        history.received(0, [(0, b"a")], "committed", read_committed=True)
        assert report(history.observations).errors == {Kind.ABORTED_READ: 1}
        history.ended(name, committed=True)
        assert "was fenced" in history.contradictions[0]

    def test_a_commit_requested_before_fencing_may_be_read(self) -> None:
        """A transaction that was fenced after its commit was requested may be read."""
        history = TransactionHistory()
        name = history.begin("id")
        history.sending_in(name, 0, [b"a"])
        history.ending(name, commit=True)
        history.fenced("id")
        history.received(0, [(0, b"a")], "committed", read_committed=True)
        assert not report(history.observations).errors

    def test_nothing_is_read_before_its_commit_is_requested(self) -> None:
        """A read_committed reader must not receive a record before its commit is requested."""
        history = TransactionHistory()
        history.sending_in(history.begin("id"), 0, [b"a"])
        history.received(0, [(0, b"a")], "committed", read_committed=True)
        assert report(history.observations).errors == {Kind.PRECOMMITTED_READ: 1}
