"""Resolves the subscriptions of a group's members to existing topics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol
from uuid import UUID

from kreplica.groups.consumer.members import Subscription
from kreplica.groups.consumer.state import GroupState, MatchedTopics, Topic


class Topics(Protocol):
    """The part of ``ClusterView`` that subscriptions use."""

    def partition_count(self, topic: str) -> int | None:
        """Return the number of partitions of a topic, or None if it does not exist."""

    def topic_id(self, topic: str) -> UUID | None:
        """Return the id of a topic, or None if it does not exist."""


@dataclass(frozen=True, slots=True)
class TopicSnapshot:
    """Topic metadata for one transition.

    :param resolved: matches of regular expressions that were just looked up.
    :param is_changed: True if topics may have changed since the group last used them.
    :param version: version of the topic metadata.
    """

    topics: Topics
    resolved: Mapping[str, MatchedTopics] = field(default_factory=dict)
    is_changed: bool = False
    version: int | None = None


def refresh(state: GroupState, snapshot: TopicSnapshot) -> GroupState:
    """Update the subscribed topics of a group.

    :return: the same object if nothing changed, otherwise the group at its next epoch.
    """
    resolved = _resolve(state, snapshot.resolved)
    topics = _topics(dict.fromkeys(_names(state, resolved)), snapshot.topics)
    if resolved == state.resolved and topics == state.topics:
        return state
    return replace(state, resolved=resolved, topics=topics, epoch=state.epoch + 1)


def topic_ids_of(state: GroupState, subscription: Subscription) -> frozenset[UUID]:
    """Return the ids of the existing topics that a member is subscribed to."""
    names = subscription.topic_names
    if subscription.regular_expression:
        resolved = state.resolved.get(subscription.regular_expression)
        names += resolved.topic_names if resolved is not None else ()
    return frozenset(state.topics[name].topic_id for name in names if name in state.topics)


def is_subscribed(state: GroupState, topic: str) -> bool:
    """Return True if any member is subscribed to the topic."""
    for member in state.members.values():
        resolved = state.resolved.get(member.subscription.regular_expression or "")
        if topic in member.subscription.topic_names or (resolved is not None and topic in resolved.topic_names):
            return True
    return False


def _resolve(state: GroupState, fresh: Mapping[str, MatchedTopics]) -> dict[str, MatchedTopics]:
    """Return the matches of each expression in use; unchanged matches keep their old entry, which is not rewritten."""
    result = {}
    for expression in regular_expressions(state):
        old, new = state.resolved.get(expression), fresh.get(expression)
        if new is None or (old is not None and old.topic_names == new.topic_names):
            new = old if old is not None else MatchedTopics(())
        result[expression] = new
    return result


def regular_expressions(state: GroupState) -> list[str]:
    """Return the regular expressions in use, sorted."""
    found = {member.subscription.regular_expression for member in state.members.values()}
    return sorted(each for each in found if each)


def _names(state: GroupState, resolved: Mapping[str, MatchedTopics]) -> list[str]:
    by_name = dict.fromkeys(member.subscription.topic_names for member in state.members.values())
    names = [name for topic_names in by_name for name in topic_names]
    return names + [name for expression in resolved for name in resolved[expression].topic_names]


def _topics(names: Mapping[str, None], topics: Topics) -> dict[str, Topic]:
    found = {}
    for name in sorted(names):
        topic_id, partitions = topics.topic_id(name), topics.partition_count(name)
        if topic_id is not None and partitions:
            found[name] = Topic(topic_id, partitions)
    return found
