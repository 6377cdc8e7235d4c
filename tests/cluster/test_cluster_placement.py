"""Properties of replica placement over many clusters."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kreplica.cluster.placement import BrokerPlace, failure_domains, place
from kreplica.errors import ErrorCode, KafkaError
from kreplica.model import Endpoint


@given(st.integers(1, 12), st.integers(1, 60), st.data())
def test_every_partition_has_distinct_live_replicas_and_leaders_are_balanced(brokers, partitions, data):
    """Replicas are distinct, and leader counts differ by at most one."""
    factor = data.draw(st.integers(1, brokers))
    start, shift = data.draw(st.integers(0, 50)), data.draw(st.integers(0, 50))
    places = [BrokerPlace(10 + i) for i in range(brokers)]
    assignment = place(places, partitions, factor, start_index=start, shift=shift)
    assert list(assignment) == list(range(partitions))
    for replicas in assignment.values():
        assert len(set(replicas)) == len(replicas) == factor
        assert set(replicas) <= {p.broker_id for p in places}
    leaders = Counter(replicas[0] for replicas in assignment.values())
    counts = [leaders[p.broker_id] for p in places]
    assert max(counts) - min(counts) <= 1


@given(st.integers(1, 12), st.integers(1, 60), st.data())
def test_replicas_are_balanced(brokers, partitions, data):
    """Replica counts differ by at most one, even after an incomplete last round."""
    factor = data.draw(st.integers(1, brokers))
    places = [BrokerPlace(i) for i in range(brokers)]
    assignment = place(places, partitions, factor, start_index=data.draw(st.integers(0, 50)), shift=3)
    replica_counts = Counter(replica for replicas in assignment.values() for replica in replicas)
    assert max(replica_counts.values()) - min(replica_counts[p.broker_id] for p in places) <= 1


@given(st.integers(2, 9))
def test_followers_of_one_broker_spread_evenly_over_all_others(brokers):
    """All other brokers share the load of a dead broker."""
    places = [BrokerPlace(i) for i in range(brokers)]
    assignment = place(places, brokers * (brokers - 1), 2)
    for leader in range(brokers):
        followers = Counter(replicas[1] for replicas in assignment.values() if replicas[0] == leader)
        assert set(followers.values()) == {1}
        assert len(followers) == brokers - 1


@given(st.integers(2, 4), st.integers(1, 4), st.integers(1, 40), st.data())
def test_replicas_are_in_as_many_racks_as_possible(racks, per_rack, partitions, data):
    """The loss of a rack affects as few replicas of a partition as possible."""
    places = [BrokerPlace(r * 100 + i, f"rack{r}") for r in range(racks) for i in range(per_rack)]
    factor = data.draw(st.integers(1, len(places)))
    for replicas in place(places, partitions, factor, start_index=data.draw(st.integers(0, 20))).values():
        assert len(set(replicas)) == factor
        assert len({broker // 100 for broker in replicas}) == min(racks, factor)


@given(st.lists(st.integers(1, 4), min_size=2, max_size=4), st.integers(1, 25), st.data())
def test_racks_of_unequal_size(sizes, partitions, data):
    """A rack gets a second replica only if all racks have one."""
    places = [BrokerPlace(r * 100 + i, f"rack{r}") for r, size in enumerate(sizes) for i in range(size)]
    factor = data.draw(st.integers(1, len(places)))
    assignment = place(places, partitions, factor, start_index=data.draw(st.integers(0, 20)))
    replica_counts = Counter(replica for replicas in assignment.values() for replica in replicas)
    leaders = Counter(replicas[0] for replicas in assignment.values())
    assert max(leaders.values()) - min(leaders[p.broker_id] for p in places) <= 1
    for replicas in assignment.values():
        assert len(set(replicas)) == factor
        in_rack = Counter(replica // 100 for replica in replicas)
        assert len(in_rack) == min(len(sizes), factor)
        for source in replicas[1:]:
            for target in {p.broker_id for p in places}.difference(replicas):
                if target // 100 != source // 100:
                    assert in_rack[source // 100] - in_rack[target // 100] <= 1
                    allowed = in_rack[target // 100] < in_rack[source // 100]
                else:
                    allowed = True
                assert not allowed or replica_counts[source] - replica_counts[target] <= 1


def test_placement_is_deterministic():
    """The result does not depend on the order of the brokers."""
    places = [BrokerPlace(i, f"rack{i % 3}") for i in range(8)]
    assert place(places, 30, 3, shift=2) == place(places[::-1], 30, 3, shift=2)


def test_added_partitions_continue_the_placement():
    """Added partitions continue the numbering of the existing ones."""
    places = [BrokerPlace(i) for i in range(3)]
    all_partitions = place(places, 6, 2, start_index=1, shift=1)
    added = place(places, 3, 2, start_index=1, shift=2, first_partition=4)
    assert list(added) == [4, 5, 6]
    assert all_partitions[0] == (1, 0)


@pytest.mark.parametrize(
    ("places", "partitions", "factor", "code"),
    [
        ([BrokerPlace(1)], 0, 1, ErrorCode.INVALID_PARTITIONS),
        ([BrokerPlace(1)], 1, 2, ErrorCode.INVALID_REPLICATION_FACTOR),
        ([BrokerPlace(1)], 1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        ([], 1, 1, ErrorCode.INVALID_REPLICATION_FACTOR),
        ([BrokerPlace(1, "a"), BrokerPlace(2)], 1, 1, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_impossible_placements_are_refused(places, partitions, factor, code):
    """The error has Kafka's error code and a message."""
    with pytest.raises(KafkaError) as caught:
        place(places, partitions, factor)
    assert caught.value.code is code
    assert caught.value.message


def domains(hosts, racks=None):
    """Return the failure domains of brokers 0, 1 and so on."""
    endpoints = {i: [Endpoint("A", host, 9092 + i), Endpoint("B", "other", 1)] for i, host in enumerate(hosts)}
    return failure_domains(dict(enumerate(racks or [None] * len(hosts))), endpoints)


@pytest.mark.parametrize(
    ("hosts", "racks", "expected"),
    [
        (["m1", "m1", "m2", "m2"], None, ["m1", "m1", "m2", "m2"]),
        (["m1", "m2", "m3"], None, [None, None, None]),  # as in Kafka
        (["m1", "m1", "m1"], None, [None, None, None]),
        (["m1", "m1", "m2"], ["a", "b", "c"], ["a", "b", "c"]),
        (["m1", "m1", "m2"], ["a", None, None], ["a", None, None]),
        ([], None, []),
    ],
)
def test_brokers_of_one_host_are_one_failure_domain(hosts, racks, expected):
    """Hosts are failure domains only without racks, and only if some but not all brokers share one."""
    assert list(domains(hosts, racks).values()) == expected


def test_replicas_are_on_different_hosts():
    """With two brokers on each of three machines, no partition has two replicas on one machine."""
    found = domains(["m1", "m1", "m2", "m2", "m3", "m3"])
    places = [BrokerPlace(broker, domain) for broker, domain in found.items()]
    for replicas in place(places, 60, 3, start_index=1, shift=1).values():
        assert {found[replica] for replica in replicas} == {"m1", "m2", "m3"}
