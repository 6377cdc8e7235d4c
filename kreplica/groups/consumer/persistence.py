"""Converts KIP-848 groups to records and back.

Each record contains a complete value, not a change. A write may therefore be retried, and only the last record of a key
matters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kreplica.groups.consumer.assignment import Assignment, from_rows, to_rows
from kreplica.groups.consumer.members import Member, MemberState, Progress, Subscription
from kreplica.groups.consumer.state import GroupState, MatchedTopics, Topic, changed_members
from kreplica.groups.consumer_records import (
    ConsumerKey,
    RecordKind,
    build_consumer_key,
    build_consumer_value,
    parse_consumer_key,
    parse_consumer_value,
)

if TYPE_CHECKING:
    from kreplica.coordination.state_log import Pair

MEMBER_KINDS = (RecordKind.CURRENT, RecordKind.TARGET, RecordKind.MEMBER)
"""Order of a member's tombstones, which Kafka's replay relies on."""


def records_between(old: GroupState, new: GroupState) -> Iterator[Pair]:
    """Yield the records for a change from one state to another."""
    group_id = new.group_id
    changed = changed_members(old, new)
    for before, member in changed:
        if before is not None and member is None:
            for kind in MEMBER_KINDS:
                yield _record(kind, group_id, None, before.member_id)
    for before, member in changed:
        if member is not None and (before is None or before.subscription != member.subscription):
            yield _record(RecordKind.MEMBER, group_id, _subscription_fields(member.subscription), member.member_id)
    yield from _regular_expressions(old, new)
    if old.topics != new.topics:
        yield _record(RecordKind.TOPICS, group_id, {"topics": _topic_rows(new)})
    if old.epoch != new.epoch:
        yield _record(RecordKind.GROUP_EPOCH, group_id, {"epoch": new.epoch})
    yield from _targets(old, new)
    for before, member in changed:
        if member is not None and (before is None or before.progress != member.progress):
            yield _record(RecordKind.CURRENT, group_id, _progress_fields(member.progress), member.member_id)


def tombstones(state: GroupState) -> list[Pair]:
    """Return the tombstones of a group, in the order that Kafka relies on; empty if nothing was written."""
    if not state.epoch:
        return []
    members = [_record(kind, state.group_id, None, each) for each in state.members for kind in MEMBER_KINDS]
    expressions = [_record(RecordKind.REGULAR_EXPRESSION, state.group_id, None, each) for each in state.resolved]
    kinds = (RecordKind.TARGET_EPOCH, RecordKind.TOPICS, RecordKind.GROUP_EPOCH)
    return members + expressions + [_record(kind, state.group_id, None) for kind in kinds]


def _record(kind: RecordKind, group_id: str, fields: dict[str, Any] | None, name: str = "") -> Pair:
    key = build_consumer_key(ConsumerKey(kind, group_id, name))
    return key, None if fields is None else build_consumer_value(kind, fields)


def _regular_expressions(old: GroupState, new: GroupState) -> Iterator[Pair]:
    for expression in old.resolved:
        if expression not in new.resolved:
            yield _record(RecordKind.REGULAR_EXPRESSION, new.group_id, None, expression)
    for expression, resolved in new.resolved.items():
        if old.resolved.get(expression) != resolved:
            fields = {
                "topics": resolved.topic_names,
                "version": resolved.version,
                "timestamp": resolved.timestamp_ms,
            }
            yield _record(RecordKind.REGULAR_EXPRESSION, new.group_id, fields, expression)


def _targets(old: GroupState, new: GroupState) -> Iterator[Pair]:
    for member_id, target in new.target.items() if new.target is not old.target else ():
        if old.target.get(member_id) != target:
            yield _record(RecordKind.TARGET, new.group_id, {"topic_partitions": to_rows(target)}, member_id)
    if old.target_epoch != new.target_epoch:
        yield _record(RecordKind.TARGET_EPOCH, new.group_id, {"assignment_epoch": new.target_epoch})


def _topic_rows(state: GroupState) -> list[dict[str, Any]]:
    return [
        {"topic_id": topic.topic_id, "topic_name": name, "num_partitions": topic.partition_count}
        for name, topic in state.topics.items()
    ]


def _subscription_fields(subscription: Subscription) -> dict[str, Any]:
    return {
        "instance_id": subscription.instance_id,
        "rack_id": subscription.rack_id,
        "client_id": subscription.client_id,
        "client_host": subscription.client_host,
        "subscribed_topic_names": subscription.topic_names,
        "subscribed_topic_regex": subscription.regular_expression,
        "rebalance_timeout_ms": subscription.rebalance_timeout_ms,
        "server_assignor": subscription.server_assignor,
    }


def _subscription(fields: dict[str, Any]) -> Subscription:
    return Subscription(
        fields["instance_id"],
        fields["rack_id"],
        fields["client_id"],
        fields["client_host"],
        tuple(fields["subscribed_topic_names"] or ()),
        fields["subscribed_topic_regex"],
        fields["rebalance_timeout_ms"],
        fields["server_assignor"],
    )


def _progress_fields(progress: Progress) -> dict[str, Any]:
    return {
        "member_epoch": progress.epoch,
        "previous_member_epoch": progress.previous_epoch,
        "state": progress.state,
        "assigned_partitions": to_rows(progress.assigned),
        "partitions_pending_revocation": to_rows(progress.pending_revocation),
    }


def _progress(fields: dict[str, Any]) -> Progress:
    return Progress(
        fields["member_epoch"],
        fields["previous_member_epoch"],
        _member_state(fields["state"]),
        from_rows(fields["assigned_partitions"]),
        from_rows(fields["partitions_pending_revocation"]),
    )


def _member_state(number: int) -> MemberState:
    """Return the member state; unknown states of newer versions become UNREVOKED_PARTITIONS.

    In that state, the member must first report its partitions.
    """
    return MemberState(number) if number in _MEMBER_STATES else MemberState.UNREVOKED_PARTITIONS


_MEMBER_STATES = frozenset(MemberState)


# --- reading ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _GroupRecords:
    """Records of one group read so far; ``epoch`` is None if the group does not exist."""

    epoch: int | None = None
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    progress: dict[str, Progress] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)
    resolved: dict[str, MatchedTopics] = field(default_factory=dict)
    target_epoch: int = 0
    target: dict[str, Assignment] = field(default_factory=dict)


class ReplayedGroups:
    """Builds groups from the records of a partition; ``states`` is only valid after the last record.

    While a compacted log is replayed, a partition may temporarily have two owners, because only the last record of each
    member remains.
    """

    def __init__(self) -> None:
        self._groups: dict[str, _GroupRecords] = {}

    def replay(self, key: bytes, value: bytes | None) -> None:
        """Apply a record.

        :raise ProtocolError: the record is malformed or has an unknown version.
        """
        kind, group_id, name = parse_consumer_key(key)
        read = self._groups.setdefault(group_id, _GroupRecords())
        fields = None if value is None else parse_consumer_value(kind, value)
        if kind is RecordKind.GROUP_EPOCH:
            read.epoch = None if fields is None else fields["epoch"]
        elif kind is RecordKind.TARGET_EPOCH:
            read.target_epoch = 0 if fields is None else fields["assignment_epoch"]
        elif kind is RecordKind.TOPICS:
            read.topics = {} if fields is None else _read_topics(fields)
        else:
            _set_entry(_entries(read, kind), kind, name, fields)

    def states(self) -> list[GroupState]:
        """Return the existing groups, sorted by id."""
        return [_state(group_id, read) for group_id, read in sorted(self._groups.items()) if read.epoch is not None]


def _entries(read: _GroupRecords, kind: RecordKind) -> dict[str, Any]:
    if kind is RecordKind.MEMBER:
        return read.subscriptions
    if kind is RecordKind.CURRENT:
        return read.progress
    return read.target if kind is RecordKind.TARGET else read.resolved


def _set_entry(entries: dict[str, Any], kind: RecordKind, name: str, fields: dict[str, Any] | None) -> None:
    if fields is None:
        entries.pop(name, None)
    elif kind is RecordKind.MEMBER:
        entries[name] = _subscription(fields)
    elif kind is RecordKind.CURRENT:
        entries[name] = _progress(fields)
    elif kind is RecordKind.TARGET:
        entries[name] = from_rows(fields["topic_partitions"])
    else:
        entries[name] = MatchedTopics(tuple(fields["topics"]), fields["version"], fields["timestamp"])


def _read_topics(fields: dict[str, Any]) -> dict[str, Topic]:
    return {row["topic_name"]: Topic(row["topic_id"], row["num_partitions"]) for row in fields["topics"]}


def _state(group_id: str, read: _GroupRecords) -> GroupState:
    state = GroupState(
        group_id,
        read.epoch or 0,
        topics=read.topics,
        resolved=read.resolved,
        target_epoch=read.target_epoch,
        target={each: target for each, target in read.target.items() if each in read.subscriptions},
    )
    for member_id, subscription in sorted(read.subscriptions.items()):
        state = state.with_member(Member(member_id, subscription, read.progress.get(member_id, Progress())))
    return state
