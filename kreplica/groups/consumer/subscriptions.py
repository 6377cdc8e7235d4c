"""What the members of a group are subscribed to, as the cluster is now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol
from uuid import UUID

from kreplica.groups.consumer.members import Subscription
from kreplica.groups.consumer.state import GroupState, Resolved, Topic


class Topics(Protocol):
    """What of ``ClusterView`` a subscription needs."""

    def partition_count(self, topic: str) -> int | None:
        """How many partitions a topic has; None where there is no such topic."""

    def topic_id(self, topic: str) -> UUID | None:
        """A topic's id."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a transition sees of the world.

    :param resolved: regular expressions that were looked up just now.
    :param is_changed: whether topics may be others than when the group last looked.
    :param version: of the topics, as they are now.
    """

    topics: Topics
    resolved: Mapping[str, Resolved] = field(default_factory=dict)
    is_changed: bool = False
    version: int | None = None


def refresh(state: GroupState, surroundings: Surroundings) -> GroupState:
    """Look up what the members are subscribed to.

    :return: the same object if that is as before, else a group of the next epoch.
    """
    resolved = _resolved(state, surroundings.resolved)
    topics = _topics(dict.fromkeys(_names(state, resolved)), surroundings.topics)
    if resolved == state.resolved and topics == state.topics:
        return state
    return replace(state, resolved=resolved, topics=topics, epoch=state.epoch + 1)


def topic_ids_of(state: GroupState, subscription: Subscription) -> frozenset[UUID]:
    """The topics that exist of those that a member is subscribed to."""
    names = subscription.topic_names
    if subscription.regular_expression:
        resolved = state.resolved.get(subscription.regular_expression)
        names += resolved.topic_names if resolved is not None else ()
    return frozenset(state.topics[name].topic_id for name in names if name in state.topics)


def is_subscribed(state: GroupState, topic: str) -> bool:
    """Whether any member is subscribed to that topic."""
    for member in state.members.values():
        resolved = state.resolved.get(member.subscription.regular_expression or "")
        if topic in member.subscription.topic_names or (resolved is not None and topic in resolved.topic_names):
            return True
    return False


def _resolved(state: GroupState, fresh: Mapping[str, Resolved]) -> dict[str, Resolved]:
    """Of each expression in use what it names now; one that names the same keeps its place in the log."""
    result = {}
    for expression in regular_expressions(state):
        old, new = state.resolved.get(expression), fresh.get(expression)
        if new is None or (old is not None and old.topic_names == new.topic_names):
            new = old if old is not None else Resolved(())
        result[expression] = new
    return result


def regular_expressions(state: GroupState) -> list[str]:
    """Those in use, sorted."""
    found = {member.subscription.regular_expression for member in state.members.values()}
    return sorted(each for each in found if each)


def _names(state: GroupState, resolved: Mapping[str, Resolved]) -> list[str]:
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
