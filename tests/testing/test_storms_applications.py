"""Applications that use the client library while faults target them, and the checks of their results."""

from __future__ import annotations

from random import Random

import pytest
from cluster_runs import run_with_timeline
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from kreplica.client.producer import Written
from kreplica.model import TopicPartition
from kreplica.testing.simulator.simulation import Host
from kreplica.testing.storms.applications.application import Application
from kreplica.testing.storms.applications.applications import WORKERS, Applications
from kreplica.testing.storms.applications.checks import check_copied, check_read, check_sent
from kreplica.testing.storms.applications.history import ApplicationHistory, MemberHistory, ReadHistory, Sent
from kreplica.testing.storms.applications.internal_topics import OVERRIDES
from kreplica.testing.storms.applications.slots import ApplicationSlot
from kreplica.testing.storms.cluster_run import REPLICAS
from kreplica.testing.storms.faults import APPLICATION_FAULTS
from kreplica.testing.storms.options import options_of
from kreplica.testing.storms.outcome import run_storm
from kreplica.testing.storms.replicated_run import SAFE, ReplicatedRun
from kreplica.testing.storms.storm import faults_of_seed
from kreplica.wire.records import Record

SEEDS_OF_EPOCH_BUMPS = (6, 31)
"""Seeds whose copiers use the transaction protocol of Kafka 4."""

KEY, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


def run_with_applications(seed: int) -> ReplicatedRun:
    run = ReplicatedRun(seed, overrides=OVERRIDES, partitions=1)
    run.companions.append(Applications(run, REPLICAS, SAFE))
    return run


class SlowToStop(Application):
    """An application that stops only when the test fires its Deferred."""

    def __init__(self, host: Host, name: str) -> None:
        super().__init__(host, name, "")
        self.stopped: Deferred[None] = Deferred()

    async def run(self) -> None:
        await self.stopped

    def finish(self) -> None:
        """Does nothing, so that the application keeps running."""

    async def _work(self, cluster: object) -> None:
        """Not called."""


def applications_of(run: ReplicatedRun) -> Applications:
    return next(each for each in run.companions if isinstance(each, Applications))


@pytest.mark.usefixtures("logged_errors")
class TestApplications:
    @pytest.mark.parametrize("name", APPLICATION_FAULTS)
    def test_survive_faults(self, name: str) -> None:
        """Applications lose and duplicate no record, and do not stall, although they and their coordinators fail."""
        begin, _ = APPLICATION_FAULTS[name]
        with run_with_timeline(sorted(APPLICATION_FAULTS).index(name), run_with_applications) as run:
            run.cluster.run(1.5)
            end = begin(run, Random(name))
            run.cluster.run(3.0)
            if end is not None:
                end()
            run.converge()

    def test_process_each_record_once_without_faults(self) -> None:
        """Without faults, each record is processed once."""
        with run_with_timeline(3, run_with_applications) as run:
            run.cluster.run(10.0)
            run.converge()
            history = applications_of(run).history
            written = [sent for sent in history.sent.values() if sent.written is not None]
            workers = history.groups[WORKERS]
            assert workers.processed_count == sum(workers.processed_ends.values()) >= len(written) > 0

    @pytest.mark.parametrize("seed", SEEDS_OF_EPOCH_BUMPS)
    def test_that_are_stopped_twice_release_everything(self, seed: int) -> None:
        """Applications release everything if a second stop request arrives while they are closing connections."""
        with run_with_timeline(seed, run_with_applications) as run:
            applications = applications_of(run)
            run.cluster.run(4.0)
            for slot in applications.slots:
                slot.leave()
                slot.leave()
            run.cluster.run_until(lambda: not any(slot.is_occupied for slot in applications.slots))
            assert applications.history.leaks == []
            for slot in applications.slots:
                slot.fill()
            run.converge()

    def test_do_not_change_other_faults(self) -> None:
        """With applications, a seed has the same faults as without, followed by faults that target applications."""
        without, with_them = (faults_of_seed(7, options_of(7, {"applications": each})) for each in ("no", "yes"))
        added = with_them[len(without) :]
        assert with_them[: len(without)] == without
        assert {fault.name for fault in added} <= set(APPLICATION_FAULTS)
        assert [fault.number for fault in with_them] == list(range(1, len(with_them) + 1))

    @pytest.mark.parametrize("seed", range(1, 3))
    def test_survive_a_storm(self, seed: int, logged_errors: list[str]) -> None:
        """Applications survive several simultaneous faults of all kinds."""
        chosen = {"applications": "yes", "seconds": "10", "messages_per_s": "5", "batch_records": "5"}
        outcome = run_storm(seed, options_of(seed, chosen))
        assert outcome.clean, outcome.details
        # This error is expected when a flipped bit takes a replica offline.
        logged_errors[:] = [text for text in logged_errors if "is taken offline, so that" not in text]


def test_a_process_that_leaves_for_good_is_not_replaced() -> None:
    """A process that would be replaced after its exit is not replaced if it is removed while it is still exiting."""
    with run_with_timeline(1) as run:
        applications: list[SlowToStop] = []

        def make(host: Host, name: str) -> SlowToStop:
            applications.append(SlowToStop(host, name))
            return applications[-1]

        history = ApplicationHistory(lambda: 0.0, (), lambda old, new: False, 1)
        slot = ApplicationSlot(run, "member", make, history)
        slot.start()
        slot.leave()
        slot.fill()
        slot.leave()
        applications[0].stopped.callback(None)
        assert not slot.is_occupied
        assert len(applications) == 1
        run.converge()


def record(offset: int, value: bytes, key: bytes | None = None) -> Record:
    return Record(offset, 0, key, value, ())


class TestChecks:
    """Each check detects its kind of violation."""

    def test_of_sent_records(self) -> None:
        """Records are lost, duplicated, reordered, at the wrong offset, written despite an error, or never sent."""
        one, two = Sent(b"one", "p", 0, None), Sent(b"two", "p", 1, None)
        sent = {b"one": one, b"two": two}
        good = [record(0, b"one"), record(1, b"two")]
        check_sent(sent, {KEY: good, OTHER: []})
        for wrong, text in (
            ([record(0, b"one"), record(1, b"one")], "after record number 0"),
            ([record(0, b"two"), record(1, b"one")], "after record number 1"),
            ([record(0, b"three")], "was never sent"),
            ([record(0, b"one", b"k")], "was sent with key"),
        ):
            with pytest.raises(AssertionError, match=text):
                check_sent(sent, {KEY: wrong})
        with pytest.raises(AssertionError, match="is in"):
            check_sent(sent, {KEY: good, OTHER: [record(0, b"one")]})
        one.written = Written(KEY, 1, 0)
        with pytest.raises(AssertionError, match="was acknowledged at"):
            check_sent(sent, {KEY: good, OTHER: []})
        with pytest.raises(AssertionError, match="is in no log"):
            check_sent(sent, {KEY: [], OTHER: []})
        one.written, two.is_lost = None, True
        with pytest.raises(AssertionError, match="its send failed"):
            check_sent(sent, {KEY: good, OTHER: []})

    def test_of_read_records(self) -> None:
        """Readers receive different, reordered, too many or too few records."""
        log = [record(0, b"a"), record(2, b"b"), record(3, b"c")]
        for given, text in (
            ([(0, b"a"), (2, b"b")], ""),
            ([(0, b"a"), (3, b"c")], "not b'b'"),
            ([(2, b"b"), (0, b"a")], "after 2"),
            ([(0, b"x")], "not b'a'"),
            ([(0, b"a"), (2, b"b"), (3, b"c"), (4, b"d")], "more records of"),
        ):
            followed = ReadHistory("f", read_committed=True, records={KEY: given})
            if text:
                with pytest.raises(AssertionError, match=text):
                    check_read(followed, {KEY: log})
            else:
                check_read(followed, {KEY: log})

    def test_of_copied_records(self) -> None:
        """Each record must be copied once and in order."""
        source = [record(0, b"a"), record(1, b"b")]
        check_copied(source, [record(0, b"t copies a"), record(4, b"u copies b")], KEY)
        with pytest.raises(AssertionError, match="1 of 2 records were copied"):
            check_copied(source, [record(0, b"t copies a")], KEY)
        with pytest.raises(AssertionError, match="record 1 is a copy of b'a', not of b'b'"):
            check_copied(source, [record(0, b"t copies a"), record(1, b"u copies a")], KEY)


class TestGroupRecords:
    """Contradictions between the assignments and records that the members of a group receive."""

    @pytest.fixture
    def group(self) -> MemberHistory:
        group = MemberHistory("g", lambda: 0.0)
        group.assigned("a", [KEY, OTHER])
        return group

    def test_members_join_and_leave(self, group: MemberHistory) -> None:
        """The next member may start at or before the end of the processed records."""
        for offset in range(3):
            group.received("a", KEY, offset)
        group.processed(KEY, 0)
        group.processed(KEY, 1)
        group.revoked("a", [KEY])
        group.assigned("b", [KEY])
        group.received("b", KEY, 2)
        assert not group.contradictions
        assert group.processed_ends == {KEY: 2}

    def test_unprocessed_records_are_not_skipped(self, group: MemberHistory) -> None:
        """A member that starts after an unprocessed record has skipped it."""
        group.received("a", KEY, 0)
        group.revoked("a", [KEY])
        group.assigned("b", [KEY])
        group.received("b", KEY, 1)
        assert "starts t-0 at 1, but 0 was not processed" in group.contradictions[0]

    def test_a_group_does_not_rewind_before_an_earlier_start(self, group: MemberHistory) -> None:
        """A member must not start before the position at which an earlier member started."""
        for member, begin in (("a", 0), ("b", 1), ("c", 0)):
            if member != "a":
                group.assigned(member, [KEY])
            group.received(member, KEY, begin)
            group.processed(KEY, begin)
            group.revoked(member, [KEY])
        assert "starts t-0 at 0, but b started earlier at 1" in group.contradictions[0]

    def test_records_are_consecutive(self, group: MemberHistory) -> None:
        """A member skips and repeats no record, and receives none from partitions that it does not own."""
        group.received("a", KEY, 0)
        group.received("a", KEY, 2)
        group.received("b", KEY, 0)
        group.revoked("b", [KEY])
        assert [text.partition("group g: ")[2] for text in group.contradictions] == [
            "a received t-0 at 2, not at 1",
            "b received t-0 at 0, but does not own the partition",
            "t-0 was revoked from b, which did not own it",
        ]

    def test_a_partition_has_one_owner(self, group: MemberHistory) -> None:
        """A partition has one owner, not counting a member that cannot know yet that it was reassigned."""
        group.assigned("b", [KEY])
        assert "was assigned to b while a owned it" in group.contradictions[0]
        late = MemberHistory("g", lambda: 0.0, lambda had, has: had == "a")
        late.assigned("a", [KEY])
        late.assigned("b", [KEY])
        assert not late.contradictions
        late.assigned("c", [KEY])
        assert len(late.contradictions) == 1

    def test_a_commit_is_not_forgotten(self, group: MemberHistory) -> None:
        """The next owner starts at or after the committed offset, not before it."""
        group.received("a", KEY, 0)
        for offset in range(5):
            group.processed(KEY, offset)
        group.committed(group.commit_began({KEY: 4}))
        group.revoked("a", [KEY])
        group.assigned("b", [KEY])
        group.received("b", KEY, 3)
        assert "starts t-0 at 3, but 4 was committed" in group.contradictions[0]

    def test_a_late_commit_may_replace_a_newer_one(self) -> None:
        """A delayed first attempt of a commit may be applied in its own generation, but not in a later one."""
        clock = Clock()
        group = MemberHistory("g", clock.seconds)
        group.assigned("a", [KEY])
        group.received("a", KEY, 0)
        for offset in range(9):
            group.processed(KEY, offset)
        commit = group.commit_began({KEY: 4})
        clock.advance(5.0)
        group.committed(commit)
        group.commit_failed(group.commit_began({KEY: 5}))
        group.committed(group.commit_began({KEY: 9}))
        group.revoked("a", [KEY])
        group.assigned("b", [KEY])
        group.received("b", KEY, 4)
        assert not group.contradictions
        group.revoked("b", [KEY])
        group.assigned("c", [KEY])
        group.received("c", KEY, 5)
        assert "starts t-0 at 5, but 9 was committed" in group.contradictions[0]

    def test_a_failed_commit_is_not_a_lower_bound(self, group: MemberHistory) -> None:
        """Members may start at offset 0 if no commit has succeeded."""
        for offset in range(9):
            group.processed(KEY, offset)
        group.commit_failed(group.commit_began({KEY: 5}))
        group.revoked("a", [KEY])
        group.assigned("b", [KEY])
        group.received("b", KEY, 0)
        assert not group.contradictions

    def test_a_pending_commit_may_replace_a_newer_one(self, group: MemberHistory) -> None:
        """A member may be reassigned a partition while it retries a commit from its previous ownership (seed 38040)."""
        for offset in range(9):
            group.processed(KEY, offset)
        group.committed(group.commit_began({KEY: 9}))
        pending = group.commit_began({KEY: 4})
        group.revoked("a", [KEY])
        group.assigned("b", [KEY])
        group.received("b", KEY, 4)
        assert not group.contradictions
        group.commit_rejected(pending)
        group.revoked("b", [KEY])
        group.assigned("c", [KEY])
        group.received("c", KEY, 4)
        assert "starts t-0 at 4, but 9 was committed" in group.contradictions[0]

    def test_a_partition_has_one_member_in_a_generation(self, group: MemberHistory) -> None:
        """Two owners in one generation are a contradiction, even if the members do not know about each other."""
        group.assigned_in(1, "a", [KEY])
        group.assigned_in(1, "b", [OTHER])
        group.assigned_in(2, "b", [KEY])
        group.assigned_in(2, "b", [KEY])
        assert not group.contradictions
        group.assigned_in(2, "a", [KEY])
        assert "t-0 was assigned to b and to a in generation 2" in group.contradictions[0]
