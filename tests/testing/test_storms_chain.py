"""A chain of consuming, transforming and producing, under faults that aim at it; and what its clients may be told."""

from __future__ import annotations

from random import Random

import pytest
from cluster_runs import replicated
from twisted.internet.defer import Deferred

from kreplica.errors import KafkaError
from kreplica.model import TopicPartition
from kreplica.testing.anomalies import Kind, report
from kreplica.testing.clients.isolation import shown
from kreplica.testing.histories.group_history import GroupHistory
from kreplica.testing.histories.transaction_history import TransactionHistory
from kreplica.testing.simulator.simulation import Host
from kreplica.testing.storms.clients.chain import OVERRIDES, Chain
from kreplica.testing.storms.clients.seats import Seat
from kreplica.testing.storms.faults import OF_CHAINS
from kreplica.testing.storms.options import options_of
from kreplica.testing.storms.replicated_run import REPLICAS, SAFE, ReplicatedRun
from kreplica.testing.storms.storm import planned
from kreplica.wire.batch_building import BatchBuilder
from kreplica.wire.batches import stamp
from kreplica.wire.control_records import EndMarker, build_end_marker
from kreplica.wire.records import Record

KEY, OTHER = TopicPartition("source", 0), TopicPartition("source", 1)


def chained(seed: int) -> ReplicatedRun:
    run = ReplicatedRun(seed, overrides=OVERRIDES)
    run.companions.append(Chain(run, REPLICAS, SAFE))
    return run


@pytest.mark.usefixtures("logged_errors")
class TestChain:
    @pytest.mark.parametrize("name", OF_CHAINS)
    def test_comes_through(self, name: str) -> None:
        """Whatever happens to members and to who coordinates them: each record is carried over once and in order."""
        begin, _ = OF_CHAINS[name]
        with replicated(sorted(OF_CHAINS).index(name), chained) as run:
            run.cluster.run(1.0)
            end = begin(run, Random(name))
            run.cluster.run(4.0)
            if end is not None:
                end()
            run.converge()

    def test_that_is_left_alone_carries_everything_over(self) -> None:
        """Some transactions are aborted on purpose, many are committed; both kinds of producers work side by side."""
        with replicated(2, chained) as run:
            run.cluster.run(6.0)
            run.converge()
            (chain,) = (each for each in run.companions if isinstance(each, Chain))
            target = chain.clients.target
            assert target.committed_count > target.aborted_count > 0

    def test_changes_no_fault_of_others(self) -> None:
        """The plan of a seed is the same with a chain and without; what aims at the chain comes behind it."""
        without, with_chain = (planned(7, options_of(7, {"chain": chain})) for chain in ("no", "yes"))
        added = with_chain[len(without) :]
        assert with_chain[: len(without)] == without
        assert {fault.name for fault in added} <= set(OF_CHAINS)
        assert [fault.number for fault in with_chain] == list(range(1, len(with_chain) + 1))


class TestGroupHistory:
    def test_offsets_that_go_back_are_told(self) -> None:
        """What was acknowledged is what is fetched next."""
        history = GroupHistory()
        history.joined("a", 1, [KEY])
        history.committed(history.committing(1, {KEY: 5}), is_doubtful=False)
        history.fetched(history.expected([KEY]), {KEY: 5})
        assert not history.contradictions
        history.fetched(history.expected([KEY]), {KEY: 4})
        assert "committed up to 5, and is now up to 4" in history.contradictions[0]

    def test_an_attempt_without_answer_may_arrive_while_its_generation_lasts(self) -> None:
        """Behind later commits even; not any more when offsets were fetched in the next generation."""
        history = GroupHistory()
        history.joined("a", 1, [KEY])
        history.committed(history.committing(1, {KEY: 5}), is_doubtful=True)
        history.committed(history.committing(1, {KEY: 9}), is_doubtful=False)
        history.fetched(history.expected([KEY]), {KEY: 5})
        history.joined("b", 2, [KEY])
        history.fetched(history.expected([KEY]), {KEY: 5})
        history.committed(history.committing(2, {KEY: 7}), is_doubtful=False)
        assert not history.contradictions
        history.fetched(history.expected([KEY]), {KEY: 5})
        assert len(history.contradictions) == 1

    def test_what_was_committed_while_an_answer_was_on_its_way_counts(self) -> None:
        """A fetch may be answered from before a commit of which somebody else is told first."""
        history = GroupHistory()
        expected = history.expected([KEY])
        history.decided({KEY: 3})
        history.fetched(expected, {KEY: 0})
        assert not history.contradictions
        assert history.acknowledged == {KEY: 3}

    def test_one_generation_shares_out_once(self) -> None:
        """No partition has two members, no member two shares, and none comes back into an earlier generation."""
        history = GroupHistory()
        history.joined("a", 1, [KEY])
        history.joined("b", 1, [OTHER])
        history.joined("a", 2, [KEY, OTHER])
        assert not history.contradictions
        history.joined("b", 2, [OTHER])
        history.joined("a", 2, [KEY])
        history.joined("a", 1, [KEY])
        assert [text.partition(": ")[2][:5] for text in history.contradictions] == ["sourc", "a was", "a was"]

    def test_a_generation_that_is_over_commits_nothing(self) -> None:
        """Once somebody knows of the next one."""
        history = GroupHistory()
        history.joined("a", 1, [KEY])
        number = history.committing(1, {KEY: 1})
        history.joined("b", 2, [KEY])
        history.committed(number, is_doubtful=False)  # it was on its way
        assert not history.contradictions
        history.committed(history.committing(1, {KEY: 2}), is_doubtful=False)
        assert "generation 1 has committed in 2" in history.contradictions[0]

    def test_who_asked_may_be_told_long_after_its_generation_was_over(self) -> None:
        """The others have gone on from what they fetched: neither a refusal nor a late yes changes that."""
        history = GroupHistory()
        history.joined("a", 1, [KEY, OTHER])
        refused, late = (history.committing(1, {KEY: offset}) for offset in (3, 4))
        history.joined("b", 2, [KEY, OTHER])
        history.fetched(history.expected([KEY]), {KEY: 4})
        history.committed(history.committing(2, {KEY: 8}), is_doubtful=False)
        history.refused(refused)
        history.committed(late, is_doubtful=True)
        assert history.acknowledged == {KEY: 8}
        assert not history.contradictions


class TestTransactionHistory:
    def records(self, *values: bytes) -> list[Record]:
        return [Record(offset, 0, None, value) for offset, value in enumerate(values)]

    def test_what_a_newer_incarnation_has_fenced_is_never_read(self) -> None:
        """It was not asked to commit by then; whatever is asked afterwards changes nothing."""
        history = TransactionHistory()
        name = history.began("id")
        history.acknowledged(0, 0, [b"a"], history.sending_in(name, 0, [b"a"]))
        history.fenced("id")
        history.ending(name, commit=True)
        history.given(0, self.records(b"a"), "all", read_committed=False)
        assert not report(history.told).errors
        history.given(0, self.records(b"a"), "committed", read_committed=True)
        assert report(history.told).errors == {Kind.ABORTED_READ: 1}
        history.ended(name, committed=True)
        assert "was fenced" in history.contradictions[0]

    def test_what_was_asked_to_commit_before_may_be(self) -> None:
        """Nobody can tell what became of it, before it is read."""
        history = TransactionHistory()
        name = history.began("id")
        history.sending_in(name, 0, [b"a"])
        history.ending(name, commit=True)
        history.fenced("id")
        history.given(0, self.records(b"a"), "committed", read_committed=True)
        assert not report(history.told).errors

    def test_nothing_is_read_before_its_commit_is_asked_for(self) -> None:
        """By readers of committed records."""
        history = TransactionHistory()
        history.sending_in(history.began("id"), 0, [b"a"])
        history.given(0, self.records(b"a"), "committed", read_committed=True)
        assert report(history.told).errors == {Kind.PRECOMMITTED_READ: 1}


class TestShown:
    """A log of two producers: 1 aborts what stands at 0, then commits what stands at 3; 2 commits what stands at 1."""

    def log(self) -> bytes:
        batches = [
            self.batch(1, b"aborted"),
            self.batch(2, b"two"),
            build_end_marker(EndMarker(False, 0), 1, 0, 0),
            self.batch(1, b"three"),
            build_end_marker(EndMarker(True, 0), 1, 0, 0),
        ]
        stamped = []
        for offset, batch in enumerate(map(bytearray, batches)):
            stamp(batch, offset, 0)
            stamped.append(bytes(batch))
        return b"".join(stamped)

    def batch(self, producer_id: int, value: bytes) -> bytes:
        builder = BatchBuilder(producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)
        builder.append(0, None, value)
        return bytes(builder.build())

    def test_what_is_aborted_and_markers_are_passed_over(self) -> None:
        """The same producer's next transaction is shown; what comes next is behind all of it."""
        aborted = [{"producer_id": 1, "first_offset": 0}]
        row = {"error_code": 0, "high_watermark": 5, "records": self.log(), "aborted_transactions": aborted}
        records, position = shown(row, 0)
        assert [(record.offset, record.value) for record in records] == [(1, b"two"), (3, b"three")]
        assert position == 5

    def test_all_is_shown_to_who_reads_all(self) -> None:
        """But for markers."""
        row = {"error_code": 0, "high_watermark": 5, "records": self.log(), "aborted_transactions": None}
        assert [record.offset for record in shown(row, 0).records] == [0, 1, 3]

    def test_errors_are_raised(self) -> None:
        """What a broker refuses, and records that are damaged."""
        with pytest.raises(KafkaError, match="NOT_LEADER"):
            shown({"error_code": 6, "records": None}, 0)
        damaged = bytearray(self.log())
        damaged[-1] ^= 1
        with pytest.raises(KafkaError, match="CORRUPT_MESSAGE"):
            shown({"error_code": 0, "high_watermark": 5, "records": bytes(damaged)}, 0)


class Patient:
    """Works until it is told to go."""

    def __init__(self) -> None:
        self.told: Deferred[None] = Deferred()

    async def run(self) -> None:
        await self.told

    def finish(self) -> None:
        """It takes a while: the test says when it has gone."""


def test_who_is_to_leave_at_last_is_not_replaced() -> None:
    """A place that was to be taken again when its process had left is given up, while it still leaves."""
    with replicated(1) as run:
        workers: list[Patient] = []

        def make(_: Host) -> Patient:
            workers.append(Patient())
            return workers[-1]

        seat = Seat(run, "member", make)
        seat.begin()
        seat.leave()
        seat.fill()
        seat.leave()
        workers[0].told.callback(None)
        assert not seat.is_taken
        assert len(workers) == 1
        run.converge()
