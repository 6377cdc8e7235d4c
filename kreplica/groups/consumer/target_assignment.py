"""Computes the target assignment of a group for each group epoch."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from uuid import UUID

from kreplica.groups.consumer.assignment import NO_PARTITIONS
from kreplica.groups.consumer.assignors import Assignor, Group, Subscriber
from kreplica.groups.consumer.state import GroupState
from kreplica.groups.consumer.subscriptions import topic_ids_of


def selected_assignor(state: GroupState, assignors: tuple[Assignor, ...]) -> Assignor:
    """Return the assignor that most members prefer; the first configured one if there is no preference or a tie."""
    votes = Counter(member.subscription.server_assignor for member in state.members.values())
    del votes[None]
    return max(assignors, key=lambda assignor: votes[assignor.name])  # the first of equals


def with_target(state: GroupState, assignors: tuple[Assignor, ...]) -> GroupState:
    """Return the group with a target for its current epoch."""
    topic_ids: dict[tuple[tuple[str, ...], str | None], frozenset[UUID]] = {}
    members = {}
    for member_id, member in state.members.items():
        subscription = member.subscription
        key = subscription.topic_names, subscription.regular_expression
        if key not in topic_ids:
            topic_ids[key] = topic_ids_of(state, subscription)
        previous = state.target.get(member_id, NO_PARTITIONS)
        members[member_id] = Subscriber(topic_ids[key], subscription.instance_id, previous)
    counts = {topic.topic_id: topic.partition_count for topic in state.topics.values()}
    target = selected_assignor(state, assignors).assign(Group(members, counts))
    return replace(state, target=target, target_epoch=state.epoch)
