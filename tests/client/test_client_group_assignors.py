"""Assignors of classic groups, compared with those of other clients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random
from types import SimpleNamespace

import pytest
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor as TheirCooperative
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from kreplica.client.group.assignors import ASSIGNORS, Member, Topics, by_names
from kreplica.client.group.assignors.sticky_data import build_cooperative, build_eager, cooperative_claim, eager_claim
from kreplica.client.group.subscription import build_assignment, parse_assignment, parse_members, protocols
from kreplica.client_core.errors import MalformedResponse
from kreplica.model import TopicPartition

NO_RACKS: frozenset[str] = frozenset()
SEEDS = range(40)


def topics(**counts: int) -> Topics:
    return {name: dict.fromkeys(range(count), NO_RACKS) for name, count in counts.items()}


def topic_in_racks(*racks: str) -> Topics:
    return {"t": {number: frozenset(rack.split("+")) for number, rack in enumerate(racks)}}


def random_group(random: Random, static: float = 0.3) -> tuple[Topics, list[Member]]:
    """Return random topics, and members that subscribe to some of them."""
    all_topics = topics(**{name: random.randrange(1, 9) for name in "abcd"[: random.randrange(1, 5)]})
    names = [f"m{number}" for number in range(random.randrange(1, 7))]
    members = []
    for name in random.sample(names, len(names)):
        wanted = frozenset(random.sample(sorted(all_topics), random.randrange(1, len(all_topics) + 1)))
        members.append(Member(name, wanted, f"static-{9 - int(name[1])}" if random.random() < static else None))
    return all_topics, members


def aiokafka_assignment(assignor, all_topics: Topics, members: Sequence[Member]) -> dict[str, list[TopicPartition]]:
    """Return the assignment that an assignor of aiokafka computes."""
    cluster = SimpleNamespace(topics=lambda: set(all_topics), partitions_for_topic=lambda topic: set(all_topics[topic]))
    metadata = {each.member_id: ConsumerProtocolMemberMetadata(0, sorted(each.topics), b"") for each in members}
    assignments = assignor.assign(cluster, metadata)
    return {member_id: sorted(parse_assignment(share.encode())) for member_id, share in assignments.items()}


@pytest.mark.parametrize(
    ("name", "other"), [("range", RangePartitionAssignor), ("roundrobin", RoundRobinPartitionAssignor)]
)
def test_assignments_equal_those_of_other_clients(name: str, other) -> None:
    for seed in SEEDS:
        all_topics, members = random_group(Random(seed), static=0.0)  # aiokafka has no static members
        ours = ASSIGNORS[name].assign(all_topics, members)
        assert {each: sorted(share) for each, share in ours.items()} == aiokafka_assignment(
            other(), all_topics, members
        ), seed


@pytest.mark.parametrize("name", ASSIGNORS)
def test_each_partition_is_assigned_once(name: str) -> None:
    """Each partition is assigned to one subscriber, regardless of the order of the members."""
    for seed in SEEDS:
        random = Random(seed)
        all_topics, members = random_group(random)
        assignments = ASSIGNORS[name].assign(all_topics, members)
        wanted = {topic for each in members for topic in each.topics}
        given = Counter(partition for share in assignments.values() for partition in share)
        assert given == Counter(TopicPartition(topic, number) for topic in wanted for number in all_topics[topic])
        assert all(partition.topic in each.topics for each in members for partition in assignments[each.member_id])
        assert assignments == ASSIGNORS[name].assign(all_topics, random.sample(members, len(members)))


def test_range_assigns_the_same_partitions_of_each_topic() -> None:
    """A member gets the same partition numbers of each topic; static members are ordered by instance ID."""
    both = frozenset("ab")
    members = [Member("x", both, "2"), Member("y", both, "1"), Member("a", both)]
    assignments = by_names(["range"])[0].assign(topics(a=4, b=4), members)
    numbers = {each: [str(partition) for partition in share] for each, share in assignments.items()}
    assert numbers == {"y": ["a-0", "a-1", "b-0", "b-1"], "x": ["a-2", "b-2"], "a": ["a-3", "b-3"]}


def test_range_prefers_racks() -> None:
    """Members get the partitions in their own rack first, but no more than their share."""
    members = [Member(name, frozenset("t"), rack=rack) for name, rack in (("1", "A"), ("2", "B"), ("3", None))]
    assignments = ASSIGNORS["range"].assign(topic_in_racks("B+C", "A+C", "A+C", "B+C", "A+C", "B+C"), members)
    assert {each: [one.partition for one in share] for each, share in assignments.items()} == {
        "1": [1, 2], "2": [0, 3], "3": [4, 5],
    }  # fmt: skip
    everywhere = ASSIGNORS["range"].assign(topic_in_racks(*["A+B"] * 6), members[:2])
    assert [one.partition for one in everywhere["1"]] == [0, 1, 2]


def rejoining_members(
    members: Sequence[Member], assignments: dict[str, list[TopicPartition]], generation: int
) -> list[Member]:
    """Return the members as they join the next rebalance, with the user data of both sticky assignors."""
    return [
        Member(
            each.member_id,
            each.topics,
            each.instance_id,
            tuple(assignments.get(each.member_id, ())),
            generation,
            user_data=build_eager(assignments.get(each.member_id, ()), generation),
        )
        for each in members
    ]


def test_sticky_assignment_is_equal_and_moves_little() -> None:
    """Only the partitions of a leaving member, or the share of a new one, move."""
    sticky, all_topics = ASSIGNORS["sticky"], topics(a=7, b=6)
    members = [Member(f"m{number}", frozenset("ab")) for number in range(5)]
    assignments = sticky.assign(all_topics, members)
    assert sorted(map(len, assignments.values())) == [2, 2, 3, 3, 3]
    remaining = rejoining_members(members[1:], assignments, 1)
    after_leave = sticky.assign(all_topics, remaining)
    assert sorted(map(len, after_leave.values())) == [3, 3, 3, 4]
    for each in remaining:
        assert set(assignments[each.member_id]) <= set(after_leave[each.member_id])
    after_return = sticky.assign(all_topics, [*rejoining_members(remaining, after_leave, 2), members[0]])
    assert len(after_return["m0"]) == 2
    for each in remaining:
        assert set(after_return[each.member_id]) <= set(after_leave[each.member_id])


def test_sticky_assignment_is_as_balanced_as_others() -> None:
    """For random groups, assignments are at least as balanced as those of aiokafka."""
    for seed in SEEDS:
        all_topics, members = random_group(Random(seed))
        ours, other = (
            ASSIGNORS["sticky"].assign(all_topics, members),
            aiokafka_assignment(StickyPartitionAssignor(), all_topics, members),
        )
        assert _imbalance(ours) <= _imbalance(other), seed


def _imbalance(assignments: dict[str, list[TopicPartition]]) -> int:
    return sum(len(share) ** 2 for share in assignments.values())


def test_claim_of_the_later_generation_wins() -> None:
    """A member that missed a generation does not get back a partition assigned to another member since."""
    all_topics = topics(t=2)
    zero, one = TopicPartition("t", 0), TopicPartition("t", 1)
    old = Member("old", frozenset("t"), user_data=build_eager([zero, one], 1))
    new = Member("new", frozenset("t"), user_data=build_eager([zero], 2))
    assert ASSIGNORS["sticky"].assign(all_topics, [old, new]) == {"new": [zero], "old": [one]}


def test_cooperative_members_revoke_first() -> None:
    """A partition that moves is unassigned in the first step, and assigned in the second."""
    cooperative, all_topics = ASSIGNORS["cooperative-sticky"], topics(t=6)
    one, two = Member("one", frozenset("t")), Member("two", frozenset("t"))
    assignments = cooperative.assign(all_topics, [one])
    first = cooperative.assign(all_topics, [*rejoining_members([one], assignments, 1), two])
    assert [each.partition for each in first["one"]] == [0, 1, 2]
    assert first["two"] == []
    second = cooperative.assign(all_topics, rejoining_members([one, two], first, 2))
    assert second["one"] == first["one"]
    assert [each.partition for each in second["two"]] == [3, 4, 5]


def test_encodings_are_compatible_with_kafka_python() -> None:
    """Subscriptions, assignments and user data are exchanged in both directions."""
    owned = frozenset(TopicPartition(*each) for each in [("t", 2), ("t", 0), ("u", 1)])
    rows = protocols(by_names(ASSIGNORS), ["u", "t"], owned, (owned, 7), "A")
    for row in rows:
        read = ConsumerProtocolSubscription.decode(row["metadata"])
        assert (read.topics, read.generation_id, read.rack_id) == (["t", "u"], 7, "A")
        assert [(each.topic, each.partitions) for each in read.owned_partitions] == [("t", [0, 2]), ("u", [1])]
    eager = StickyPartitionAssignor.parse_member_metadata(ConsumerProtocolMemberMetadata.decode(rows[2]["metadata"]))
    assert ({tuple(each) for each in eager.partitions}, eager.generation) == (set(owned), 7)
    cooperative = TheirCooperative.parse_member_metadata(ConsumerProtocolSubscription.decode(rows[3]["metadata"]))
    assert ({tuple(each) for each in cooperative.partitions}, cooperative.generation) == (set(owned), 7)
    other_client = ConsumerProtocolSubscription(
        version=1, topics=["t"], user_data=build_cooperative(5), owned_partitions=[]
    )
    (member,) = parse_members([{"member_id": "m", "metadata": other_client.encode()}])
    assert (member.topics, cooperative_claim(member).generation) == (frozenset("t"), 5)
    data = ConsumerProtocolAssignment.decode(build_assignment(owned))
    assert [(each.topic, each.partitions) for each in data.assigned_partitions] == [("t", [0, 2]), ("u", [1])]
    assert parse_assignment(build_assignment(owned)) == owned
    assert parse_assignment(b"") == frozenset()


def test_malformed_data() -> None:
    """Malformed user data is ignored; a malformed subscription is an error."""
    assert eager_claim(Member("m", frozenset(), user_data=b"\xff")).partitions == ()
    assert cooperative_claim(Member("m", frozenset(), user_data=b"\xff")).generation == -1
    with pytest.raises(MalformedResponse, match="'m'"):
        parse_members([{"member_id": "m", "metadata": b"\0"}])
    with pytest.raises(MalformedResponse):
        parse_assignment(b"\0")
    with pytest.raises(ValueError, match="the assignors are range"):
        by_names(["rnage"])
