"""Leader state: high watermark, ISR changes, and the state that is kept in a new epoch."""

from __future__ import annotations

import pytest
from leading_scene import ALL_REPLICAS, LAG_S, LEADER, SECOND, THIRD, Leading, append, fetch, leadership, sync

from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import LeaderAndIsr
from kreplica.replication import Partition
from kreplica.replication.leader.isr_proposal import Proposal
from kreplica.replication.leader.leader_state import LeaderState


def led(partition: Partition) -> LeaderState:
    assert partition.leader_state is not None
    return partition.leader_state


def begin(partition: Partition) -> Proposal:
    """Start a write of the proposed ISR."""
    proposal = led(partition).proposal()
    assert proposal is not None
    led(partition).write_started(proposal)
    return proposal


def refused(code: ErrorCode, partition: Partition, *, acks_all: bool = True) -> None:
    with pytest.raises(KafkaError) as raised:
        append(partition, acks_all=acks_all)
    assert raised.value.code is code


class TestCommitting:
    def test_slowest_member_decides(self) -> None:
        """A record is committed once every in-sync replica has it, and not earlier."""
        partition = Leading().partition()
        append(partition, 5)
        fetch(partition, SECOND, 5)
        assert partition.high_watermark == 0, "the third has not fetched yet"
        fetch(partition, THIRD, 3)
        assert partition.high_watermark == 3
        fetch(partition, THIRD, 5)
        assert partition.high_watermark == 5

    def test_high_watermark_never_decreases(self) -> None:
        """The high watermark does not decrease when a follower restarts with fewer records."""
        partition = Leading().partition()
        append(partition, 5)
        for replica in (SECOND, THIRD):
            fetch(partition, replica, 5)
        fetch(partition, THIRD, 1, broker_epoch=31)
        append(partition)
        fetch(partition, SECOND, 6)
        assert partition.high_watermark == 5

    def test_replica_outside_the_isr_does_not_count(self) -> None:
        """A replica outside the ISR does not delay the high watermark."""
        partition = Leading().partition(leadership(isr=(LEADER, SECOND)))
        append(partition, 2)
        fetch(partition, SECOND, 2)
        assert partition.high_watermark == 2

    def test_too_few_in_sync(self) -> None:
        """A single in-sync leader commits nothing if two are required (KIP-966)."""
        partition = Leading().partition(leadership(isr=(LEADER,)), min_insync_replicas=2)
        append(partition, 2, acks_all=False)
        assert partition.high_watermark == 0
        refused(ErrorCode.NOT_ENOUGH_REPLICAS, partition)

    def test_topic_with_fewer_replicas_than_required(self) -> None:
        """A topic with one replica accepts acks=1 even if two in-sync replicas are required."""
        alone = leadership(isr=(LEADER,), replicas=(LEADER,))
        partition = Leading().partition(alone, min_insync_replicas=2)
        assert append(partition, 2, acks_all=False) == partition.high_watermark == 2

    def test_only_synced_records_count_if_required(self) -> None:
        """With flush.messages=1 only synced records of the leader count."""
        partition = Leading().partition(flush_messages=1)
        append(partition, 2)
        for replica in (SECOND, THIRD):
            fetch(partition, replica, 2)
        assert partition.high_watermark == 0
        sync(partition.log)
        partition.log_synced()
        assert partition.high_watermark == 2

    def test_new_leader_commits_records_that_all_have(self) -> None:
        """A new leader starts with the high watermark it knows."""
        partition = Leading().partition(records=4)
        assert (partition.high_watermark, partition.role.epoch_start_offset) == (0, 4)
        for replica in (SECOND, THIRD):
            fetch(partition, replica, 4)
        assert partition.high_watermark == 4


class TestWithoutLease:
    def test_nothing_is_accepted_or_committed(self) -> None:
        """Without the lease, producers are rejected and waiting requests keep waiting."""
        leading = Leading()
        partition = leading.partition()
        append(partition, 2)
        leading.has_lease = False
        for replica in (SECOND, THIRD):
            fetch(partition, replica, 2)
        assert partition.high_watermark == 0
        refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, partition)

    def test_lease_returns(self) -> None:
        """When the lease returns, the high watermark advances, and no timer remains."""
        leading = Leading()
        partition = leading.partition()
        append(partition, 2)
        leading.has_lease = False
        for replica in (SECOND, THIRD):
            fetch(partition, replica, 2)
        leading.clock.advance(5)
        assert partition.high_watermark == 0
        leading.has_lease = True
        leading.clock.advance(5)
        assert partition.high_watermark == 2
        assert leading.clock.getDelayedCalls() == []

    def test_other_leader_meanwhile(self) -> None:
        """A former leader does not advance the high watermark."""
        leading = Leading()
        partition = leading.partition()
        append(partition, 2)
        leading.has_lease = False
        for replica in (SECOND, THIRD):
            fetch(partition, replica, 2)
        partition.follow(leadership(6, leader=SECOND))
        leading.has_lease = True
        leading.clock.advance(5)
        assert partition.high_watermark == 0

    def test_single_replica_needs_no_lease(self) -> None:
        """A partition without other replicas is served without the lease."""
        leading = Leading()
        partition = leading.partition(leadership(isr=(LEADER,), replicas=(LEADER,)))
        leading.has_lease = False
        assert append(partition) == partition.high_watermark == 1


class TestJoining:
    def test_caught_up_follower(self) -> None:
        """A follower that may join is proposed, and counts before the outcome of the write is known."""
        leading = Leading()
        partition = leading.partition(leadership(isr=(LEADER, SECOND)), records=3)
        fetch(partition, SECOND, 3)
        fetch(partition, THIRD, 2)
        assert leading.proposed == []
        fetch(partition, THIRD, 3)
        assert leading.proposed == [led(partition)]
        proposal = begin(partition)
        assert proposal.isr == ALL_REPLICAS
        assert proposal.joining == ((THIRD, 30),)
        append(partition)
        fetch(partition, SECOND, 4)
        assert partition.high_watermark == 3, "the third already counts"
        fetch(partition, THIRD, 4)
        assert partition.high_watermark == 4

    def test_follower_below_the_start_of_the_epoch(self) -> None:
        """A follower must reach the start of the leader epoch, since a new leader's high watermark lags."""
        leading = Leading()
        partition = leading.partition(leadership(isr=(LEADER, SECOND)), records=3)
        fetch(partition, THIRD, 1)
        assert partition.high_watermark == 0
        assert leading.proposed == []

    def test_refused_follower(self) -> None:
        """An unregistered follower may join only with a new broker epoch."""
        partition = Leading().partition(leadership(isr=(LEADER, SECOND)))
        fetch(partition, THIRD, 0)
        assert led(partition).proposal({THIRD: 30}) is None
        fetch(partition, THIRD, 0, broker_epoch=31)
        assert led(partition).proposal({THIRD: 30}) is not None

    def test_one_write_at_a_time(self) -> None:
        """No second change is proposed while a write is pending."""
        partition = Leading().partition(leadership(isr=(LEADER,)))
        fetch(partition, SECOND, 0)
        begin(partition)
        fetch(partition, THIRD, 0)
        assert led(partition).proposal() is None

    def test_fetch_of_an_earlier_incarnation_does_not_count(self) -> None:
        """A fetch sent before the broker's restart does not count."""
        partition = Leading().partition()
        append(partition, 2)
        fetch(partition, SECOND, 0, broker_epoch=25)
        with pytest.raises(KafkaError) as raised:
            fetch(partition, SECOND, 2, broker_epoch=20)
        assert raised.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert partition.role.known_end_offset(SECOND) == 0

    def test_unknown_replica(self) -> None:
        """A fetch from an unknown replica is rejected with a retriable error."""
        with pytest.raises(KafkaError) as raised:
            fetch(Leading().partition(), 9, 0)
        assert raised.value.code is ErrorCode.UNKNOWN_LEADER_EPOCH


class TestLeaving:
    def lagging(self, leading: Leading, min_insync_replicas: int = 1, **first: object) -> Partition:
        """Return a partition whose third replica has been lagging for too long."""
        partition = leading.partition(leadership(**first), min_insync_replicas=min_insync_replicas)  # type: ignore[arg-type]
        append(partition, 2, acks_all=False)
        leading.clock.advance(LAG_S + 1)
        fetch(partition, SECOND, 2, leading.clock.seconds())
        return partition

    def test_replica_counts_until_the_write_is_confirmed(self) -> None:
        """A leaving replica counts until the write succeeds, because it may still be elected."""
        partition = self.lagging(Leading())
        proposal = begin(partition)
        assert proposal.isr == (LEADER, SECOND)
        fetch(partition, SECOND, 2)
        assert partition.high_watermark == 0
        assert led(partition).written(proposal, 1)
        assert partition.high_watermark == 2
        assert (partition.leadership.isr, partition.leadership.partition_epoch) == ((LEADER, SECOND), 1)

    def test_replica_that_leaves_a_small_isr_stays_eligible(self) -> None:
        """A removed replica stays eligible to lead while too few are in sync (KIP-966)."""
        partition = self.lagging(Leading(), min_insync_replicas=3)
        proposal = begin(partition)
        assert proposal.eligible == (THIRD,)
        led(partition).written(proposal, 1)
        assert partition.high_watermark == 0
        refused(ErrorCode.NOT_ENOUGH_REPLICAS, partition)

    def test_nothing_is_committed_while_another_replica_is_eligible(self) -> None:
        """A lower min.insync.replicas does not discard eligible replicas without a write."""
        leading = Leading()
        partition = leading.partition(leadership(isr=(LEADER, SECOND), eligible=(THIRD,)), min_insync_replicas=3)
        append(partition, 2, acks_all=False)
        fetch(partition, SECOND, 2)
        partition.settings_changed(2)
        assert partition.high_watermark == 0
        assert leading.proposed == [led(partition)], "the state must be written without them first"
        proposal = begin(partition)
        assert (proposal.isr, proposal.eligible) == ((LEADER, SECOND), ())
        assert partition.high_watermark == 0
        led(partition).written(proposal, 1)
        assert partition.high_watermark == 2

    def test_silent_replica_does_not_rejoin(self) -> None:
        """A lagging replica that has all committed records does not rejoin; it would leave again at once."""
        leading = Leading()
        partition = leading.partition(min_insync_replicas=3)
        fetch(partition, THIRD, 0)
        append(partition, 2, acks_all=False)
        leading.clock.advance(LAG_S + 1)
        fetch(partition, SECOND, 2, leading.clock.seconds())
        led(partition).written(begin(partition), 1)
        assert partition.leadership.isr == (LEADER, SECOND)
        assert led(partition).proposal() is None
        fetch(partition, THIRD, 2, leading.clock.seconds())
        assert begin(partition).isr == ALL_REPLICAS

    def test_periodic_check_proposes_removal(self) -> None:
        """The periodic check proposes to remove a lagging follower without any fetch."""
        leading = Leading()
        partition = self.lagging(leading)
        led(partition).check_lag()
        assert leading.proposed == [led(partition)]


class TestUpdateWithinEpoch:
    def test_older_isr(self) -> None:
        """An outdated ISR from the controller does not replace the leader's own write; other changes apply."""
        partition = Leading().partition(leadership(isr=(LEADER, SECOND), partition_epoch=3))
        partition.update_within_epoch(leadership(isr=ALL_REPLICAS, partition_epoch=2, read_only=True))
        assert (partition.leadership.isr, partition.leadership.partition_epoch) == ((LEADER, SECOND), 3)
        refused(ErrorCode.NOT_ENOUGH_REPLICAS, partition)

    def test_newer_state(self) -> None:
        """After a newer state from the controller, a pending write is ignored, whatever its response is."""
        partition = Leading().partition(leadership(isr=(LEADER, SECOND)))
        fetch(partition, THIRD, 0)
        proposal = begin(partition)
        partition.update_within_epoch(leadership(isr=(LEADER,), partition_epoch=1))
        append(partition)
        assert partition.high_watermark == 1, "only members of the newer ISR count"
        assert not led(partition).written(proposal, 1)
        assert partition.leadership.isr == (LEADER,)

    def test_follower_progress_is_kept(self) -> None:
        """Progress is kept within an epoch; added replicas start as unknown."""
        partition = Leading().partition(leadership(isr=(LEADER,)))
        fetch(partition, SECOND, 0)
        partition.update_within_epoch(leadership(isr=(LEADER,), replicas=(1, 2, 3, 4)))
        assert [partition.role.known_end_offset(replica) for replica in (2, 3, 4)] == [0, None, None]

    def test_new_epoch_discards_follower_progress(self) -> None:
        """A new epoch discards follower progress but keeps the leader's records."""
        partition = Leading().partition()
        append(partition, 2)
        fetch(partition, SECOND, 2)
        partition.lead(leadership(6))
        assert partition.role.known_end_offset(SECOND) is None
        assert (partition.leadership_generation, partition.role.epoch_start_offset) == (0, 2)
        fetch(partition, THIRD, 2)
        assert partition.high_watermark == 0


class TestStateFromZookeeper:
    def test_later_leader_epoch(self) -> None:
        """A state with a later epoch ends leadership before the controller's command arrives."""
        partition = Leading().partition(leadership(isr=(LEADER,)))
        fetch(partition, SECOND, 0)
        proposal = begin(partition)
        led(partition).state_read(proposal, LeaderAndIsr(SECOND, 6, (SECOND,), 2, 4))
        refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, partition)
        assert (partition.leadership.leader, partition.leadership.leader_epoch) == (SECOND, 6)

    def test_same_epoch(self) -> None:
        """A state read from the znode is adopted, whichever write produced it."""
        partition = Leading().partition(leadership(isr=(LEADER,)), min_insync_replicas=2)
        fetch(partition, SECOND, 0)
        proposal = begin(partition)
        state = LeaderAndIsr(LEADER, 5, (LEADER, SECOND), 2, 4, eligible_leader_replicas=(THIRD,))
        led(partition).state_read(proposal, state)
        known = partition.leadership
        assert (known.isr, known.eligible, known.partition_epoch, known.controller_epoch) == (
            (LEADER, SECOND), (THIRD,), 4, 2,
        )

    def test_late_outcome_is_ignored(self) -> None:
        """The outcome of a write from an earlier epoch changes nothing."""
        partition = Leading().partition(leadership(isr=(LEADER,)))
        fetch(partition, SECOND, 0)
        before, proposal = led(partition), begin(partition)
        partition.lead(leadership(6, isr=(LEADER,), partition_epoch=1))
        assert not before.written(proposal, 1)
        before.state_read(proposal, LeaderAndIsr(THIRD, 9, (THIRD,), 2, 9))
        assert partition.leadership == leadership(6, isr=(LEADER,), partition_epoch=1)


def test_followers_are_notified_of_records_that_cannot_be_committed_yet() -> None:
    """A leader that is alone in the ISR but needs another replica cannot commit until followers fetch and catch up."""
    leading = Leading()
    partition = leading.partition(leadership(isr=(LEADER,), eligible=(SECOND,)), min_insync_replicas=2)
    notified: list[set[Partition]] = []

    class Fetch:
        def changed(self, partitions: set[Partition]) -> None:
            notified.append(partitions)

    partition.add_watcher(Fetch())
    append(partition, acks_all=False)
    leading.end_turn()
    assert (partition.high_watermark, notified) == (0, [{partition}])
