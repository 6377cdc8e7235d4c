"""A rebalance plan reaches balance, and no plan with fewer moves does."""

from __future__ import annotations

import time
from collections import Counter
from itertools import combinations, product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kreplica.cluster.placement import BrokerPlace, place
from kreplica.cluster.rebalance import ReplicaMove, rebalance
from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import TopicPartition


def key(partition):
    return TopicPartition("orders", partition)


def without_racks(*ids):
    return [BrokerPlace(broker) for broker in ids]


@st.composite
def clusters(draw, *, brokers_max, partitions_max, racks=False):
    """Strategy: an assignment, and brokers for its plan, some of them new and some of the old ones missing."""
    ids = range(1, draw(st.integers(2, brokers_max)) + 1)
    factor = draw(st.integers(1, min(3, len(ids))))
    replicas = st.permutations(ids).map(lambda order: tuple(order[:factor]))
    assigned = draw(st.lists(replicas, min_size=1, max_size=partitions_max))
    broker_ids = draw(st.sets(st.sampled_from([*ids, 11, 12]), min_size=factor, max_size=4))
    rack = st.sampled_from(["a", "b", "c"]) if racks else st.none()
    places = [BrokerPlace(broker, draw(rack)) for broker in sorted(broker_ids)]
    return {key(i): replicas for i, replicas in enumerate(assigned)}, places


def unevenness(counts):
    return sum(count * count for count in counts)


def plan_cost(assigned, places, sizes, chosen):
    """Return the cost of a plan in order of priority: rack spread, evenness, bytes copied."""
    rack_of = {broker.broker_id: broker.rack for broker in places}
    rack_unevenness = sum(unevenness(Counter(rack_of[r] for r in replicas).values()) for replicas in chosen.values())
    replica_counts = Counter(replica for replicas in chosen.values() for replica in replicas)
    copied = sum(sizes[k] * len(set(replicas).difference(assigned[k])) for k, replicas in chosen.items())
    return rack_unevenness if len(set(rack_of.values())) > 1 else 0, unevenness(replica_counts.values()), copied


def lowest_cost(assigned, places, sizes, factor):
    """Return the lowest cost of all plans, by exhaustive search."""
    choices = list(combinations([broker.broker_id for broker in places], factor))
    plans = product(choices, repeat=len(assigned))
    return min(plan_cost(assigned, places, sizes, dict(zip(assigned, plan, strict=True))) for plan in plans)


def check_plan(assigned, places, plan, factor=None):
    """Check that a plan is complete and that its moves lead to its assignments."""
    assert list(plan.assignments) == sorted(assigned)
    after = {k: set(replicas) for k, replicas in assigned.items()}
    for move in plan.moves:
        assert move.target not in after[move.partition]
        after[move.partition].add(move.target)
        after[move.partition].discard(move.source)
    broker_ids = {broker.broker_id for broker in places}
    for k, replicas in plan.assignments.items():
        assert len(set(replicas)) == len(replicas) == (factor or len(assigned[k]))
        assert set(replicas) <= broker_ids
        assert set(replicas) <= after[k]
    replica_counts = Counter(replica for replicas in plan.assignments.values() for replica in replicas)
    assert plan.replica_counts == {broker: replica_counts[broker] for broker in sorted(broker_ids)}
    leader_counts = Counter(replicas[0] for replicas in plan.assignments.values())
    assert plan.leader_counts == {broker: leader_counts[broker] for broker in sorted(broker_ids)}


class TestWeights:
    """Balancing of weights."""

    @settings(max_examples=200)
    @given(clusters(brokers_max=5, partitions_max=20, racks=True), st.data())
    def test_plan_is_complete_and_no_less_even(self, assigned_and_places, data):
        """Plans are complete, and no move reduces rack spread or evenness."""
        assigned, places = assigned_and_places
        weights = {k: data.draw(st.integers(0, 1000)) for k in assigned}
        plan = rebalance(assigned, places, weights=weights)
        check_plan(assigned, places, plan)
        again = rebalance(plan.assignments, places, weights=weights)
        assert again.moves == (), "an even assignment is not changed"

    def test_large_cluster_is_balanced(self):
        """With very different weights, replicas and leaders are balanced within a few percent."""
        random = Random(3)
        places = without_racks(*range(1, 21))
        assigned = {key(i): tuple(random.sample(range(1, 21), 3)) for i in range(2000)}
        weights = {k: int(random.lognormvariate(10, 1)) for k in assigned}
        started_s = time.perf_counter()
        plan = rebalance(assigned, places, weights=weights)
        assert time.perf_counter() - started_s < 20
        check_plan(assigned, places, plan)
        replica_loads, leader_loads = Counter(), Counter()
        for k, replicas in plan.assignments.items():
            leader_loads[replicas[0]] += weights[k]
            for replica in replicas:
                replica_loads[replica] += weights[k]
        for loads in (replica_loads, leader_loads):
            assert max(loads.values()) - min(loads.values()) <= 0.06 * sum(loads.values()) / len(places)
        moved = sum(weights[move.partition] for move in plan.moves)
        assert moved < 0.3 * sum(replica_loads.values())

    def test_replicas_without_weight_stay(self):
        assigned = {key(i): (1,) for i in range(6)}
        plan = rebalance(assigned, without_racks(1, 2), weights={key(0): 5, key(1): 5})
        assert [move.partition for move in plan.moves] in ([key(0)], [key(1)])


class TestLeastMovement:
    @settings(max_examples=80)
    @given(clusters(brokers_max=4, partitions_max=4), st.lists(st.integers(0, 9), min_size=4, max_size=4))
    def test_without_racks(self, cluster, sizes):
        """No balanced plan copies fewer bytes."""
        assigned, places = cluster
        sizes = dict(zip((key(i) for i in range(4)), sizes, strict=True))
        plan = rebalance(assigned, places, sizes=sizes)
        check_plan(assigned, places, plan)
        factor = len(assigned[key(0)])
        assert plan_cost(assigned, places, sizes, plan.assignments) == lowest_cost(assigned, places, sizes, factor)
        assert max(plan.replica_counts.values()) - min(plan.replica_counts.values()) <= 1

    @settings(max_examples=150)
    @given(clusters(brokers_max=4, partitions_max=4, racks=True))
    def test_with_racks(self, cluster):
        """No plan with the same rack spread and balance copies fewer bytes."""
        assigned, places = cluster
        sizes = dict.fromkeys(assigned, 1)
        plan = rebalance(assigned, places)
        check_plan(assigned, places, plan)
        factor = len(assigned[key(0)])
        assert plan_cost(assigned, places, sizes, plan.assignments) == lowest_cost(assigned, places, sizes, factor)

    @settings(max_examples=80)
    @given(clusters(brokers_max=4, partitions_max=4), st.data())
    def test_other_replication_factor(self, cluster, data):
        """A larger factor copies only new replicas, and a smaller factor copies nothing unnecessary."""
        assigned, places = cluster
        factor = data.draw(st.integers(1, min(3, len(places))))
        plan = rebalance(assigned, places, replication_factor=factor)
        check_plan(assigned, places, plan, factor)
        sizes = dict.fromkeys(assigned, 1)
        assert plan_cost(assigned, places, sizes, plan.assignments) == lowest_cost(assigned, places, sizes, factor)

    @given(st.integers(1, 8), st.integers(1, 4), st.integers(1, 60), st.integers(0, 9))
    def test_added_brokers_meet_the_lower_bound(self, old, new, partitions, start):
        """New brokers get their share with one move per replica."""
        factor = min(3, old)
        assigned = {
            key(p): r for p, r in place(without_racks(*range(old)), partitions, factor, start_index=start).items()
        }
        plan = rebalance(assigned, without_racks(*range(old + new)))
        replica_counts = Counter(replica for replicas in assigned.values() for replica in replicas)
        share, extra = divmod(partitions * factor, old + new)
        counts = sorted((replica_counts[broker] for broker in range(old + new)), reverse=True)
        shares = [share + (index < extra) for index in range(old + new)]
        assert len(plan.moves) == sum(max(0, count - target) for count, target in zip(counts, shares, strict=True))
        assert max(plan.replica_counts.values()) - min(plan.replica_counts.values()) <= 1

    @given(st.integers(5, 9), st.integers(20, 60))
    def test_lost_broker_meets_the_lower_bound(self, brokers, partitions):
        """Only replicas of the lost broker are copied, once each."""
        assigned = {key(p): r for p, r in place(without_racks(*range(brokers)), partitions, 3).items()}
        plan = rebalance(assigned, without_racks(*range(1, brokers)))
        assert len(plan.moves) == sum(0 in replicas for replicas in assigned.values())
        assert {move.source for move in plan.moves} == {0}


class TestLeaders:
    @given(clusters(brokers_max=6, partitions_max=30))
    def test_leaders_are_balanced_by_order_alone(self, cluster):
        """Preferred leaders are as even as the replicas permit."""
        assigned, places = cluster
        plan = rebalance(assigned, places)
        counts = plan.leader_counts
        assert max(counts.values()) - min(counts.values()) <= 1

    def test_balanced_leaders_are_not_changed(self):
        """One excess leader is balanced by reordering one partition."""
        assigned = {key(p): r for p, r in place(without_racks(1, 2, 3), 9, 3).items()}
        assert rebalance(assigned, without_racks(1, 2, 3)).changed(assigned) == {}
        first = next(k for k, replicas in assigned.items() if replicas[0] == 1)
        assigned[first] = (2, 1, 3)
        plan = rebalance(assigned, without_racks(1, 2, 3))
        assert len(plan.changed(assigned)) == 1
        assert plan.moves == ()


class TestParticipatingBrokers:
    def test_cordoned(self):
        """Cordoned brokers keep their replicas, and the other brokers are balanced."""
        assigned = {key(0): (1, 2), key(1): (1, 2), key(2): (1, 2), key(3): (1, 3)}
        plan = rebalance(assigned, without_racks(1, 2, 3), cordoned=[1])
        assert plan.moves == (ReplicaMove(key(0), 2, 3),)
        assert plan.replica_counts == {1: 4, 2: 2, 3: 2}

    def test_drained_in_a_rack(self):
        """Replicas of a drained broker stay in its rack."""
        racks = [BrokerPlace(broker, f"rack{broker % 3}") for broker in range(6)]
        assigned = {key(p): r for p, r in place(racks, 12, 3).items()}
        plan = rebalance(assigned, [broker for broker in racks if broker.broker_id != 5])
        assert {move.target for move in plan.moves} == {2}
        assert len(plan.moves) == sum(5 in replicas for replicas in assigned.values())

    def test_racks_assigned_later(self):
        """Partitions in a single rack are spread with one move each."""
        places = [BrokerPlace(1, "a"), BrokerPlace(2, "a"), BrokerPlace(3, "b"), BrokerPlace(4, "b")]
        plan = rebalance({key(0): (1, 2), key(1): (3, 4)}, places)
        assert len(plan.moves) == 2
        assert all(len({r <= 2 for r in replicas}) == 2 for replicas in plan.assignments.values())

    @pytest.mark.parametrize("factor", [0, 3])
    def test_impossible(self, factor):
        """A replication factor of 0 or above the number of brokers is refused."""
        with pytest.raises(KafkaError) as refused:
            rebalance({key(0): (1, 2)}, without_racks(1, 2), replication_factor=factor)
        assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR

    def test_too_few_brokers_remain(self):
        """A plan that leaves too few brokers is refused."""
        with pytest.raises(KafkaError, match="too few brokers for 2 replicas of orders-0"):
            rebalance({key(0): (1, 2)}, without_racks(1))

    def test_no_partitions(self):
        """A cluster without partitions is balanced."""
        assert rebalance({}, without_racks(1, 2)).replica_counts == {1: 0, 2: 0}


@pytest.mark.parametrize("racks", [1, 3])
def test_ten_thousand_partitions(racks):
    """The loss of one of 30 brokers is planned quickly and moves only that broker's replicas."""
    places = [BrokerPlace(broker, f"rack{broker % racks}") for broker in range(30)]
    assigned = {key(p): r for p, r in place(places, 10_000, 3, shift=Random(1).randrange(30)).items()}
    started_s = time.process_time()
    plan = rebalance(assigned, places[:-1])
    assert time.process_time() - started_s < 2.0
    assert len(plan.moves) == 1000
