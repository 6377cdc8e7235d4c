"""The controller's decisions are safe under any sequence of broker and controller failures."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kreplica.cluster.eligible_leaders import eligible_after, required_isr_size
from kreplica.controller.decisions import state_changes
from kreplica.controller.decisions.state_changes import StateChange, TopicRules
from kreplica.controller.state.context import ControllerContext
from kreplica.model import NO_LEADER, BrokerRegistration, LeaderAndIsr, TopicAssignment, TopicPartition

P = TopicPartition("t", 0)
REPLICAS = (1, 2, 3)
MIN_INSYNC = 2
BROKERS = st.sampled_from(REPLICAS)


def rules(_: str) -> TopicRules:
    return TopicRules(unclean_allowed=False, min_insync_replicas=MIN_INSYNC)


class Cluster(RuleBasedStateMachine):
    """A model of the logs of one partition on three brokers, driven by the controller's decisions.

    A log is its number of records; ``committed`` is the highest number that a client may have seen acknowledged.  The
    high watermark follows the leader's rules: all in-sync replicas have the record, enough are in sync, and no eligible
    replica exists outside the ISR.
    """

    def __init__(self) -> None:
        super().__init__()
        self.zxid = 10
        self.context = ControllerContext(1, 1)
        self.context.topics["t"] = TopicAssignment("t", UUID(int=1), {0: REPLICAS})
        self.logs = dict.fromkeys(REPLICAS, 0)
        self.committed = 0
        self.whole_since: dict[int, int] = {}
        self.dead: set[int] = set()
        for broker in REPLICAS:
            self.whole_since[broker] = self.next_zxid()
            self.context.add_broker(BrokerRegistration(broker, (), epoch=self.zxid))
        self.context.leadership[P] = LeaderAndIsr(1, 0, REPLICAS, 1)
        self.epochs = [0]

    def next_zxid(self) -> int:
        self.zxid += 1
        return self.zxid

    @property
    def state(self) -> LeaderAndIsr:
        return self.context.leadership[P]

    def write(self, changes: list[StateChange]) -> None:
        for change in changes:
            led_by, leads = self.state.leader, change.state.leader
            self.context.leadership[P] = replace(change.state, partition_epoch=change.state.partition_epoch + 1)
            self.epochs.append(self.state.leader_epoch)
            if leads not in (NO_LEADER, led_by):
                self.follow(leads)

    def follow(self, leader: int) -> None:
        """Truncate live followers to the new leader's log."""
        for broker in self.context.brokers:
            self.logs[broker] = min(self.logs[broker], self.logs[leader])

    # --- actions of clients, leaders and followers ------------------------------------------------------------------

    @precondition(lambda self: self.state.leader in self.context.brokers)
    @rule()
    def produce(self) -> None:
        self.logs[self.state.leader] += 1

    @precondition(lambda self: self.state.leader in self.context.brokers)
    @rule(broker=BROKERS)
    def fetch(self, broker: int) -> None:
        if broker in self.context.brokers and broker not in self.context.shutting_down:
            self.logs[broker] = self.logs[self.state.leader]
        self.commit()

    def commit(self) -> None:
        enough = len(self.state.isr) >= required_isr_size(MIN_INSYNC, len(REPLICAS))
        if enough and not self.state.eligible_leader_replicas:
            self.committed = max(self.committed, min(self.logs[broker] for broker in self.state.isr))

    @precondition(lambda self: self.state.leader in self.context.brokers)
    @rule(broker=BROKERS, joins=st.booleans())
    def leader_writes(self, broker: int, joins: bool) -> None:
        """Let the leader add caught-up replicas to the ISR, or remove lagging ones."""
        old = self.state
        caught_up = self.logs[broker] == self.logs[old.leader] and broker in self.context.brokers
        if joins and broker not in old.isr and caught_up and broker not in self.context.shutting_down:
            isr = (*old.isr, broker)
        elif not joins and broker in old.isr and broker != old.leader:
            isr = tuple(replica for replica in old.isr if replica != broker)
        else:
            return
        eligible = eligible_after(
            old.isr,
            old.eligible_leader_replicas,
            isr,
            in_sync_required=required_isr_size(MIN_INSYNC, len(REPLICAS)),
            replicas=REPLICAS,
        )
        self.context.leadership[P] = replace(
            old, isr=isr, eligible_leader_replicas=eligible, partition_epoch=old.partition_epoch + 1
        )
        self.commit()

    # --- events of brokers -------------------------------------------------------------------------------------------

    @rule(broker=BROKERS)
    def dies(self, broker: int) -> None:
        if broker in self.context.brokers:
            self.context.remove_broker(broker)
            self.dead.add(broker)
            self.write(state_changes.repairs(self.context, [P], rules))

    @rule(broker=BROKERS, loses=st.integers(0, 2))
    def comes_back(self, broker: int, loses: int) -> None:
        if broker in self.dead:
            self.rejoin({broker: loses}, bounced=())

    @rule(losses=st.dictionaries(BROKERS, st.integers(0, 2), min_size=1))
    def bounce_unnoticed(self, losses: dict[int, int]) -> None:
        """Restart several brokers at once, without the controller noticing."""
        lived = {broker: losses[broker] for broker in sorted(losses) if broker in self.context.brokers}
        self.rejoin(lived, bounced=tuple(lived))

    def rejoin(self, losses: dict[int, int], bounced: tuple[int, ...]) -> None:
        joined = {broker: self.restart(broker, loses) for broker, loses in losses.items()}
        known = self.context.known_epochs
        unclean = [b for b in joined if not state_changes.has_intact_logs(joined[b], known.get(b, -1))]
        for registration in joined.values():
            self.context.add_broker(registration)
        self.note_total_loss(unclean)
        self.write(state_changes.repairs(self.context, [P], rules, bounced=bounced, unclean=unclean))
        self.catch_up()

    def restart(self, broker: int, loses: int) -> BrokerRegistration:
        """Restart a broker, which may have lost the end of its log."""
        self.dead.discard(broker)
        self.logs[broker] = max(0, self.logs[broker] - loses)
        epoch = self.next_zxid()
        if loses:
            self.whole_since[broker] = epoch
        return BrokerRegistration(broker, (), epoch=epoch, intact_since=self.whole_since[broker])

    def note_total_loss(self, unclean: list[int]) -> None:
        """If all replicas that held the committed records have lost some, only the remaining records count."""
        if {*self.state.isr, *self.state.eligible_leader_replicas} <= set(unclean):
            isr, _ = state_changes.without_unclean(self.state, unclean)
            self.committed = min(self.committed, self.logs[isr[0]])

    def catch_up(self) -> None:
        if self.state.leader in self.context.brokers:
            self.follow(self.state.leader)

    @rule(broker=BROKERS)
    def wants_to_stop(self, broker: int) -> None:
        if broker in self.context.brokers:
            self.context.shutting_down.add(broker)
            self.write(state_changes.controlled_shutdown_changes(self.context, [P], rules))

    @rule(broker=BROKERS)
    def directory_fails(self, broker: int) -> None:
        if broker in self.context.brokers:
            self.context.failed_replicas.setdefault(broker, set()).add(P)
            self.write(state_changes.repairs(self.context, [P], rules))

    @rule()
    def preferred_leader(self) -> None:
        self.write(state_changes.preferred_elections(self.context, [P], rules))

    @rule(losses=st.dictionaries(BROKERS, st.integers(0, 2)), dies=st.none() | BROKERS)
    def controller_fails_over(self, losses: dict[int, int], dies: int | None) -> None:
        """Start a new controller from the state in ZooKeeper, after unnoticed restarts and failures."""
        old, self.context = self.context, ControllerContext(self.context.controller_epoch + 1, 1)
        self.context.topics, self.context.leadership = old.topics, old.leadership
        live = dict(old.brokers) | {broker: self.restart(broker, losses[broker]) for broker in sorted(losses)}
        if live.pop(dies, None) is not None:
            self.dead.add(dies)
        for _, registration in sorted(live.items()):
            self.context.add_broker(registration)
        known = old.known_epochs
        unclean = [b for b, r in live.items() if not state_changes.has_intact_logs(r, known.get(b, -1))]
        bounced = [b for b, r in live.items() if r.epoch > known.get(b, -1)]
        self.note_total_loss(unclean)
        self.write(state_changes.repairs(self.context, [P], rules, bounced=bounced, unclean=unclean))
        self.context.known_epochs = known | self.context.known_epochs
        self.catch_up()

    # --- invariants --------------------------------------------------------------------------------------------------

    @invariant()
    def the_leader_is_in_sync(self) -> None:
        assert self.state.leader == NO_LEADER or self.state.leader in self.state.isr

    @invariant()
    def in_sync_replicas_exist_and_are_replicas(self) -> None:
        assert self.state.isr
        assert {*self.state.isr, *self.state.eligible_leader_replicas} <= set(REPLICAS)
        assert not set(self.state.isr) & set(self.state.eligible_leader_replicas)

    @invariant()
    def epochs_grow(self) -> None:
        assert self.epochs == sorted(self.epochs)

    @invariant()
    def leader_is_live(self) -> None:
        leader = self.state.leader
        assert leader == NO_LEADER or self.context.is_online(P, leader)

    @invariant()
    def partition_with_a_candidate_has_a_leader(self) -> None:
        candidates = self.context.electable_replicas(P)
        if self.state.leader == NO_LEADER:
            assert not any(b in candidates for b in (*self.state.isr, *self.state.eligible_leader_replicas))

    @invariant()
    def nothing_committed_is_lost(self) -> None:
        """Every live replica that may be elected holds all committed records."""
        for broker in (*self.state.isr, *self.state.eligible_leader_replicas):
            if broker in self.context.brokers:
                assert self.logs[broker] >= self.committed


TestSafety = Cluster.TestCase
TestSafety.settings = settings(max_examples=300, stateful_step_count=40)
