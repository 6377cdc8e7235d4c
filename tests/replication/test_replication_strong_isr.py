"""In any order of events, every replica that may be elected has all records ever committed.

The real leader runs with minimal followers, a controller and a state znode; every seed is one order of events. If any
rule is removed, a run must fail; otherwise the runs would prove nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from leading_scene import ALL_REPLICAS, LAG_S, LEADER, SECOND, THIRD, Leading, batch, fetch, leadership

from kreplica.cluster.eligible_leaders import eligible_after
from kreplica.errors import KafkaError
from kreplica.model import LeaderAndIsr
from kreplica.replication.leader import high_watermark, isr_membership
from kreplica.replication.leader.isr_proposal import Proposal
from kreplica.wire.batches import stamp

SEEDS = 2000
STEPS = 80
FOLLOWERS = (SECOND, THIRD)


class Run:
    """One order of events.

    :ivar logs: for every replica, the epoch of each record; for the leader, a copy of its log.
    :ivar true: contents of the state znode.
    :ivar committed: the longest log prefix that any leader has committed.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.required = self.random.randint(1, 3)
        self.leading = Leading()
        self.true = LeaderAndIsr(LEADER, 5, ALL_REPLICAS, 1)
        self.partition = self.leading.partition(leadership(), min_insync_replicas=self.required)
        self.logs: dict[int, list[int]] = {replica: [] for replica in ALL_REPLICAS}
        self.committed: list[int] = []
        self.under_way: Proposal | None = None
        self.version_written: int | None = None

    def go(self) -> None:
        steps: list[Callable[[], None]] = [self.append, *4 * [self.fetch], self.time_passes, self.write, self.write]
        steps += [self.reach_zookeeper, self.reach_zookeeper, self.answer, self.answer, self.take_one_out, self.send]
        steps += [self.change_settings] if self.random.random() < 0.3 else []
        for _ in range(STEPS):
            self.random.choice(steps)()
            if self.random.random() < 0.02:
                self.another_leads_for_a_while()
            self.check()

    def check(self) -> None:
        partition = self.partition
        seen = self.logs[LEADER][: partition.high_watermark]
        if len(seen) > len(self.committed):
            self.committed = seen
        may_lead = {*self.true.isr, *self.true.eligible_leader_replicas}
        for replica in sorted(may_lead):
            has = self.logs[replica][: len(self.committed)]
            assert has == self.committed, f"broker {replica} lacks committed records: {self.true}"

    # --- data ---

    def append(self) -> None:
        (outcome,) = self.partition.append([batch()], 1000, all_in_sync=False)
        if isinstance(outcome, KafkaError):
            return
        self.logs[LEADER].append(self.partition.leadership.leader_epoch)

    def fetch(self) -> None:
        """Truncate a follower to the common prefix, report its log end offset, and append a part of the response."""
        if not self.partition.is_leader:
            return
        follower = self.random.choice(FOLLOWERS)
        own, leaders = self.logs[follower], self.logs[LEADER]
        same = 0
        while same < min(len(own), len(leaders)) and own[same] == leaders[same]:
            same += 1
        del own[same:]
        fetch(self.partition, follower, len(own), self.leading.clock.seconds())
        own += leaders[same : same + self.random.randint(0, 3)]

    def time_passes(self) -> None:
        self.leading.clock.advance(LAG_S * 0.6)

    # --- the leader's writes: each is sent, then applied or lost, and its response arrives or is lost ---

    def write(self) -> None:
        led = self.partition.leader_state
        proposal = led.proposal() if led is not None and self.under_way is None else None
        if led is not None and proposal is not None:
            led.write_started(proposal)
            self.under_way = proposal

    def reach_zookeeper(self) -> None:
        proposal = self.under_way
        if proposal is None or self.version_written is not None:
            return
        if isr_membership.expected_version(proposal.base.partition_epoch) in (self.true.partition_epoch, -1):
            self.write_state(replace(proposal.state))
            self.version_written = self.true.partition_epoch
        else:
            self.version_written = -1

    def answer(self) -> None:
        """Deliver the outcome of a write, or the contents of the znode if it failed or its outcome is unknown."""
        proposal, version, led = self.under_way, self.version_written, self.partition.leader_state
        if proposal is None or version is None:
            return
        self.under_way = self.version_written = None
        if led is None:
            return
        if version >= 0 and self.random.random() < 0.7:
            led.written(proposal, version)
        else:
            led.state_read(proposal, self.true)

    # --- the controller ---

    def write_state(self, state: LeaderAndIsr) -> None:
        self.true = replace(state, partition_epoch=self.true.partition_epoch + 1)

    def take_one_out(self) -> None:
        """Remove a follower from the ISR; the leader is notified later. The follower returns with its log."""
        true, down = self.true, self.random.choice(FOLLOWERS)
        isr = tuple(replica for replica in true.isr if replica != down)
        if not isr or isr == true.isr:
            return
        eligible = eligible_after(
            true.isr, true.eligible_leader_replicas, isr, in_sync_required=self.required, replicas=ALL_REPLICAS
        )
        self.write_state(replace(true, isr=isr, eligible_leader_replicas=eligible))

    def send(self) -> None:
        """Send LeaderAndIsr to the leader, sometimes with a new epoch."""
        if self.random.random() < 0.5:
            self.write_state(replace(self.true, leader=LEADER, leader_epoch=self.true.leader_epoch + 1))
        true = self.true
        sent = leadership(true.leader_epoch, true.isr, true.partition_epoch, eligible=true.eligible_leader_replicas)
        if true.leader_epoch > self.partition.leadership.leader_epoch or not self.partition.is_leader:
            self.partition.lead(sent)
        else:
            self.partition.update_within_epoch(sent)

    def another_leads_for_a_while(self) -> None:
        """Let another broker lead and commit alone; then broker 1, in sync, leads again with an old high watermark."""
        others = [replica for replica in self.true.isr if replica != LEADER]
        if not others:
            return
        leader = self.random.choice(others)
        epoch = self.true.leader_epoch + 1
        self.logs[leader] += [epoch] * self.random.randint(0, 3)
        self.committed = list(self.logs[leader])
        self.partition.follow(leadership(epoch, (leader,), leader=leader))
        self.copy_to_the_first(leader)
        self.write_state(LeaderAndIsr(LEADER, epoch + 1, (leader, LEADER), 1))
        self.partition.lead(leadership(epoch + 1, self.true.isr, self.true.partition_epoch))

    def copy_to_the_first(self, leader: int) -> None:
        own, leaders = self.logs[LEADER], self.logs[leader]
        same = 0
        while same < min(len(own), len(leaders)) and own[same] == leaders[same]:
            same += 1
        self.partition.truncate_to(same)
        for offset in range(same, len(leaders)):
            record = batch()
            stamp(record, offset, leaders[offset])
            self.partition.append_as_follower(
                record, leader_high_watermark=0, leader_log_start_offset=0, now_ms=1000
            )
        self.logs[LEADER] = list(leaders)

    def change_settings(self) -> None:
        """Change min.insync.replicas; the controller and the leader learn of it one after another."""
        if self.random.random() < 0.5:
            self.required = self.random.randint(1, 3)
        else:
            self.partition.settings_changed(self.random.randint(1, 3))


def run_all() -> None:
    for seed in range(SEEDS):
        try:
            Run(seed).go()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from None


def test_electable_replicas_have_all_committed_records() -> None:
    """The runs mix fetches, writes, lost responses, failures, elections and setting changes."""
    run_all()


GUARDS: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "the union counts": (isr_membership, "union", lambda isr, proposed: tuple(isr)),
    "a joining replica has reached the high watermark": (isr_membership, "has_reached_high_watermark", lambda *_: True),
    "a joining replica has reached the epoch start": (isr_membership, "has_reached_epoch_start", lambda *_: True),
    "writes are conditional": (isr_membership, "expected_version", lambda _: -1),
    "nothing is committed while others may lead": (high_watermark, "may_advance", lambda n, required, _: n >= required),
}


@pytest.mark.parametrize("guard", GUARDS)
def test_every_rule_is_needed(guard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the rule, some order of events loses committed records."""
    module, name, instead = GUARDS[guard]
    monkeypatch.setattr(module, name, instead)
    with pytest.raises(AssertionError, match="lacks committed"):
        run_all()
