"""A leader and its followers: what is committed, who joins and leaves, what a new epoch keeps."""

from __future__ import annotations

import pytest
from leading_scene import EVERYBODY, LAG_S, LEADER, SECOND, THIRD, Leading, append, fetch, leadership

from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import LeaderAndIsr
from kreplica.replication import Partition
from kreplica.replication.leader.isr_proposal import Proposal
from kreplica.replication.leader.leader_state import LeaderState


def led(partition: Partition) -> LeaderState:
    assert partition.leader_state is not None
    return partition.leader_state


def begin(partition: Partition) -> Proposal:
    """What a writer does first."""
    proposal = led(partition).proposal()
    assert proposal is not None
    led(partition).write_begins(proposal)
    return proposal


def refused(code: ErrorCode, partition: Partition, *, acks_all: bool = True) -> None:
    with pytest.raises(KafkaError) as raised:
        append(partition, acks_all=acks_all)
    assert raised.value.code is code


class TestCommitting:
    def test_the_slowest_member_decides(self) -> None:
        """A record is committed when every in-sync replica has it, and never before."""
        partition = Leading().partition()
        append(partition, 5)
        fetch(partition, SECOND, 5)
        assert partition.high_watermark == 0, "the third has not been heard of"
        fetch(partition, THIRD, 3)
        assert partition.high_watermark == 3
        fetch(partition, THIRD, 5)
        assert partition.high_watermark == 5

    def test_never_back(self) -> None:
        """A follower that begins anew with less takes nothing back."""
        partition = Leading().partition()
        append(partition, 5)
        for replica in (SECOND, THIRD):
            fetch(partition, replica, 5)
        fetch(partition, THIRD, 1, broker_epoch=31)
        append(partition)
        fetch(partition, SECOND, 6)
        assert partition.high_watermark == 5

    def test_who_is_outside_does_not_count(self) -> None:
        """A replica that is not in sync holds nothing up."""
        partition = Leading().partition(leadership(isr=(LEADER, SECOND)))
        append(partition, 2)
        fetch(partition, SECOND, 2)
        assert partition.high_watermark == 2

    def test_too_few_in_sync(self) -> None:
        """Alone, where two are asked for, a leader commits nothing: what it has dies with it (KIP-966)."""
        partition = Leading().partition(leadership(isr=(LEADER,)), min_insync_replicas=2)
        append(partition, 2, acks_all=False)
        assert partition.high_watermark == 0
        refused(ErrorCode.NOT_ENOUGH_REPLICAS, partition)

    def test_a_topic_of_fewer_replicas_than_asked_for(self) -> None:
        """One replica of a topic that asks for two: whoever does not ask for all replicas still gets on."""
        alone = leadership(isr=(LEADER,), replicas=(LEADER,))
        partition = Leading().partition(alone, min_insync_replicas=2)
        assert append(partition, 2, acks_all=False) == partition.high_watermark == 2

    def test_only_what_is_synced_counts_where_that_is_asked_for(self) -> None:
        """With flush.messages=1 the leader counts its own log like a follower's: what a power loss would leave."""
        partition = Leading().partition(flush_messages=1)
        append(partition, 2)
        for replica in (SECOND, THIRD):
            fetch(partition, replica, 2)
        assert partition.high_watermark == 0
        partition.log.flush()
        partition.end_moved()
        assert partition.high_watermark == 2

    def test_what_a_new_leader_had_is_committed_when_all_have_it(self) -> None:
        """Its high watermark starts where it knew it, however much more its predecessor committed."""
        partition = Leading().partition(records=4)
        assert (partition.high_watermark, partition.epoch_start_offset) == (0, 4)
        for replica in (SECOND, THIRD):
            fetch(partition, replica, 4)
        assert partition.high_watermark == 4


class TestWithoutLease:
    def test_nothing_is_taken_or_committed(self) -> None:
        """Another may lead already: producers are sent on, and what waits goes on waiting."""
        leading = Leading()
        partition = leading.partition()
        append(partition, 2)
        leading.has_lease = False
        for replica in (SECOND, THIRD):
            fetch(partition, replica, 2)
        assert partition.high_watermark == 0
        refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, partition)

    def test_when_it_is_back(self) -> None:
        """What stood still goes on by itself, and no timer is left."""
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

    def test_when_somebody_else_leads_by_then(self) -> None:
        """It commits nothing any more."""
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

    def test_a_lone_replica_needs_none(self) -> None:
        """Nobody else can lead: it serves as long as it lives."""
        leading = Leading()
        partition = leading.partition(leadership(isr=(LEADER,), replicas=(LEADER,)))
        leading.has_lease = False
        assert append(partition) == partition.high_watermark == 1


class TestJoining:
    def test_a_follower_that_has_caught_up(self) -> None:
        """It is proposed, and counts from then on, before anybody knows what became of the write."""
        leading = Leading()
        partition = leading.partition(leadership(isr=(LEADER, SECOND)), records=3)
        fetch(partition, SECOND, 3)
        fetch(partition, THIRD, 2)
        assert leading.proposed == []
        fetch(partition, THIRD, 3)
        assert leading.proposed == [led(partition)]
        proposal = begin(partition)
        assert proposal.isr == EVERYBODY
        assert proposal.joining == ((THIRD, 30),)
        append(partition)
        fetch(partition, SECOND, 4)
        assert partition.high_watermark == 3, "the third counts already"
        fetch(partition, THIRD, 4)
        assert partition.high_watermark == 4

    def test_one_that_has_not_reached_the_start_of_the_epoch(self) -> None:
        """A new leader's high watermark lags: what it had when it began may be committed, and counts."""
        leading = Leading()
        partition = leading.partition(leadership(isr=(LEADER, SECOND)), records=3)
        fetch(partition, THIRD, 1)
        assert partition.high_watermark == 0
        assert leading.proposed == []

    def test_one_that_was_refused(self) -> None:
        """It is left out until it fetches as another incarnation."""
        partition = Leading().partition(leadership(isr=(LEADER, SECOND)))
        fetch(partition, THIRD, 0)
        assert led(partition).proposal({THIRD: 30}) is None
        fetch(partition, THIRD, 0, broker_epoch=31)
        assert led(partition).proposal({THIRD: 30}) is not None

    def test_one_write_at_a_time(self) -> None:
        """Nothing is proposed on top of what is being written."""
        partition = Leading().partition(leadership(isr=(LEADER,)))
        fetch(partition, SECOND, 0)
        begin(partition)
        fetch(partition, THIRD, 0)
        assert led(partition).proposal() is None

    def test_an_earlier_incarnation_is_not_heard_any_more(self) -> None:
        """A fetch that was on its way when its broker restarted says nothing about the log that it has now."""
        partition = Leading().partition()
        append(partition, 2)
        fetch(partition, SECOND, 0, broker_epoch=25)
        with pytest.raises(KafkaError) as raised:
            fetch(partition, SECOND, 2, broker_epoch=20)
        assert raised.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert partition.known_end_offset(SECOND) == 0

    def test_a_stranger(self) -> None:
        """The leader may be the one who is late: the stranger tries again."""
        with pytest.raises(KafkaError) as raised:
            fetch(Leading().partition(), 9, 0)
        assert raised.value.code is ErrorCode.UNKNOWN_LEADER_EPOCH


class TestLeaving:
    def lagging(self, leading: Leading, min_insync_replicas: int = 1, **first: object) -> Partition:
        """A partition whose third replica has been behind for too long."""
        partition = leading.partition(leadership(**first), min_insync_replicas=min_insync_replicas)  # type: ignore[arg-type]
        append(partition, 2, acks_all=False)
        leading.clock.advance(LAG_S + 1)
        fetch(partition, SECOND, 2, leading.clock.seconds())
        return partition

    def test_it_counts_until_the_write_is_confirmed(self) -> None:
        """Until then it may still be elected."""
        partition = self.lagging(Leading())
        proposal = begin(partition)
        assert proposal.isr == (LEADER, SECOND)
        fetch(partition, SECOND, 2)
        assert partition.high_watermark == 0
        assert led(partition).written(proposal, 1)
        assert partition.high_watermark == 2
        assert (partition.leadership.isr, partition.leadership.partition_epoch) == ((LEADER, SECOND), 1)

    def test_who_leaves_a_set_that_becomes_too_small_may_still_lead(self) -> None:
        """It has everything that is committed, and nothing more is until there are enough again (KIP-966)."""
        partition = self.lagging(Leading(), min_insync_replicas=3)
        proposal = begin(partition)
        assert proposal.eligible == (THIRD,)
        led(partition).written(proposal, 1)
        assert partition.high_watermark == 0
        refused(ErrorCode.NOT_ENOUGH_REPLICAS, partition)

    def test_nothing_is_committed_while_somebody_outside_may_lead(self) -> None:
        """Settings that ask for fewer replicas do not make it forget those who were promised that they may lead."""
        leading = Leading()
        partition = leading.partition(leadership(isr=(LEADER, SECOND), eligible=(THIRD,)), min_insync_replicas=3)
        append(partition, 2, acks_all=False)
        fetch(partition, SECOND, 2)
        partition.settings_changed(2)
        assert partition.high_watermark == 0
        assert leading.proposed == [led(partition)], "the state has to be written without them first"
        proposal = begin(partition)
        assert (proposal.isr, proposal.eligible) == ((LEADER, SECOND), ())
        assert partition.high_watermark == 0
        led(partition).written(proposal, 1)
        assert partition.high_watermark == 2

    def test_who_is_not_heard_of_does_not_join_again(self) -> None:
        """It has all that is committed, for nothing more is: else it would join and leave again without end."""
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
        assert begin(partition).isr == EVERYBODY

    def test_a_look_proposes_it(self) -> None:
        """Nobody has to be heard of for that."""
        leading = Leading()
        partition = self.lagging(leading)
        led(partition).look_for_lag()
        assert leading.proposed == [led(partition)]


class TestToldAgain:
    def test_older_news_of_the_in_sync_set(self) -> None:
        """A controller that has not heard of the leader's own write does not undo it; the rest of its news counts."""
        partition = Leading().partition(leadership(isr=(LEADER, SECOND), partition_epoch=3))
        partition.update_within_epoch(leadership(isr=EVERYBODY, partition_epoch=2, read_only=True))
        assert (partition.leadership.isr, partition.leadership.partition_epoch) == ((LEADER, SECOND), 3)
        refused(ErrorCode.NOT_ENOUGH_REPLICAS, partition)

    def test_newer_news(self) -> None:
        """The state znode has moved on: a write that is under way has failed, whatever its answer will be."""
        partition = Leading().partition(leadership(isr=(LEADER, SECOND)))
        fetch(partition, THIRD, 0)
        proposal = begin(partition)
        partition.update_within_epoch(leadership(isr=(LEADER,), partition_epoch=1))
        append(partition)
        assert partition.high_watermark == 1, "only who is in the newer set counts"
        assert not led(partition).written(proposal, 1)
        assert partition.leadership.isr == (LEADER,)

    def test_followers_stay_known(self) -> None:
        """No new epoch, so what they fetched holds; a replica that comes to it is unknown."""
        partition = Leading().partition(leadership(isr=(LEADER,)))
        fetch(partition, SECOND, 0)
        partition.update_within_epoch(leadership(isr=(LEADER,), replicas=(1, 2, 3, 4)))
        assert [partition.known_end_offset(replica) for replica in (2, 3, 4)] == [0, None, None]

    def test_a_new_epoch_forgets_what_followers_had(self) -> None:
        """They may have been cut back meanwhile; what this leader appended stays."""
        partition = Leading().partition()
        append(partition, 2)
        fetch(partition, SECOND, 2)
        partition.lead(leadership(6))
        assert partition.known_end_offset(SECOND) is None
        assert (partition.leadership_generation, partition.epoch_start_offset) == (0, 2)
        fetch(partition, THIRD, 2)
        assert partition.high_watermark == 0


class TestWhatTheZnodeSays:
    def test_a_later_leader_epoch(self) -> None:
        """This leader is one no more, before anybody tells it; the command that comes makes it what it is to be."""
        partition = Leading().partition(leadership(isr=(LEADER,)))
        fetch(partition, SECOND, 0)
        proposal = begin(partition)
        led(partition).was_read(proposal, LeaderAndIsr(SECOND, 6, (SECOND,), 2, 4))
        refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, partition)
        assert (partition.leadership.leader, partition.leadership.leader_epoch) == (SECOND, 6)

    def test_the_same_epoch(self) -> None:
        """Somebody else wrote it, or the write that nobody answered: it is taken over."""
        partition = Leading().partition(leadership(isr=(LEADER,)), min_insync_replicas=2)
        fetch(partition, SECOND, 0)
        proposal = begin(partition)
        state = LeaderAndIsr(LEADER, 5, (LEADER, SECOND), 2, 4, eligible_leader_replicas=(THIRD,))
        led(partition).was_read(proposal, state)
        known = partition.leadership
        assert (known.isr, known.eligible, known.partition_epoch, known.controller_epoch) == (
            (LEADER, SECOND), (THIRD,), 4, 2,
        )

    def test_an_answer_that_comes_too_late(self) -> None:
        """What was proposed in an earlier epoch changes nothing in this one."""
        partition = Leading().partition(leadership(isr=(LEADER,)))
        fetch(partition, SECOND, 0)
        before, proposal = led(partition), begin(partition)
        partition.lead(leadership(6, isr=(LEADER,), partition_epoch=1))
        assert not before.written(proposal, 1)
        before.was_read(proposal, LeaderAndIsr(THIRD, 9, (THIRD,), 2, 9))
        assert partition.leadership == leadership(6, isr=(LEADER,), partition_epoch=1)
