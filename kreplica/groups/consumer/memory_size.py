"""Memory charged for a KIP-848 group: its members' subscriptions and the matches of regular expressions."""

from __future__ import annotations

from kreplica.groups.consumer.members import JOINING, Subscription
from kreplica.groups.consumer.requests import Heartbeat
from kreplica.groups.consumer.state import GroupState, MatchedTopics, changed_members
from kreplica.groups.memory_limits import MEMBER_OVERHEAD_BYTES, GroupAccount, texts_size

MATCH_BYTES = 8
"""Charged for each topic that a regular expression matches; the name itself is shared with the cluster metadata."""


def check_memory(account: GroupAccount, state: GroupState, request: Heartbeat) -> None:
    """Raise an error if a subscription would exceed the memory limit of the group, the client address or the broker.

    A heartbeat without a subscription is never rejected.

    :raise KafkaError: see ``GroupAccount.check``.
    """
    if request.is_leaving or (request.topic_names is None and not request.regular_expression):
        return
    if request.member_epoch != JOINING and request.member_id not in state.members:
        return  # rejected later as an unknown member
    names = request.topic_names or ()
    expression = request.regular_expression
    if request.topic_names is None:
        member = state.members.get(request.member_id)
        names = member.subscription.topic_names if member is not None else ()
    texts = (request.member_id, request.instance_id, request.rack_id, request.client_id, request.client_host)
    size = MEMBER_OVERHEAD_BYTES + texts_size(texts) + texts_size(names) + texts_size((expression,))
    account.check(_member_key(request.member_id), request.client_host, size)


def charge(account: GroupAccount, old: GroupState, new: GroupState) -> None:
    """Update the account for the members and matches of the new state."""
    for before, after in changed_members(old, new):
        if after is None:
            assert before is not None, "before and after are not both None"
            account.remove(_member_key(before.member_id))
        elif before is None or before.subscription is not after.subscription:
            subscription = after.subscription
            size = _subscription_size(after.member_id, subscription)
            account.set(_member_key(after.member_id), subscription.client_host, size)
    if old.resolved is not new.resolved:
        _charge_matches(account, old, new)


def _charge_matches(account: GroupAccount, old: GroupState, new: GroupState) -> None:
    hosts = {member.subscription.regular_expression: member.subscription.client_host for member in new.members.values()}
    for expression, resolved in new.resolved.items():
        if old.resolved.get(expression) is not resolved:
            account.set(_expression_key(expression), hosts.get(expression, ""), _matches_size(expression, resolved))
    for expression in old.resolved.keys() - new.resolved.keys():
        account.remove(_expression_key(expression))


def _expression_key(expression: str) -> str:
    return f"expression {expression}"


def _member_key(member_id: str) -> str:
    return f"member {member_id}"


def _matches_size(expression: str, resolved: MatchedTopics) -> int:
    return texts_size((expression,)) + MATCH_BYTES * len(resolved.topic_names)


def _subscription_size(member_id: str, subscription: Subscription) -> int:
    names = (
        member_id,
        subscription.instance_id,
        subscription.rack_id,
        subscription.client_id,
        subscription.client_host,
        subscription.regular_expression,
    )
    return MEMBER_OVERHEAD_BYTES + texts_size(names) + texts_size(subscription.topic_names)
