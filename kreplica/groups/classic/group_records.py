"""Converts a classic group to its log record and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kreplica.groups.classic.member import Member
from kreplica.groups.classic.roster import Roster
from kreplica.groups.memory_limits import GroupAccount
from kreplica.groups.records import GroupRecord, MemberRecord
from kreplica.runtime import Reactor


def record_of(
    roster: Roster,
    generation: int,
    protocol: str | None,
    state_timestamp_ms: int,
    assignments: Mapping[str, bytes],
) -> GroupRecord:
    """Return the record of a group after a rebalance.

    :param assignments: by member id; members without an entry have an empty assignment.
    """
    return GroupRecord(
        roster.protocol_type or "",
        generation,
        protocol,
        roster.leader,
        state_timestamp_ms,
        tuple(
            MemberRecord(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.session_timeout_ms,
                member.metadata(protocol),
                assignments.get(member.member_id, b""),
            )
            for member in roster.members.values()
        ),
    )


def restored_roster(
    record: GroupRecord, account: GroupAccount, reactor: Reactor, on_expired: Callable[[Member], None]
) -> Roster:
    """Return the roster of a loaded group. The members' metadata is known only for the selected protocol.

    :param on_expired: passed to each ``Member``; session timers are not started.
    """
    roster = Roster(account, record.protocol_type or None)
    for row in record.members:
        member = Member(
            row.member_id,
            row.group_instance_id,
            row.client_id,
            row.client_host,
            row.session_timeout_ms,
            row.rebalance_timeout_ms,
            ((record.protocol or "", bytes(row.subscription)),),
            reactor,
            on_expired,
        )
        member.assignment = bytes(row.assignment)
        roster.add(member, record.protocol_type)
    if record.leader in roster.members:
        roster.leader = record.leader
    return roster
