"""A consume-transform-produce chain under faults that target it, and checks of its clients' results."""

from __future__ import annotations

from random import Random

import pytest
from cluster_runs import replicated
from twisted.internet.defer import Deferred

from kreplica.errors import KafkaError
from kreplica.model import TopicPartition
from kreplica.testing.anomalies import Kind, report
from kreplica.testing.clients.isolation import visible_records
from kreplica.testing.histories.group_history import GroupHistory
from kreplica.testing.histories.transaction_history import TransactionHistory
from kreplica.testing.simulator.simulation import Host
from kreplica.testing.storms.clients.chain import OVERRIDES, Chain
from kreplica.testing.storms.clients.slots import Slot
from kreplica.testing.storms.cluster_run import REPLICAS
from kreplica.testing.storms.faults import CHAIN_FAULTS
from kreplica.testing.storms.options import options_of
from kreplica.testing.storms.replicated_run import SAFE, ReplicatedRun
from kreplica.testing.storms.storm import faults_of_seed
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
    @pytest.mark.parametrize("name", CHAIN_FAULTS)
    def test_survives_faults(self, name: str) -> None:
        """Faults of members and coordinators: each record is copied once and in order."""
        begin, _ = CHAIN_FAULTS[name]
        with replicated(sorted(CHAIN_FAULTS).index(name), chained) as run:
            run.cluster.run(1.0)
            end = begin(run, Random(name))
            run.cluster.run(4.0)
            if end is not None:
                end()
            run.converge()

    def test_copies_everything_without_faults(self) -> None:
        """Some transactions are aborted on purpose, many are committed; both kinds of producers run side by side."""
        with replicated(2, chained) as run:
            run.cluster.run(6.0)
            run.converge()
            (chain,) = (each for each in run.companions if isinstance(each, Chain))
            target = chain.clients.target
            assert target.committed_count > target.aborted_count > 0

    def test_does_not_change_other_faults(self) -> None:
        """A seed's plan is the same with and without a chain; faults of the chain are appended."""
        without, with_chain = (faults_of_seed(7, options_of(7, {"chain": chain})) for chain in ("no", "yes"))
        added = with_chain[len(without) :]
        assert with_chain[: len(without)] == without
        assert {fault.name for fault in added} <= set(CHAIN_FAULTS)
        assert [fault.number for fault in with_chain] == list(range(1, len(with_chain) + 1))


class TestGroupHistory:
    def test_offsets_that_go_back_are_reported(self) -> None:
        """The acknowledged offset is fetched next."""
        history = GroupHistory()
        history.joined("a", 1, [KEY])
        history.committed(history.committing(1, {KEY: 5}), has_pending_attempt=False)
        history.fetched(history.expected([KEY]), {KEY: 5})
        assert not history.contradictions
        history.fetched(history.expected([KEY]), {KEY: 4})
        assert "committed up to 5, and is now at 4" in history.contradictions[0]

    def test_an_unanswered_commit_may_apply_in_its_generation(self) -> None:
        """Even after later commits; but no longer after offsets were fetched in the next generation."""
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
        """The response to a fetch may be older than a commit that another client learns of first."""
        history = GroupHistory()
        expected = history.expected([KEY])
        history.decided({KEY: 3})
        history.fetched(expected, {KEY: 0})
        assert not history.contradictions
        assert history.acknowledged == {KEY: 3}

    def test_a_generation_has_one_assignment(self) -> None:
        """No partition has two members, no member two assignments, and no member returns to an earlier generation."""
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
        """A client that knows the next generation is enough."""
        history = GroupHistory()
        history.joined("a", 1, [KEY])
        number = history.committing(1, {KEY: 1})
        history.joined("b", 2, [KEY])
        history.committed(number, has_pending_attempt=False)  # the request was in flight
        assert not history.contradictions
        history.committed(history.committing(1, {KEY: 2}), has_pending_attempt=False)
        assert "generation 1 committed during 2" in history.contradictions[0]

    def test_a_response_may_arrive_after_the_generation(self) -> None:
        """The others continued from their fetched offsets: neither a rejection nor a late success changes that."""
        history = GroupHistory()
        history.joined("a", 1, [KEY, OTHER])
        refused, late = (history.committing(1, {KEY: offset}) for offset in (3, 4))
        history.joined("b", 2, [KEY, OTHER])
        history.fetched(history.expected([KEY]), {KEY: 4})
        history.committed(history.committing(2, {KEY: 8}), has_pending_attempt=False)
        history.refused(refused)
        history.committed(late, has_pending_attempt=True)
        assert history.acknowledged == {KEY: 8}
        assert not history.contradictions


class TestTransactionHistory:
    def records(self, *values: bytes) -> list[Record]:
        return [Record(offset, 0, None, value) for offset, value in enumerate(values)]

    def test_fenced_transactions_are_never_read(self) -> None:
        """It had not requested the commit by then; later requests change nothing."""
        history = TransactionHistory()
        name = history.began("id")
        history.acknowledged(0, 0, [b"a"], history.sending_in(name, 0, [b"a"]))
        history.fenced("id")
        history.ending(name, commit=True)
        history.given(0, self.records(b"a"), "all", read_committed=False)
        assert not report(history.observations).errors
        history.given(0, self.records(b"a"), "committed", read_committed=True)
        assert report(history.observations).errors == {Kind.ABORTED_READ: 1}
        history.ended(name, committed=True)
        assert "was fenced" in history.contradictions[0]

    def test_a_commit_requested_before_fencing_may_be_read(self) -> None:
        """Its outcome is unknown until the record is read."""
        history = TransactionHistory()
        name = history.began("id")
        history.sending_in(name, 0, [b"a"])
        history.ending(name, commit=True)
        history.fenced("id")
        history.given(0, self.records(b"a"), "committed", read_committed=True)
        assert not report(history.observations).errors

    def test_nothing_is_read_before_its_commit_is_requested(self) -> None:
        """For readers of committed records."""
        history = TransactionHistory()
        history.sending_in(history.began("id"), 0, [b"a"])
        history.given(0, self.records(b"a"), "committed", read_committed=True)
        assert report(history.observations).errors == {Kind.PRECOMMITTED_READ: 1}


class TestVisibleRecords:
    """A log of two producers: 1 aborts offset 0, then commits offset 3; 2 commits offset 1."""

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

    def test_aborted_records_and_markers_are_skipped(self) -> None:
        """The same producer's next transaction is visible, and the position is after all of them."""
        aborted = [{"producer_id": 1, "first_offset": 0}]
        row = {"error_code": 0, "high_watermark": 5, "records": self.log(), "aborted_transactions": aborted}
        records, position = visible_records(row, 0)
        assert [(record.offset, record.value) for record in records] == [(1, b"two"), (3, b"three")]
        assert position == 5

    def test_read_uncommitted_returns_all_records(self) -> None:
        """Except markers."""
        row = {"error_code": 0, "high_watermark": 5, "records": self.log(), "aborted_transactions": None}
        assert [record.offset for record in visible_records(row, 0).records] == [0, 1, 3]

    def test_errors_are_raised(self) -> None:
        """Errors of the broker, and damaged records."""
        with pytest.raises(KafkaError, match="NOT_LEADER"):
            visible_records({"error_code": 6, "records": None}, 0)
        damaged = bytearray(self.log())
        damaged[-1] ^= 1
        with pytest.raises(KafkaError, match="CORRUPT_MESSAGE"):
            visible_records({"error_code": 0, "high_watermark": 5, "records": bytes(damaged)}, 0)


class SlowToStop:
    """Runs until it is stopped."""

    def __init__(self) -> None:
        self.stopped: Deferred[None] = Deferred()

    async def run(self) -> None:
        await self.stopped

    def finish(self) -> None:
        """Takes some time: the test fires the Deferred."""


def test_a_process_that_leaves_for_good_is_not_replaced() -> None:
    """A process that would be replaced after its exit is removed for good while it is still exiting."""
    with replicated(1) as run:
        workers: list[SlowToStop] = []

        def make(_: Host) -> SlowToStop:
            workers.append(SlowToStop())
            return workers[-1]

        slot = Slot(run, "member", make)
        slot.start()
        slot.leave()
        slot.fill()
        slot.leave()
        workers[0].stopped.callback(None)
        assert not slot.is_occupied
        assert len(workers) == 1
        run.converge()
