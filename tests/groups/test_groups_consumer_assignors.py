"""Partition assignors of KIP-848 groups."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kreplica.groups.consumer.assignment import Assignment, count, pairs
from kreplica.groups.consumer.assignors import ASSIGNORS, Assignor, Group, RangeAssignor, Subscriber, UniformAssignor

TOPICS = [UUID(int=number) for number in range(1, 7)]
MEMBERS = [f"m{number}" for number in range(8)]

Partition = tuple[UUID, int]

counts_of_partitions = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 12), min_size=1)
examples = settings(max_examples=60)
every_assignor = pytest.mark.parametrize("assignor", ASSIGNORS, ids=lambda assignor: assignor.name)


@st.composite
def groups(draw: st.DrawFn, *, alike: bool = False) -> Group:
    """Strategy: groups of members with arbitrary subscriptions and previous targets.

    :param alike: all members subscribe to all topics.
    """
    counts = draw(counts_of_partitions)
    names = draw(st.lists(st.sampled_from(MEMBERS), min_size=1, unique=True))
    topics = st.frozensets(st.sampled_from(sorted(counts)))
    subscriptions = {name: frozenset(counts) if alike else draw(topics) for name in names}
    before: dict[str, dict[UUID, set[int]]] = {name: {} for name in names}
    for topic_id in draw(st.lists(st.sampled_from(TOPICS), unique=True)):
        for partition in range(draw(st.integers(0, 14))):
            owner = draw(st.sampled_from([*names, None]))
            if owner is not None:
                before[owner].setdefault(topic_id, set()).add(partition)
    targets = {name: {each: frozenset(partitions) for each, partitions in before[name].items()} for name in names}
    return Group({name: Subscriber(subscriptions[name], None, targets[name]) for name in names}, counts)


def owners(target: Mapping[str, Assignment]) -> dict[Partition, str]:
    """Return the owner of each partition, and check that it is unique."""
    found: dict[Partition, str] = {}
    for member_id, assignment in target.items():
        for partition in pairs(assignment):
            assert partition not in found, f"{partition} has two owners"
            found[partition] = member_id
    return found


def count_moved(group: Group, target: Mapping[str, Assignment]) -> int:
    """Return the number of partitions taken from members that could have kept them."""
    now = owners(target)
    return sum(
        now[topic_id, partition] != member_id
        for member_id, member in group.members.items()
        for topic_id, partition in pairs(member.target)
        if topic_id in member.topic_ids and partition < group.partition_counts[topic_id]
    )


def members(number: int, counts: Mapping[UUID, int], before: Mapping[str, Assignment] | None = None) -> Group:
    """Return a group of ``number`` members that subscribe to all topics."""
    names = [f"m{index:04}" for index in range(number)]
    return Group({name: Subscriber(frozenset(counts), None, (before or {}).get(name, {})) for name in names}, counts)


@every_assignor
@examples
@given(group=groups())
def test_every_partition_has_one_subscribed_owner(assignor: Assignor, group: Group) -> None:
    target = assignor.assign(group)
    assert list(target) == sorted(group.members)
    found = owners(target)
    subscribed = {topic_id for member in group.members.values() for topic_id in member.topic_ids}
    expected = {(topic_id, each) for topic_id in subscribed for each in range(group.partition_counts[topic_id])}
    assert set(found) == expected
    for (topic_id, _), member_id in found.items():
        assert topic_id in group.members[member_id].topic_ids


@every_assignor
@examples
@given(group=groups())
def test_assignment_is_deterministic(assignor: Assignor, group: Group) -> None:
    """The order of members and topics does not matter, so recomputing after a failover moves nothing."""
    mirrored = Group(dict(reversed(group.members.items())), dict(reversed(group.partition_counts.items())))
    assert assignor.assign(mirrored) == assignor.assign(group)


@examples
@given(group=groups())
def test_uniform_assignment_is_balanced(group: Group) -> None:
    """No member has two partitions more than another member that subscribes to one of their topics."""
    target = UniformAssignor().assign(group)
    for (topic_id, _), member_id in owners(target).items():
        for other, member in group.members.items():
            if topic_id in member.topic_ids:
                assert count(target[member_id]) - count(target[other]) <= 1


@examples
@given(group=groups())
def test_uniform_keeps_a_balanced_assignment(group: Group) -> None:
    target = UniformAssignor().assign(group)
    settled = {name: member._replace(target=target[name]) for name, member in group.members.items()}
    assert UniformAssignor().assign(Group(settled, group.partition_counts)) == target


@examples
@given(group=groups(alike=True))
def test_uniform_moves_as_few_partitions_as_possible(group: Group) -> None:
    """With equal subscriptions only partitions above a member's fair share move."""
    total = sum(group.partition_counts.values())
    floor, extra = divmod(total, len(group.members))
    owned_counts = sorted(
        (
            sum(len([p for p in parts if p < group.partition_counts.get(topic_id, 0)]) for topic_id, parts in t.items())
            for t in (member.target for member in group.members.values())
        ),
        reverse=True,
    )
    # The larger shares go to the members that own most already.
    least = sum(max(0, owned - (floor + (index < extra))) for index, owned in enumerate(owned_counts))
    assert count_moved(group, UniformAssignor().assign(group)) == least


def test_uniform_spreads_each_topic() -> None:
    """Each topic is spread over the members, because topics are rarely equally busy."""
    target = UniformAssignor().assign(members(2, {TOPICS[0]: 4, TOPICS[1]: 4}))
    assert [[len(parts) for _, parts in sorted(each.items())] for each in target.values()] == [[2, 2], [2, 2]]


def test_uniform_with_different_subscriptions() -> None:
    """A member that subscribes to one topic gets more of it than members that have other topics as well."""
    both, one = frozenset(TOPICS[:2]), frozenset(TOPICS[:1])
    group = Group({"a": Subscriber(both), "b": Subscriber(one)}, {TOPICS[0]: 4, TOPICS[1]: 2})
    target = UniformAssignor().assign(group)
    assert {name: count(each) for name, each in target.items()} == {"a": 3, "b": 3}
    assert target["a"][TOPICS[1]] == frozenset({0, 1})


def test_uniform_with_many_members() -> None:
    """The thousandth member of a group moves only its own share of ten thousand partitions."""
    counts = {UUID(int=number): 100 for number in range(1, 101)}
    target = UniformAssignor().assign(members(999, counts))
    assert {count(each) for each in target.values()} == {10, 11}
    group = members(1000, counts, target)
    assert {count(each) for each in UniformAssignor().assign(group).values()} == {10}
    assert count_moved(group, UniformAssignor().assign(group)) == 10


@examples
@given(group=groups(alike=True))
def test_range_is_contiguous(group: Group) -> None:
    """Each member has contiguous partitions of a topic, and counts differ by at most one."""
    target = RangeAssignor().assign(group)
    for topic_id in group.partition_counts:
        shares = [sorted(each.get(topic_id, ())) for each in target.values()]
        assert all(share == list(range(share[0], share[-1] + 1)) for share in shares if share)
        assert max(map(len, shares)) - min(map(len, shares)) <= 1


@examples
@given(group=groups(), partitions=st.integers(1, 9))
def test_range_co_partitions_topics(group: Group, partitions: int) -> None:
    """Topics with equal partition counts and subscribers are assigned identically."""
    one, two = TOPICS[0], UUID(int=99)
    counts = {**group.partition_counts, one: partitions, two: partitions}
    subscribers = {
        name: member._replace(topic_ids=member.topic_ids | ({two} if one in member.topic_ids else frozenset()))
        for name, member in group.members.items()
    }
    for assignment in RangeAssignor().assign(Group(subscribers, counts)).values():
        assert assignment.get(one) == assignment.get(two)


@settings(max_examples=20)
@given(st.permutations(["u", "v", "w"]))
def test_range_of_static_members_survives_restarts(member_ids: list[str]) -> None:
    """Static members are ordered by instance ID, independently of member IDs."""
    topics = frozenset({TOPICS[0]})
    group = Group({each: Subscriber(topics, f"i{n}") for n, each in enumerate(member_ids)}, {TOPICS[0]: 3})
    target = RangeAssignor().assign(group)
    assert [sorted(target[each][TOPICS[0]]) for each in member_ids] == [[0], [1], [2]]
