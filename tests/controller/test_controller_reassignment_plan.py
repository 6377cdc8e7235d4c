"""Steps of a partition's reassignment, for any sequence of failures and requests."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from kreplica.controller.decisions import reassignment_plan as plan
from kreplica.controller.decisions.reassignment_plan import Placement
from kreplica.model import NO_LEADER, LeaderAndIsr, TopicAssignment

BROKERS = range(1, 8)
REQUIRED = 2


def state(leader: int, *isr: int) -> LeaderAndIsr:
    return LeaderAndIsr(leader, 0, isr, 1)


def test_a_move_expands_first():
    """The target's first replica is the preferred leader from the first step."""
    now = plan.expand(Placement((1, 2, 3)), (4, 2, 5), holders=(1, 2, 3))
    assert now == Placement((4, 2, 5, 1, 3), adding=(4, 5), removing=(1, 3))
    assert (now.target, sorted(now.origin)) == ((4, 2, 5), [1, 2, 3])


def test_it_contracts_when_the_target_is_in_sync():
    """It does not contract earlier; a leader in the target stays leader, otherwise a target replica is elected."""
    now = Placement((4, 2, 5, 1, 3), adding=(4, 5), removing=(1, 3))
    for isr in ((1, 2, 3), (1, 2, 3, 4), (2, 4, 1)):
        assert plan.contract(now, state(1, *isr), BROKERS, in_sync_required=REQUIRED) is None
    assert plan.contract(now, state(1, 1, 2, 4, 5), BROKERS, in_sync_required=REQUIRED) == (4, (2, 4, 5), False)
    assert plan.contract(now, state(2, 1, 2, 4, 5), BROKERS, in_sync_required=REQUIRED) == (2, (2, 4, 5), False)
    assert plan.contract(now, state(1, 1, 2, 4, 5), {1, 2}, in_sync_required=REQUIRED) == (2, (2, 4, 5), False)
    assert plan.contract(now, state(1, 1, 2, 4, 5), {1}, in_sync_required=REQUIRED) is None
    assert plan.contracted(now) == Placement((4, 2, 5), removing=(1, 3))
    assert not plan.contracted(now).is_moving
    assert plan.contracted(now).dropped == (1, 3)
    assert plan.without_deleted(plan.contracted(now), {1}) == Placement((4, 2, 5), removing=(3,))


def test_a_target_that_replaces_another_keeps_the_origin():
    """In-sync replicas of the replaced target are kept until the end; its other replicas are dropped at once."""
    first = plan.expand(Placement((1, 2)), (3, 4), holders=(1, 2))
    second = plan.expand(first, (1, 5), holders=(1, 2, 3))
    assert second.replicas == (1, 5, 3, 2)
    assert second.dropped == (4,)
    assert (second.target, sorted(second.origin)) == ((1, 5), [1, 2])
    assert plan.expand(second, second.target, holders=(1, 2, 3)) == second


def test_a_replica_that_was_dropped_may_come_back():
    """A dropped replica can be added again and is then not deleted."""
    dropped = Placement((2, 3), removing=(1,))
    now = plan.expand(dropped, (1, 2), holders=(2, 3))
    assert now == Placement((1, 2, 3), adding=(1,), removing=(3,))


def test_invalid_targets():
    """New replicas must be on live brokers; others need not."""
    now = Placement((1, 2, 3))
    assert plan.reason_to_reject(now, (1, 2), {1}) is None
    assert plan.reason_to_reject(now, (), BROKERS)
    assert plan.reason_to_reject(now, (1, 1), BROKERS)
    assert plan.reason_to_reject(now, (1, 9), BROKERS)


def test_a_placement_survives_its_znode():
    """A placement round-trips through the topic's assignment."""
    moving, still = Placement((4, 1), (4,), (1, 9)), Placement((1, 2))
    empty = TopicAssignment("t", None, {0: (1,), 1: (1, 2)}, removing={1: (5,)})
    written = plan.with_placements(empty, {0: moving, 1: still})
    assert plan.placement_of(written, 0) == moving
    assert plan.placement_of(written, 1) == still
    assert written.removing == {0: (1, 9)}


# --- any sequence of events -------------------------------------------------------------------------------------------


@dataclass
class World:
    """A simplified model of one partition, its brokers, its leader and the controller."""

    now: Placement
    isr: tuple[int, ...]
    leader: int
    live: set[int] = field(default_factory=lambda: set(BROKERS))

    def ask(self, target: tuple[int, ...]) -> None:
        if plan.reason_to_reject(self.now, target, self.live) is None:
            self.now = plan.expand(self.now, target, self.isr)
            self.settle()

    def cancel(self) -> None:
        if self.now.is_moving:
            self.ask(self.now.origin)

    def catch_up(self, broker: int) -> None:
        alive = self.leader != NO_LEADER
        if alive and broker in self.live and broker in self.now.replicas and broker not in self.isr:
            self.isr = (*self.isr, broker)
            self.settle()

    def die(self, broker: int) -> None:
        self.live.discard(broker)
        if len(self.isr) > 1 or broker not in self.isr:
            self.isr = tuple(replica for replica in self.isr if replica != broker)
        self.elect()

    def come_back(self, broker: int) -> None:
        self.live.add(broker)
        self.elect()
        self.settle()

    def elect(self) -> None:
        if self.leader not in self.live or self.leader not in self.isr:
            able = [replica for replica in self.now.replicas if replica in self.isr and replica in self.live]
            self.leader = able[0] if able else NO_LEADER

    def settle(self) -> None:
        """Apply the controller's reaction to a change."""
        if self.leader == NO_LEADER:
            return
        before = self.isr
        chosen = plan.contract(self.now, state(self.leader, *self.isr), self.live, in_sync_required=REQUIRED)
        if chosen is not None:
            target = self.now.target
            assert chosen.leader in chosen.isr
            assert chosen.leader in self.live
            assert set(chosen.isr) <= set(target) & set(before)
            assert len(chosen.isr) >= min(REQUIRED, len(target)), "acknowledged records are on enough replicas"
            was_in_sync = len(set(before) & set(self.now.origin))
            assert len(chosen.isr) >= min(was_in_sync, len(target)), "the number of in-sync replicas has not decreased"
            self.leader, self.isr, self.now = chosen.leader, chosen.isr, plan.contracted(self.now)

    def check(self) -> None:
        assert self.isr, "one replica holds all records"
        assert set(self.isr) <= set(self.now.replicas)
        assert len(set(self.now.replicas)) == len(self.now.replicas)
        assert set(self.now.adding) <= set(self.now.replicas)
        assert self.now.target, "a target exists"


subsets = st.lists(st.sampled_from(BROKERS), unique=True, min_size=1, max_size=3).map(tuple)
deeds = st.one_of(
    st.tuples(st.just("ask"), subsets),
    st.just(("cancel",)),
    st.tuples(st.sampled_from(["catch_up", "die", "come_back"]), st.sampled_from(BROKERS)),
)


@given(first=subsets, story=st.lists(deeds, max_size=40))
@settings(max_examples=600)
def test_a_move_ends_and_loses_nothing(first: tuple[int, ...], story: list) -> None:
    """In-sync replicas leave only if enough target replicas are in sync; the move ends when all have caught up."""
    world = World(Placement(first), first, first[0])
    for name, *arguments in story:
        getattr(world, name)(*arguments)
        world.check()
    for broker in BROKERS:
        world.come_back(broker)
    for broker in BROKERS:
        world.catch_up(broker)
        world.check()
    assert not world.now.is_moving
    assert set(world.isr) == set(world.now.replicas)


@given(first=subsets, targets=st.lists(subsets, min_size=1, max_size=5), caught_up=st.sets(st.sampled_from(BROKERS)))
def test_cancelling_restores_the_origin(first: tuple[int, ...], targets: list, caught_up: set[int]) -> None:
    """A cancellation restores the original replicas, however often the target was replaced."""
    world = World(Placement(first), first, first[0])
    for target in targets:
        world.ask(target)
        for broker in sorted(caught_up):
            world.catch_up(broker)
        if not world.now.is_moving:
            return
    world.cancel()
    assert set(world.now.target) == set(first)
    assert not world.now.is_moving, "all replicas are in sync"
